"""Checks of a workload's statements: names, types, bounds, writes and their order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hwgen.errors import HwgenError
from hwgen.spec.affine import Affine, affine
from hwgen.spec.beginnings import covers, undetermined
from hwgen.spec.bounds import Case, SearchLimitError, cases, find_point
from hwgen.spec.context import Context, name_offset
from hwgen.spec.expression import (
    Access,
    Assign,
    Call,
    Const,
    Expr,
    Name,
    accesses,
    children,
    evaluate,
    walk,
)
from hwgen.spec.source import FieldPath
from hwgen.spec.suggest import suggestion
from hwgen.spec.typecheck import ExpressionTypeError, check_assign, neutral
from hwgen.spec.workload import Role, Statement, Tensor

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
"""Data type and extents of each tensor."""


@dataclass(frozen=True, slots=True)
class Written:
    """A statement as the user wrote it, for errors that point into its text."""

    context: Context
    text: str
    path: FieldPath

    def sizes_of(self, tensor: str) -> list[str]:
        """The sizes by which the text indexes a tensor first."""
        found = re.search(rf"\b{re.escape(tensor)}\s*\[([^\]]*)\]", self.text)
        words = re.findall(r"[A-Za-z_]\w*", found[1]) if found else []
        return [w for w in words if w in self.context.values]

    def error(
        self, code: str, message: str, name: str, *, found: str, allowed: str = "", repair: str = ""
    ) -> HwgenError:
        """An error at the first place where a name stands."""
        return self.context.error(
            code, message, self.path, offset=name_offset(self.text, name), found=found,
            allowed=allowed, repair=repair,
        )  # fmt: skip


def guarded_accesses(expr: Expr, guarded: bool = False) -> Iterator[tuple[Access, bool]]:
    """Every access, and whether a `select` decides if it is evaluated."""
    match expr:
        case Access():
            yield expr, guarded
        case Call("select", (condition, yes, no)):
            yield from guarded_accesses(condition, guarded)
            yield from guarded_accesses(yes, True)
            yield from guarded_accesses(no, True)
        case _:
            for child in children(expr):
                yield from guarded_accesses(child, guarded)


def check_names(where: Written, assign: Assign, shapes: Shapes) -> None:
    """Tensors exist and have as many indices as dimensions, which depend on no data.

    Raises:
        HwgenError: H213, H214, H215.
    """
    nodes = [*walk(assign.target), *walk(assign.value)]
    # A loop may be called as a tensor is: only a name outside all indices is a bare tensor.
    indices = [i for node in nodes if isinstance(node, Access) for i in node.indices]
    loops = {n.name for index in indices for n in walk(index) if isinstance(n, Name)}
    for node in nodes:
        if isinstance(node, Name) and node.name in shapes and node.name not in loops:
            raise where.error(
                "H214", f"tensor {node.name!r} stands without its indices", node.name,
                found=node.name, allowed=f"{len(shapes[node.name][1])} indices",
            )  # fmt: skip
        if not isinstance(node, Access):
            continue
        if node.tensor not in shapes:
            raise where.error(
                "H213", f"no tensor is called {node.tensor!r}", node.tensor, found=node.tensor,
                allowed=", ".join(shapes),
                repair=suggestion(node.tensor, list(shapes))
                or f"name one of these, or declare {node.tensor} in `tensors`",
            )  # fmt: skip
        rank = len(shapes[node.tensor][1])
        if len(node.indices) != rank:
            raise where.error(
                "H214", f"tensor {node.tensor!r} has {rank} dimension{'' if rank == 1 else 's'}",
                node.tensor, found=f"{node} with {len(node.indices)}", allowed=f"{rank} indices",
                repair="write one index for each dimension of "
                f"{' x '.join(map(str, shapes[node.tensor][1]))}"
                if rank
                else f"write {node.tensor} alone, or declare its extents",
            )  # fmt: skip
        if any(isinstance(part, Access) for index in node.indices for part in walk(index)):
            raise where.error(
                "H215", "an index depends on data", node.tensor, found=str(node),
                allowed="sums of loops times constants",
            )  # fmt: skip


def check_affine(where: Written, given: Assign, split: Assign) -> None:
    """Indices are affine once loops are `split` by what divides them.

    Raises:
        HwgenError: H215.
    """
    for written, access in zip(accesses(given), accesses(split), strict=True):
        if any(affine(index) is None for index in access.indices):
            divides = any(op in str(written) for op in ("//", "%"))
            raise where.error(
                "H215", "an index is not affine", written.tensor, found=str(written),
                allowed="sums of loops times constants, and of loops divided by factors of their "
                "extents, as h // 2",
                repair="split the tensor's dimension into two" if divides else "",
            )  # fmt: skip


def check_statement(where: Written, statement: Statement, shapes: Shapes) -> None:
    """One statement by itself: types, bounds, each element written once.

    Raises:
        HwgenError: H218 bounds, H219 types, H223 reading its own target, H224 writes.
    """
    _check_types(where, statement, shapes)
    target = statement.target
    for node in walk(statement.value):
        if not isinstance(node, Access) or node.tensor != target.tensor:
            continue
        if node != target or statement.op != "=":
            raise where.error(
                "H223", f"the statement reads {target.tensor!r} while writing it", target.tensor,
                found=str(statement), allowed=f"{target} on both sides of =",
                repair="write the result into another tensor",
            )  # fmt: skip
    extents = dict(statement.loops)
    _check_bounds(where, target, [()], extents, shapes, target=True)
    _check_value(where, statement.value, [()], extents, shapes)
    if statement.op == "=":
        _check_written_once(where, statement)


def _check_types(where: Written, statement: Statement, shapes: Shapes) -> None:
    def type_of(node: Access | Name) -> str:
        return shapes[node.tensor][0] if isinstance(node, Access) else "int32"

    try:
        check_assign(Assign(statement.target, statement.op, statement.value), type_of)
    except ExpressionTypeError as problem:
        repair, types = problem.repair, str(where.context.types)
        if problem.wanted and statement.op != "=":  # What adds up is meant to be as wide as it.
            tensor = statement.target.tensor
            repair = f"declare {tensor} as {problem.wanted}, the type of what is added; or {repair}"
        raise where.context.error(
            "H219",
            problem.message,
            where.path,
            found=problem.found + (f", with {types} set from outside" if types else ""),
            repair=repair,
        ) from problem


def _check_value(
    where: Written, expr: Expr, guards: list[Case], extents: Mapping[str, int], shapes: Shapes
) -> None:
    """Check every access of a value under the conditions that lead to it."""
    match expr:
        case Access():
            _check_bounds(where, expr, guards, extents, shapes)
        case Call("select", (condition, yes, no)):
            _check_value(where, condition, guards, extents, shapes)
            for branch, holds in ((yes, True), (no, False)):
                try:
                    inner = [(*g, *c) for g in guards for c in cases(condition, holds)]
                except SearchLimitError as problem:
                    raise where.error(
                        "H218", "the condition has too many cases to check", "select",
                        found=str(condition), repair="split the statement",
                    ) from problem  # fmt: skip
                _check_value(where, branch, inner, extents, shapes)
        case _:
            for child in children(expr):
                _check_value(where, child, guards, extents, shapes)


def _check_bounds(
    where: Written,
    access: Access,
    guards: list[Case],
    extents: Mapping[str, int],
    shapes: Shapes,
    *,
    target: bool = False,
) -> None:
    shape = shapes[access.tensor][1]
    for dimension, (index, extent) in enumerate(zip(access.indices, shape, strict=True)):
        form = affine(index)
        assert form is not None, index
        below = Affine((), -1).plus(form, -1)
        above = form.plus(Affine((), extent), -1)
        for guard in guards:
            for outside in (below, above):
                try:
                    point = find_point((*guard, outside), extents)
                except SearchLimitError as problem:
                    raise where.error(
                        "H218", f"it cannot be shown that {access} stays inside its tensor",
                        access.tensor, found=f"index {dimension}: {index}",
                        allowed=f"0..{extent - 1}", repair="use simpler conditions or indices",
                    ) from problem  # fmt: skip
                if point is not None:
                    raise _outside(where, access, dimension, point, extents, shape, target=target)


def _outside(
    where: Written,
    access: Access,
    dimension: int,
    point: Mapping[str, int],
    extents: Mapping[str, int],
    shape: tuple[int, ...],
    *,
    target: bool,
) -> HwgenError:
    at = ", ".join(f"{name}={point[name]}" for name in extents)
    index, extent = access.indices[dimension], shape[dimension]
    value = evaluate(index, point)
    repair = (
        f"guard it: select({index} >= 0 and {index} < {extent}, {access}, 0), "
        "or change the tensor's shape"
    )
    if target:  # Nothing guards a write.
        repair = _repair_of_target(index, extent, value)
    sizes = where.sizes_of(access.tensor) if isinstance(index, Const) else []
    if sizes:
        repair = f"write loops, as {', '.join(n.lower() for n in sizes)}: a size is one number"
    return where.error(
        "H218", f"{access} lies outside its tensor", access.tensor,
        found=f"index {dimension} ({index}) is {value}" + (f" at {at}" if at else ""),
        allowed=f"0..{extent - 1} ({access.tensor} is {' x '.join(map(str, shape))})",
        repair=repair,
    )  # fmt: skip


def _repair_of_target(index: Expr, extent: int, value: int | float) -> str:
    loops = " and ".join(_loops_of(index))
    if value < 0 or not loops:
        return "write into elements that there are"
    fewer = f"{loops}: {extent}" if isinstance(index, Name) else f"fewer iterations of {loops}"
    return f"{fewer} in the statement's loops, or change the tensor's shape"


def _check_written_once(where: Written, statement: Statement) -> None:
    """With `=`, different iterations write different elements."""
    used = {n for i in statement.target.indices for n in _loops_of(i)}
    absent = [n for n, extent in statement.loops if extent > 1 and n not in used]
    if absent and not statement.ordered:
        names = ", ".join(absent)
        raise where.error(
            "H224", "an element is written more than once", names.split(", ")[0],
            found=f"{statement} over {names}",
            allowed="+=, max= or min= for loops that are not in the target",
            repair=f"did you mean {statement.target} += ..., or a value made from "
            f"{statement.target}, in order?",
        )  # fmt: skip
    if undetermined(statement.target.indices, statement.loops):
        raise where.error(
            "H224", "elements may be written more than once", statement.target.tensor,
            found=str(statement.target), allowed="indices that differ for every iteration",
            repair="use += if the values are to be added up",
        )  # fmt: skip


def _loops_of(index: Expr) -> tuple[str, ...]:
    form = affine(index)
    return tuple(n for n, _ in form.terms) if form else ()


def check_order(
    written: list[Written], statements: list[Statement], shapes: Shapes, constants: list[str]
) -> dict[str, Role]:
    """The role of each tensor, after checking the order of reads and writes.

    Raises:
        HwgenError: H220 an update that discards, H221 unused, H222 read too early, H226 constant.
    """
    reads: dict[str, list[int]] = {name: [] for name in shapes}
    writes: dict[str, list[int]] = {name: [] for name in shapes}
    for i, statement in enumerate(statements):
        writes[statement.target.tensor].append(i)
        for node in walk(statement.value):
            if isinstance(node, Access):
                reads[node.tensor].append(i)
    roles: dict[str, Role] = {}
    for name in shapes:
        if not reads[name] and not writes[name]:
            raise written[0].context.error(
                "H221", f"tensor {name!r} is never used", ("tensors", name), key=True, found=name,
                repair="remove it, or use it in `compute`",
            )  # fmt: skip
        if not writes[name]:
            roles[name] = "input"
            continue
        first, last = writes[name][0], writes[name][-1]
        early, own = [i for i in reads[name] if i <= first], statements[first]
        if early:
            raise written[early[0]].error(
                "H222", f"tensor {name!r} is read before it is written", name,
                found=f"read here, first written by `{statements[first]}`",
                allowed="tensors written by an earlier statement, or never written (inputs)",
                repair=f"set what it starts from in a statement before: {own.target} = 0"
                if own.ordered and early[0] == first
                else "reorder the statements, or use another name for one of the two",
            )  # fmt: skip
        if name in constants:
            raise written[first].error(
                "H226", f"the constant tensor {name!r} is written", name,
                found=str(statements[first]), allowed="constants are inputs",
                repair="remove `constant: true`",
            )  # fmt: skip
        for i in writes[name][1:]:
            if statements[i].op != "=":
                raise written[i].error(
                    "H220", f"the update discards what {name!r} already holds", name,
                    found=f"{statements[i]}, after `{statements[first]}`",
                    allowed=f"{statements[i].op} as the first write (it starts from its neutral "
                    "element)",
                    repair=f"leave out `{own}`: {statements[i].op} starts from it"
                    if own.value == neutral(statements[i].op, shapes[name][0])
                    else "accumulate into another tensor, and combine the two afterwards",
                )  # fmt: skip
        roles[name] = "intermediate" if any(i > last for i in reads[name]) else "output"
    return roles


def check_outputs(
    written: list[Written], statements: list[Statement], tensors: tuple[Tensor, ...]
) -> None:
    """Each output that one statement assigns is written wholly; an update sets all of it first.

    Raises:
        HwgenError: H225.
    """
    for tensor in tensors:
        writers = [i for i, s in enumerate(statements) if s.target.tensor == tensor.name]
        if tensor.role != "output" or len(writers) != 1:
            continue
        statement = statements[writers[0]]
        if statement.op != "=":
            continue
        extents = dict(statement.loops)
        seen: set[str] = set()
        for dimension, (index, extent) in enumerate(
            zip(statement.target.indices, tensor.shape, strict=True)
        ):
            form = affine(index)
            assert form is not None, index
            loops = {n for n, _ in form.terms if extents[n] > 1}
            if not covers(form, extents, extent) or loops & seen:
                raise written[writers[0]].error(
                    "H225", f"output {tensor.name!r} is not wholly written", tensor.name,
                    found=f"index {dimension} ({index}) of {statement.target}",
                    allowed=f"every value of 0..{extent - 1}",
                    repair="make the tensor smaller, or write the rest of it too",
                )  # fmt: skip
            seen |= loops
