"""What emitted C says around itself so that known defects of compilers do not reach it."""

from __future__ import annotations

from hwgen.codegen.names import expressions, touched, written
from hwgen.codegen.nodes import Assign, Body, Code, If, nodes
from hwgen.spec.expression import Access, Binary, Call, Const, Expr, Name, Unary, walk

_AFFECTED = """\
#if defined(__GNUC__) && !defined(__clang__) && \\
    (__GNUC__ < 11 || (__GNUC__ == 11 && __GNUC_MINOR__ < 5) || \\
     (__GNUC__ == 12 && __GNUC_MINOR__ < 4) || (__GNUC__ == 13 && __GNUC_MINOR__ < 2))"""

_BEFORE = f"""\
/* These versions of GCC count elements twice where a sum of floats reads backwards (GCC bug 110381)
   and a loop around it is vectorised: https://gcc.gnu.org/PR110381. */
{_AFFECTED}
#pragma GCC push_options
#pragma GCC optimize("no-tree-loop-vectorize")
#endif"""

_AFTER = f"""\
{_AFFECTED}
#pragma GCC pop_options
#endif"""


def around_functions(program: Code) -> tuple[str, str]:
    """C text before and after the functions of a program; empty where none is needed."""
    return (_BEFORE, _AFTER) if _sums_backwards(program) else ("", "")


def _sums_backwards(program: Code) -> bool:
    """Whether floats are added up, and anything is read in falling order of a loop.

    The sum and the read need not be one statement: a compiler sees through a store.
    """
    steps = [n for n in nodes(program.body) if isinstance(n, Assign)]
    sums = any(n.op == "+=" and "float" in program.array[n.target.tensor].dtype for n in steps)
    return sums and any(
        _falls(access.indices[0])
        for n in steps
        for access in (n.target, *walk(n.value))
        if isinstance(access, Access)
    )


def _falls(index: Expr) -> bool:
    """Whether a loop may take an index down, or around the end of a ring."""
    return any(_turns(part) for part in walk(index))


def _turns(part: Expr) -> bool:
    match part:
        case Unary("-", inner) | Binary("-", _, inner):
            return _moves(inner)
        case Binary("*", Const(factor), inner) | Binary("*", inner, Const(factor)):
            return factor < 0 and _moves(inner)
        case Binary("%", inner, _):
            return not isinstance(inner, Name)
        case _:
            return False


def _moves(expr: Expr) -> bool:
    return any(isinstance(part, Name) for part in walk(expr))


def may_join_reads(body: Body) -> bool:
    """Whether what nodes write and what they only read are alternatives somewhere: nvcc (13.0) may
    join two such reads to one of either place, through the cache for what nobody writes, if the one
    place is told to be nobody else's. So it reads what was there before."""
    writes = written(body)

    def joined(one: frozenset[str], other: frozenset[str]) -> bool:
        return bool((one & writes and other - writes) or (other & writes and one - writes))

    for node in nodes(body):
        if isinstance(node, If) and joined(touched(node.then), touched(node.otherwise)):
            return True
        for part in (p for value in expressions(node) for p in walk(value)):
            match part:
                case Call("select", (_, yes, no)) if joined(_read(yes), _read(no)):
                    return True
                case _:
                    pass
    return False


def _read(value: Expr) -> frozenset[str]:
    return frozenset(part.tensor for part in walk(value) if isinstance(part, Access))
