"""Intrinsics' semantics: parsed, checked, and operands' shape and access derived from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from hwgen.errors import HwgenError
from hwgen.spec.context import Context, name_offset
from hwgen.spec.expression import (
    Access,
    Assign,
    Const,
    Expr,
    Name,
    Unary,
    accesses,
    add,
    map_accesses,
    names,
    stepped,
    walk,
)
from hwgen.spec.hardware import Immediate, Operand
from hwgen.spec.memory import Access as AccessKind
from hwgen.spec.nan import NanRule, has_extreme, with_nan
from hwgen.spec.schema import IntrinsicSchema
from hwgen.spec.source import FieldPath
from hwgen.spec.suggest import suggestion
from hwgen.spec.temporaries import Temporaries
from hwgen.spec.typecheck import ExpressionTypeError, check_assign


@dataclass(frozen=True, slots=True)
class Indices:
    """How an operand is indexed: in each dimension an iterator, or "" for numbers, plus up to
    `beyond`. `first`: what is taken off the first index, `offset`: entries before the first one
    that is read. A first index that is the same number everywhere is none."""

    names: tuple[str, ...]
    beyond: tuple[int, ...]
    offset: int = 0
    first: int = 0

    def shape(self, iterators: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(
            iterators.get(n, 1) + more for n, more in zip(self.names, self.beyond, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Semantics:
    """Statements of an intrinsic, parameters and temporaries substituted; indices as they access
    each operand. `temporaries`: their definitions, with their types."""

    statements: tuple[Assign, ...]
    paths: tuple[FieldPath, ...]
    indices: Mapping[str, Indices]
    access: Mapping[str, AccessKind]
    temporaries: tuple[tuple[Assign, FieldPath, str], ...] = ()


def parse_semantics(
    context: Context,
    path: FieldPath,
    schema: IntrinsicSchema,
    iterators: Mapping[str, int],
    ranks: Mapping[str, int],
    dtypes: Mapping[str, str],
) -> Semantics:
    """Parse an intrinsic's statements and check names, indices and what is written. `ranks`:
    dimensions of an entry, by operand; of operands that are not named, all are. `dtypes`: of
    operands and immediates.

    Raises:
        HwgenError: H02x syntax, H118 names and indices, H120 writes, H153 and H154 offsets, H155
            to H157 temporaries.
    """
    lines = [schema.semantics] if isinstance(schema.semantics, str) else schema.semantics
    single = isinstance(schema.semantics, str)
    paths = [(*path, "semantics") if single else (*path, "semantics", i) for i in range(len(lines))]
    parsed = [context.parse_assign(t, p) for t, p in zip(lines, paths, strict=True)]
    values = Temporaries(
        context, schema.temporaries, {n: o.memory for n, o in schema.operands.items()}, iterators,
        dtypes,
    )  # fmt: skip
    kept: list[tuple[_Names, Assign]] = []
    for text, where, given in zip(lines, paths, parsed, strict=True):
        checker = _Names(context, schema, iterators, text, where)
        checker.check_names(given)
        # A target is a place, not a value: only its indices are substituted.
        target = Access(given.target.tensor, tuple(map(context.bound, given.target.indices)))
        statement = Assign(target, given.op, context.bound(given.value))
        checker.check_write(statement)
        whole = values.take(statement, text, where)
        if whole is not None:
            kept.append((checker, whole))
    for name in schema.temporaries:
        if all(a.tensor != name for s in parsed for a in accesses(s)[1:]):
            raise context.error(
                "H155", f"temporary {name!r} is never read", (*path, "temporaries", name), key=True,
                found=name, repair="read it in the semantics, or remove it",
            )  # fmt: skip
    found: dict[str, list[tuple[_Names, Access]]] = {name: [] for name in schema.operands}
    replaced: set[str] = set()
    reads: set[str] = set()
    writes: dict[str, bool] = {}
    for checker, statement in kept:
        for access in accesses(statement):
            found[access.tensor].append((checker, access))
        target, valued = statement.target.tensor, {a.tensor for a in accesses(statement)[1:]}
        if target not in writes and target not in reads | valued and statement.op == "=":
            # All of it is written first: what later statements add to is this call's own.
            replaced.add(target)
        writes[target] = writes.get(target, False) or statement.op != "="
        reads |= valued
    indices: dict[str, Indices] = {}
    kinds: dict[str, AccessKind] = {}
    for name in schema.operands:
        if not found[name]:
            used = [n for n, where in found.items() if where]
            raise context.error(
                "H118", f"operand {name!r} does not occur in the semantics",
                (*path, "operands", name), key=True, found=name,
                allowed=", ".join(used), repair="use it in the semantics, or remove it",
            )  # fmt: skip
        indices[name] = _operand_indices(found[name], iterators, ranks.get(name), name in writes)
        if name in writes:
            again = (writes[name] or name in reads) and name not in replaced
            kinds[name] = "update" if again else "write"
        else:
            kinds[name] = "read"
    moved = tuple(_moved(s, indices) for _, s in kept)
    temporaries = tuple(
        (d.assign, d.path, schema.temporaries[n]) for n, d in values.defined.items()
    )
    return Semantics(moved, tuple(c.path for c, _ in kept), indices, kinds, temporaries)


@dataclass(frozen=True, slots=True)
class _Names:
    context: Context
    schema: IntrinsicSchema
    iterators: Mapping[str, int]
    text: str
    path: FieldPath

    def check_names(self, statement: Assign) -> None:
        """Every name in a statement is known, and stands where its kind may."""
        values = [*self.schema.operands, *self.schema.temporaries]
        for node in [statement.target, *walk(statement.value)]:
            match node:
                case Access(tensor, indices):
                    if tensor not in values:
                        raise self._unknown("operand", tensor, values)
                    for index in (i.name for i in indices if isinstance(i, Name)):
                        if index not in self.iterators and index not in self.context.values:
                            raise self._unknown("iterator", index, list(self.iterators))
                case Name(name):
                    known = [*self.iterators, *self.schema.immediates, *self.context.values]
                    if name in values:
                        raise self.error(
                            "H118", f"operand {name!r} stands without its indices", name, name,
                            f"{name}[...] with one iterator per dimension",
                        )  # fmt: skip
                    if name not in known:
                        raise self._unknown("iterator, immediate or parameter", name, known)
                case Unary() | _:
                    pass

    def steps(self, access: Access) -> tuple[tuple[str, int], ...]:
        """Per dimension, an iterator and what is added to it; "" for no iterator."""
        found = [stepped(index) for index in access.indices]
        steps = tuple(s for s in found if s and (not s[0] or s[0] in self.iterators))
        if len(steps) < len(found):
            raise self.error(
                "H118", "an operand is indexed by iterators, and numbers added to them",
                access.tensor, str(access), ", ".join(self.iterators) or
                "no iterators are declared",
                "address arithmetic belongs in `loops`: strides are entries per step",
            )  # fmt: skip
        names = [n for n, _ in steps if n]
        if len(set(names)) < len(names):
            raise self.error(
                "H118", "an iterator indexes two dimensions of one operand", access.tensor,
                str(access), "each iterator once",
            )  # fmt: skip
        return steps

    def check_write(self, statement: Assign) -> None:
        """With `=`, each element is written once, every iterator that occurs being in the target;
        or again from its last value, in the iterators' order."""
        target = {n for i in statement.target.indices for n in names(i)}
        used = {
            name
            for node in walk(statement.value)
            if isinstance(node, Name) and (name := node.name) in self.iterators
        }
        extra = [
            n for n in self.iterators if n in used and n not in target and self.iterators[n] > 1
        ]
        if statement.op == "=" and extra and not statement.running:
            raise self.context.error(
                "H120", "an element is written more than once", self.path,
                found=f"{statement} over {', '.join(extra)}",
                allowed="+=, max= or min= where an iterator is not in the target, or a value made "
                f"from {statement.target}, in the iterators' order",
                repair=f"to add up over {', '.join(extra)}, write {statement.target} += "
                f"{statement.value}",
            )  # fmt: skip

    def _unknown(self, what: str, name: str, known: list[str]) -> HwgenError:
        return self.error(
            "H118", f"no {what} is called {name!r}", name, name, ", ".join(known) or "none",
            suggestion(name, known) or self._meant(what, name),
        )  # fmt: skip

    def _meant(self, what: str, name: str) -> str:
        """What stands unused beside a name that is not declared, or how to declare it."""
        section = "operands" if what == "operand" else "iterators"
        declared = self.schema.operands if what == "operand" else self.iterators
        unused = [n for n in declared if not re.search(rf"\b{re.escape(n)}\b", self.text)]
        if len(unused) == 1:
            meant = f"write {unused[0]}, which the statement does not use, or "
        else:
            meant = ""
        return f"{meant}declare {name} in `{section}`"

    def error(
        self, code: str, message: str, at: str, found: str, allowed: str, repair: str = ""
    ) -> HwgenError:
        return self.context.error(
            code, message, self.path, offset=name_offset(self.text, at), found=found,
            allowed=allowed, repair=repair,
        )  # fmt: skip


MAX_ELEMENTS = 1 << 20
"""Elements of an operand that numbers added to its indices make larger."""


def _operand_indices(
    found: Sequence[tuple[_Names, Access]],
    iterators: Mapping[str, int],
    rank: int | None,
    written: bool,
) -> Indices:
    """How an operand is indexed, everywhere. `rank`: dimensions of its entry; None: all.

    Raises:
        HwgenError: H118 other dimensions or iterators from access to access; H153 a number where
            there can be none; H154 too large.
    """
    tensor = found[0][1].tensor
    steps = [(checker, access, checker.steps(access)) for checker, access in found]
    own = tuple(name for name, _ in steps[0][2])
    for checker, access, step in steps:
        if tuple(name for name, _ in step) != own:
            raise checker.error(
                "H118", f"operand {tensor!r} is accessed in two ways", tensor, str(access),
                f"{tensor}[{', '.join(n or '0' for n in own)}] everywhere, numbers added apart",
                "declare a second operand in the same memory",
            )  # fmt: skip
        below = any(number < 0 for _, number in step)
        if below or ((written or rank is None) and any(n or not name for name, n in step)):
            kind = "a written operand" if written else "an operand that is one entry, or a pointer,"
            raise checker.error(
                "H153", f"operand {tensor!r} is read before its first element" if below
                else f"{kind} is indexed by iterators alone", tensor, str(access),
                "0 or more added to an iterator, of an operand of several entries that is read",
                "count from the first element that is read" if below
                else "begin at its first element: the template can add to its address",
            )  # fmt: skip
    numbers = [[step[d][1] for *_, step in steps] for d in range(len(own))]
    beyond = tuple(map(max, numbers))
    if any(beyond) and prod(Indices(own, beyond).shape(iterators)) > MAX_ELEMENTS:
        checker, access, _ = steps[0]
        raise checker.error(
            "H154", f"operand {tensor!r} covers too many elements", tensor,
            " x ".join(map(str, Indices(own, beyond).shape(iterators))),
            f"at most {MAX_ELEMENTS}", "add smaller numbers to its indices",
        )  # fmt: skip
    if rank is None or len(own) <= rank:
        return Indices(own, beyond)
    low = min(numbers[0])
    inner = Indices(own[1:], beyond[1:])
    rows = inner.shape(iterators)
    offset = low * prod(rows[: len(rows) - rank])
    if not own[0] and beyond[0] == low:
        return Indices(inner.names, inner.beyond, offset)
    return Indices(own, (beyond[0] - low, *inner.beyond), offset, low)


def _moved(statement: Assign, indices: Mapping[str, Indices]) -> Assign:
    """A statement whose operands begin with the first row that is read of them."""

    def moved(access: Access) -> Access:
        result: list[Expr] = []
        own = indices[access.tensor]
        rows = access.indices[-len(own.names) :] if own.names else ()
        for d, index in enumerate(rows):
            step = stepped(index)
            assert step is not None, "checked"
            name, number = step[0], step[1] - (0 if d else own.first)
            result.append(add(Name(name), Const(number)) if name else Const(number))
        return Access(access.tensor, tuple(result))

    value = map_accesses(statement.value, moved)
    return Assign(moved(statement.target), statement.op, value)


def executed(
    context: Context,
    path: FieldPath,
    semantics: Semantics,
    operands: tuple[Operand, ...],
    immediates: tuple[Immediate, ...],
    rule: NanRule,
) -> tuple[Assign, ...]:
    """The statements as the hardware executes them, their types checked. `rule`: what `max` and
    `min` give of a NaN.

    Raises:
        HwgenError: H119 types, H158 a rule for statements without `max` and `min` of floats.
    """
    dtypes = {o.name: o.dtype for o in operands} | {i.name: i.dtype for i in immediates}

    def type_of(node: Access | Name) -> str:
        return dtypes[node.tensor] if isinstance(node, Access) else dtypes.get(node.name, "int32")

    dtypes |= {given.target.tensor: dtype for given, _, dtype in semantics.temporaries}
    defined = [(given, where) for given, where, _ in semantics.temporaries]
    whole = zip(semantics.statements, semantics.paths, strict=True)
    for statement, where in [*defined, *whole]:
        try:
            check_assign(statement, type_of)
        except ExpressionTypeError as problem:
            raise context.error(
                "H119", problem.message, where, found=problem.found, repair=problem.repair
            ) from problem
    if rule != "propagate" and not any(has_extreme(x, type_of) for x in semantics.statements):
        raise context.error(
            "H158", "`nan` says nothing here: no maximum or minimum of floats", (*path, "nan"),
            found="; ".join(map(str, semantics.statements)),
            allowed="intrinsics with max, min or clip of floats", repair="remove `nan`",
        )  # fmt: skip
    return tuple(with_nan(x, rule, type_of) for x in semantics.statements)
