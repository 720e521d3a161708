"""Temporaries of intrinsics' semantics: values that statements hand on, put where they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hwgen.spec.context import Context, name_offset
from hwgen.spec.expression import (
    Access,
    Assign,
    Cast,
    Expr,
    Name,
    accesses,
    children,
    map_accesses,
    names,
    stepped,
    substitute,
    walk,
)
from hwgen.spec.grammar import MAX_DEPTH
from hwgen.spec.source import FieldPath
from hwgen.spec.typecheck import ExpressionTypeError, own_dtype

MAX_NODES = 4000
"""Parts of a statement whose temporaries are replaced by their values."""


@dataclass(frozen=True, slots=True)
class Definition:
    """`assign` as it stands, without temporaries; `whole`: the value, of the temporary's type.
    `memories`: of the operands that it reads."""

    assign: Assign
    path: FieldPath
    whole: Expr
    size: int
    memories: frozenset[str]


@dataclass(slots=True)
class Temporaries:
    """What is known of an intrinsic's temporaries from one statement to the next.

    `memories`: of each operand, by name; `types`: of operands and immediates. `stale`: by
    temporary, the operand that was written since in a memory that it reads.
    """

    context: Context
    dtypes: Mapping[str, str]
    memories: Mapping[str, str]
    iterators: Mapping[str, int]
    types: Mapping[str, str]
    defined: dict[str, Definition] = field(default_factory=dict[str, Definition])
    stale: dict[str, str] = field(default_factory=dict[str, str])

    def take(self, statement: Assign, text: str, path: FieldPath) -> Assign | None:
        """A statement with values for temporaries; None where it defines one.

        Raises:
            HwgenError: H155 a temporary that is no value of its own at every read; H156 one whose
                operands are written before it is read; H157 a statement that grows too large.
        """
        value = self._value(statement, text, path)
        target = statement.target.tensor
        if target not in self.dtypes:
            written = self.memories[target]
            for name, definition in self.defined.items():
                if written in definition.memories:
                    self.stale.setdefault(name, target)
            return Assign(statement.target, statement.op, value)
        own = [stepped(i) for i in statement.target.indices]
        over = [o[0] for o in own if o and o[0] and not o[1]]
        if (
            statement.op != "="
            or target in self.defined
            or len({*over}) < len(own)
            or any(a.tensor == target for a in accesses(statement)[1:])
        ):
            raise self.context.error(
                "H155", f"temporary {target!r} is no value that one statement gives it", path,
                offset=name_offset(text, target), found=str(statement),
                allowed=f"{target}[...] = ..., once, over iterators",
                repair="write sums and values made from the last one to an operand",
            )  # fmt: skip
        reads = [n for n in walk(value) if isinstance(n, Access)]
        self.defined[target] = Definition(
            Assign(statement.target, "=", value), path, self._converted(target, value),
            sum(1 for _ in walk(value)), frozenset(self.memories[r.tensor] for r in reads),
        )  # fmt: skip
        return None

    def _converted(self, name: str, value: Expr) -> Expr:
        """A value as its temporary keeps it."""

        def type_of(node: Access | Name) -> str:
            known = node.tensor if isinstance(node, Access) else node.name
            return self.types.get(known, "int32")

        try:
            kept = own_dtype(value, type_of) == self.dtypes[name]
        except ExpressionTypeError:
            kept = False  # `check_types` will tell.
        return value if kept else Cast(self.dtypes[name], value)

    def _value(self, statement: Assign, text: str, path: FieldPath) -> Expr:
        reads = [a for a in accesses(statement)[1:] if a.tensor in self.dtypes]
        size = sum(1 for _ in walk(statement.value))
        for access in reads:
            given = self.defined.get(access.tensor)
            if given is None or not self._inside(access, given.assign.target):
                raise self.context.error(
                    "H155", f"temporary {access.tensor!r} has no value here", path,
                    offset=name_offset(text, access.tensor), found=str(access),
                    allowed=f"elements of {given.assign.target}" if given
                    else "temporaries that a statement above gives a value",
                )  # fmt: skip
            where = statement.target.tensor
            again = self._folds(statement) and self.memories.get(where) in given.memories
            other = where if again else self.stale.get(access.tensor, "")
            if other:
                raise self.context.error(
                    "H156", f"{other!r} is written before temporary {access.tensor!r} is read",
                    path, offset=name_offset(text, access.tensor), found=str(statement),
                    allowed=f"reads of {access.tensor} before anything is written in "
                    f"{self.memories[other]}, which it is made from",
                    repair="write the operand in a later statement",
                )  # fmt: skip
            size += given.size
        if size > MAX_NODES:
            raise self.context.error(
                "H157", "a statement grows too large with its temporaries' values", path,
                found=f"{size} operations, names and numbers", allowed=f"at most {MAX_NODES}",
                repair="split the intrinsic, or read its temporaries less often",
            )  # fmt: skip
        if not reads:
            return statement.value
        value = map_accesses(statement.value, self._replaced)
        if _depth(value) > MAX_DEPTH:
            raise self.context.error(
                "H157", "a statement nests too deep with its temporaries' values", path,
                found=f"{_depth(value)} levels", allowed=f"at most {MAX_DEPTH}",
                repair="split the intrinsic",
            )  # fmt: skip
        return value

    def _folds(self, statement: Assign) -> bool:
        """Whether a statement writes an element, and then reads it for the next iteration."""
        own = {n for index in statement.target.indices for n in names(index)}
        return statement.running and any(
            self.iterators.get(n, 1) > 1 for n in names(statement.value) if n not in own
        )

    def _inside(self, access: Access, target: Access) -> bool:
        """Whether an access reads elements that the definition gives."""
        if len(access.indices) != len(target.indices):
            return False
        for index, own in zip(access.indices, target.indices, strict=True):
            found = stepped(index)
            assert isinstance(own, Name)
            if found is None:
                return False
            last = found[1] + self.iterators.get(found[0], 1) - 1
            if found[1] < 0 or last >= self.iterators[own.name]:
                return False
        return True

    def _replaced(self, access: Access) -> Expr:
        given = self.defined.get(access.tensor)
        if given is None:
            return access
        target = given.assign.target.indices
        own = {n.name: i for n, i in zip(target, access.indices, strict=True)
               if isinstance(n, Name)}  # fmt: skip
        return substitute(given.whole, own)


def _depth(expr: Expr) -> int:
    return 1 + max(map(_depth, children(expr)), default=0)
