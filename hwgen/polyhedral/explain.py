"""Why an intrinsic does or does not match: the first failing condition, the nearest repair."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hwgen.polyhedral.matching import Match
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.selection import Selector
from hwgen.polyhedral.semantics import neutral_element, updates, widens, written
from hwgen.polyhedral.unify import Unification, as_immediate, unify
from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Name, children, walk
from hwgen.spec.hardware import HardwareSpec, Immediate, Intrinsic
from hwgen.spec.ranges import Range


@dataclass(frozen=True, slots=True)
class Explanation:
    """One intrinsic against one statement; `binding` is empty where it does not match."""

    statement: str
    intrinsic: str
    binding: str
    reason: str = ""
    repair: str = ""

    def __str__(self) -> str:
        head = f"{self.statement} / {self.intrinsic}: "
        if self.binding:
            return head + self.binding
        tail = f"; repair: {self.repair}" if self.repair else ""
        return f"{head}no, {self.reason}{tail}"


def explain(scop: Scop, hardware: HardwareSpec, match: Match | None) -> list[Explanation]:
    """Every statement against every intrinsic, in the order of the files."""
    bound: dict[tuple[str, str], str] = {}
    if match is not None:
        for line, operation in zip(
            str(match).splitlines(), match.selection.operations, strict=True
        ):
            key = (operation.statement, operation.intrinsic.name)
            text = line.split(": ", 1)[1]
            bound[key] = f"{bound[key]}; {text}" if key in bound else text
            if operation.first is not None:
                begins = f"begins the sums of {operation.intrinsic.name}, which adds to them"
                bound[operation.statement, operation.first.name] = begins
    result: list[Explanation] = []
    for statement in scop.statements:
        for intrinsic in hardware.intrinsics:
            binding = bound.get((statement.name, intrinsic.name), "")
            reason, repair = ("", "") if binding else why_not(scop, hardware, statement, intrinsic)
            result.append(Explanation(statement.name, intrinsic.name, binding, reason, repair))
    return result


def why_not(
    scop: Scop, hardware: HardwareSpec, statement: ScopStatement, intrinsic: Intrinsic
) -> tuple[str, str]:
    """The first condition that fails, and the nearest change that would satisfy it."""
    only = written(intrinsic)
    if only is None:
        return "it performs several assignments", "match its assignments one by one"
    if isinstance(only[0].value, Access):
        return _why_no_copy(scop, hardware, statement, intrinsic)
    if statement.op != "=":
        if isinstance(only[0].value, Const):
            neutral = neutral_element(statement.op, scop.dtype[statement.target.tensor])
            if only[0].value.value == neutral:
                return "the sums begin without it", ""
            return (
                f"it sets {only[1]} to {only[0].value}, not the value `{statement.op}` starts from",
                "",
            )
        ops = [op for op, _ in updates(intrinsic)]
        if statement.op not in ops:
            return (
                f"the statement accumulates with `{statement.op}`, it computes `{only[0]}`",
                f"an intrinsic with `{only[0].target} {statement.op} ...`",
            )
        for op, value in updates(intrinsic):
            if op == statement.op:
                return _difference(scop, hardware, value, statement.value, intrinsic)
    if only[0].op != "=":
        return (
            f"it accumulates with `{only[0].op}`, the statement assigns",
            f"write the statement as an accumulation `{only[0].op}`",
        )
    candidates = [node for node in walk(statement.value) if _alike(only[0].value, node)]
    if not candidates:
        return f"no part of the value has the form `{only[0].value}`", ""
    return _difference(scop, hardware, only[0].value, candidates[0], intrinsic)


def _why_no_copy(
    scop: Scop, hardware: HardwareSpec, statement: ScopStatement, intrinsic: Intrinsic
) -> tuple[str, str]:
    only = written(intrinsic)
    assert only is not None
    target = intrinsic.operand(only[1])
    if hardware.memory[target.memory].kind == "offchip":
        return f"the result is not stored unchanged as {target.dtype}", ""
    known = scop.workload.tensor
    inputs = (r.tensor for r in statement.reads if r.tensor in known or r.tensor in scop.view)
    if not any(n in scop.view or known[n].role == "input" for n in inputs):
        return "the statement reads no input", ""
    return f"no operand of the statement is needed in {target.memory}", ""


def _alike(pattern: Expr, value: Expr) -> bool:
    """Whether the outermost operation agrees."""
    match pattern, value:
        case Binary(op, _, _), Binary(other, _, _):
            return op == other
        case Call(function, _), Call(other, _):
            return function == other
        case Cast(dtype, _), Cast(other, _):
            return dtype == other
        case Const(), Const():
            return pattern == value
        case _:
            return False


_ANY = Range(-(1 << 62), 1 << 62)


def _wider(field: Immediate) -> Immediate:
    """An immediate that takes any constant of its kind."""
    if field.is_float:
        return replace(field, dtype="float64", range=None, exact=False)
    return replace(field, range=_ANY)


def _difference(
    scop: Scop, hardware: HardwareSpec, pattern: Expr, value: Expr, intrinsic: Intrinsic
) -> tuple[str, str]:
    """What keeps a value from being computed by a pattern of the same kind."""
    fields = {i.name: i for i in intrinsic.immediates}
    free = {n: _wider(i) for n, i in fields.items()}
    exact = list(unify(pattern, value, fields))
    if exact:
        return _placement(scop, hardware, exact[0], intrinsic)
    loose = list(unify(pattern, value, free))
    if loose:
        return _immediate(dict(loose[0].immediates), fields)
    if fields and any(isinstance(n, Name) for n in walk(pattern)):
        return (
            f"`{value}` has no constant where `{pattern}` takes an immediate",
            "make that operand a constant",
        )
    return f"`{value}` does not have the form `{pattern}`", f"an intrinsic that computes `{value}`"


def _immediate(values: dict[str, int | float], fields: dict[str, Immediate]) -> tuple[str, str]:
    for name, value in values.items():
        field = fields[name]
        if as_immediate(field, value) is not None:
            continue
        if field.exact and as_immediate(replace(field, exact=False), value) is not None:
            return (
                f"constant {value} is no {field.dtype}, which {name} holds",
                f"write a constant that is a {field.dtype}, or pass it as a tensor operand",
            )
        return (
            f"constant {value} is outside the range {field.allowed} of {name}",
            "pass it as a tensor operand, or split it into steps within the range",
        )
    raise AssertionError("some immediate was out of range")


def _placement(
    scop: Scop, hardware: HardwareSpec, found: Unification, intrinsic: Intrinsic
) -> tuple[str, str]:
    """The operand that cannot be brought into the memory where the intrinsic reads it."""
    for name, value in found.operands:
        memory = intrinsic.operand(name).memory
        if not isinstance(value, Access) and not any(
            (w := written(i)) is not None
            and w[0].op == "="
            and i.operand(w[1]).memory == memory
            and _alike(w[0].value, value)
            for i in hardware.intrinsics
        ):
            return (
                f"nothing computes `{value}` into {memory}, where it reads {name}",
                f"an intrinsic that computes `{_form(value)}` into {memory}",
            )
        if isinstance(value, Access):
            dtype = scop.dtype[value.tensor]
            loaders = [
                i.name
                for i in hardware.intrinsics
                if (w := written(i)) is not None
                and isinstance(w[0].value, Access)
                and i.operand(w[1]).memory == memory
            ]
            if not loaders and hardware.memory[memory].kind != "offchip":
                return (
                    f"nothing loads {value.tensor} ({dtype}) into {memory}",
                    f"an intrinsic that copies into {memory}",
                )
            declared = scop.workload.tensor.get(value.tensor)
            if declared is None or declared.role != "input":
                continue
            kept = hardware.memory[memory].dtype
            if kept and dtype != kept and not widens(dtype, kept):
                return (
                    f"{value.tensor} is {dtype}, operand {name} is {kept}",
                    f"declare {value.tensor} as {kept}",
                )
    return "a cheaper intrinsic computes the same value", ""


def nearest_miss(selector: Selector, statement: ScopStatement) -> tuple[str, str]:
    """The smallest part of a statement's value that no intrinsic computes, and why."""
    if statement.op != "=":
        return _accumulation_miss(selector, statement)
    hardware = selector.hardware
    for node in _innermost_first(statement.value):
        if isinstance(node, (Const, Name, Access)):
            continue
        if any(selector.cover(node, m.name, statement) for m in hardware.memories):
            continue
        misses = [
            _miss(selector, statement, i, w[0].value, node, w[1])
            for i in hardware.intrinsics
            if (w := written(i)) is not None and w[0].op == "=" and _alike(w[0].value, node)
        ]
        if not misses:
            wanted = f"an intrinsic with semantics `... = {_form(node)}`"
            return f"no intrinsic computes `{node}`", wanted
        _, reason, repair = min(misses)
        return reason, repair
    tensor = statement.target.tensor
    declared = selector.scop.workload.tensor.get(tensor)
    if declared is not None and declared.role == "intermediate":
        return (
            f"`{statement.value}` is computed into off-chip memory only, but {tensor} is an "
            "intermediate",
            f"make {tensor} the output of a workload of its own",
        )
    stores = [
        f"`{w[0]}`"
        for i in hardware.intrinsics
        if (w := written(i)) is not None
        and hardware.memory[i.operand(w[1]).memory].kind == "offchip"
    ]
    return (
        f"no store writes {tensor} as {selector.scop.dtype[tensor]} from `{statement.value}`; "
        f"the chip stores {', '.join(stores)}",
        "end the statement with what a store computes",
    )


def _accumulation_miss(selector: Selector, statement: ScopStatement) -> tuple[str, str]:
    found = [
        (i, value)
        for i in selector.hardware.intrinsics
        for op, value in updates(i)
        if op == statement.op
    ]
    if not found:
        return (
            f"no intrinsic accumulates with `{statement.op}`",
            f"an intrinsic with semantics `... {statement.op} ...`",
        )
    misses = [_miss(selector, statement, i, v, statement.value, "") for i, v in found]
    _, reason, repair = min(misses)
    return reason, repair


def _miss(
    selector: Selector,
    statement: ScopStatement,
    intrinsic: Intrinsic,
    pattern: Expr,
    value: Expr,
    target: str,
) -> tuple[int, str, str]:
    """How far an intrinsic is from computing a value (0 is nearest), the reason and the repair."""
    fields = {i.name: i for i in intrinsic.immediates}
    exact = list(unify(pattern, value, fields))
    if not exact:
        free = {n: _wider(i) for n, i in fields.items()}
        for loose in unify(pattern, value, free):
            reason, repair = _immediate(dict(loose.immediates), fields)
            return 0, f"{intrinsic.name} comes nearest to `{value}`, but {reason}", repair
        return 3, f"`{value}` does not have the form `{pattern}` of {intrinsic.name}", ""
    misses = [
        _operand_miss(selector, statement, intrinsic, name, part, name == target)
        for found in exact
        for name, part in found.operands
    ]
    if any(m is not None for m in misses):
        return min(m for m in misses if m is not None)
    if not target:  # An accumulation whose operands can all be supplied.
        memory = next(o.memory for o in intrinsic.operands if o.access == "update")
        left = statement.target.tensor
        return (
            1,
            f"{intrinsic.name} computes it, but no way leads on from {memory}, where it leaves "
            f"{left}",
            f"an intrinsic that reads {memory} and stores {left}, or what is computed from it",
        )
    kept, declared = intrinsic.operand(target).dtype, selector.stored_dtype(statement)
    return (
        1,
        f"{intrinsic.name} stores {kept}, but {statement.target.tensor} is {declared}",
        f"declare {statement.target.tensor} as {kept}, or add a store that writes {declared}",
    )


def _operand_miss(
    selector: Selector,
    statement: ScopStatement,
    intrinsic: Intrinsic,
    name: str,
    value: Expr,
    overwritten: bool,
) -> tuple[int, str, str] | None:
    """Why one operand cannot be supplied; None where it can."""
    memory = intrinsic.operand(name).memory
    plan = selector.cover(value, memory, statement)
    if plan is not None:
        if overwritten and not selector.expendable(plan, statement):
            return (
                1,
                f"{intrinsic.name} computes in place and would overwrite `{value}`, "
                "which is needed again",
                f"add an intrinsic that copies {memory} to {memory}",
            )
        operand = intrinsic.operand(name)
        if selector.accepted(operand, value, statement) is None:
            writers = ", ".join(operand.written_by)
            return (
                1,
                f"{intrinsic.name} reads {name} only after {writers}, and none of them leaves "
                f"`{value}` as it is",
                f"write {memory} with {writers} last",
            )
        return None
    if isinstance(value, Const):
        return 2, f"{intrinsic.name} takes no constant {value} for {name}", "pass it as a tensor"
    if isinstance(value, Access) and selector.is_input(value.tensor):
        dtype = selector.scop.dtype[value.tensor]
        kept = selector.hardware.memory[memory].dtype
        if dtype == kept or widens(dtype, kept):
            return (
                1,
                f"{intrinsic.name} comes nearest, but nothing loads {value.tensor} ({dtype}) into "
                f"{memory}, where {name} is",
                f"add an intrinsic that copies into {memory}",
            )
        return (
            1,
            f"{intrinsic.name} comes nearest, but {value.tensor} is {dtype} and {name}, "
            f"in memory {memory}, is {kept}",
            f"declare {value.tensor} as {kept}, or add a load that converts",
        )
    places = [m for m in selector.onchip if selector.cover(value, m, statement)]
    if places:
        return (
            1,
            f"{intrinsic.name} reads {name} from {memory}, but `{value}` is left in "
            f"{', '.join(places)}",
            f"add an intrinsic that copies {places[0]} to {memory}, or split the workload so "
            "that the value goes through off-chip memory",
        )
    return 2, f"{intrinsic.name} needs `{value}` in {memory}, which nothing computes there", ""


def _innermost_first(value: Expr) -> list[Expr]:
    result: list[Expr] = []
    for child in children(value):
        if not isinstance(value, Access):
            result += _innermost_first(child)
    return [*result, value]


def _form(node: Expr) -> str:
    match node:
        case Binary(op, _, _):
            return f"x {op} y"
        case Call(function, arguments):
            return f"{function}({', '.join('xyz'[: len(arguments)])})"
        case Cast(dtype, _):
            return f"{dtype}(x)"
        case _:
            return str(node)
