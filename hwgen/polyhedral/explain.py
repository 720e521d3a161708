"""Why an intrinsic does or does not match: the first failing condition, the nearest repair."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hwgen.polyhedral.matching import Match
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.selection import updates, written
from hwgen.polyhedral.unify import Unification, unify
from hwgen.spec.expression import Access, Binary, Call, Cast, Const, Expr, Name, children, walk
from hwgen.spec.hardware import HardwareSpec, Immediate, Intrinsic, Range


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
    inputs = [
        r.tensor
        for r in statement.reads
        if r.tensor in scop.view or scop.workload.tensor[r.tensor].role == "input"
        if r.tensor in scop.workload.tensor
    ]
    if not inputs:
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


def _difference(
    scop: Scop, hardware: HardwareSpec, pattern: Expr, value: Expr, intrinsic: Intrinsic
) -> tuple[str, str]:
    """What keeps a value from being computed by a pattern of the same kind."""
    fields = {i.name: i for i in intrinsic.immediates}
    free = {n: replace(i, range=_ANY) for n, i in fields.items()}
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
        if not isinstance(value, int) or value not in fields[name].range:
            return (
                f"constant {value} is outside the range {fields[name].range} of {name}",
                "pass it as a tensor operand, or split it into steps within the range",
            )
    raise AssertionError("some immediate was out of range")


def _placement(
    scop: Scop, hardware: HardwareSpec, found: Unification, intrinsic: Intrinsic
) -> tuple[str, str]:
    """The operand that cannot be brought into the memory where the intrinsic reads it."""
    for name, value in found.operands:
        memory = intrinsic.operand(name).memory
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
            if kept and dtype != kept and not _narrower(dtype, kept):
                return (
                    f"{value.tensor} is {dtype}, operand {name} is {kept}",
                    f"declare {value.tensor} as {kept}",
                )
    return "a cheaper intrinsic computes the same value", ""


def _narrower(dtype: str, into: str) -> bool:
    from hwgen.polyhedral.selection import widens

    return widens(dtype, into)


def nearest_miss(scop: Scop, hardware: HardwareSpec, statement: ScopStatement) -> tuple[str, str]:
    """The smallest part of a statement's value that no intrinsic computes."""
    if statement.op != "=":
        reasons = [
            (i, why_not(scop, hardware, statement, i))
            for i in hardware.intrinsics
            if any(op == statement.op for op, _ in updates(i))
        ]
        if not reasons:
            return (
                f"no intrinsic accumulates with `{statement.op}`",
                f"an intrinsic with semantics `... {statement.op} ...`",
            )
        alike = [
            (i, r) for i, r in reasons if any(_alike(v, statement.value) for _, v in updates(i))
        ]
        intrinsic, (reason, repair) = (alike or reasons)[0]
        return f"{intrinsic.name} comes nearest, but {reason}", repair
    for node in _innermost_first(statement.value):
        if isinstance(node, (Const, Name, Access)):
            continue
        computed = [
            i
            for i in hardware.intrinsics
            if (w := written(i)) is not None and w[0].op == "=" and _alike(w[0].value, node)
        ]
        fields = {i.name: {x.name: x for x in i.immediates} for i in computed}
        fitting = [
            i
            for i in computed
            if (w := written(i)) is not None and any(unify(w[0].value, node, fields[i.name]))
        ]
        if not computed:
            return (
                f"no intrinsic computes `{node}`",
                f"an intrinsic with semantics `... = {_form(node)}`",
            )
        if not fitting:
            reason, repair = why_not(scop, hardware, replace_value(statement, node), computed[0])
            return f"{computed[0].name} comes nearest to `{node}`, but {reason}", repair
    declared = scop.workload.tensor.get(statement.target.tensor)
    if declared is not None and declared.role == "output":
        stores = [
            f"`{w[0]}`"
            for i in hardware.intrinsics
            if (w := written(i)) is not None
            and hardware.memory[i.operand(w[1]).memory].kind == "offchip"
        ]
        return (
            f"no store writes {statement.target.tensor} as {declared.dtype} from "
            f"`{statement.value}`; the chip stores {', '.join(stores)}",
            "end the statement with what a store computes",
        )
    return "its operands are not in memories that one intrinsic reads together", (
        "split the workload so that the intermediate goes through off-chip memory"
    )


def replace_value(statement: ScopStatement, value: Expr) -> ScopStatement:
    """The statement with another value."""
    return replace(statement, value=value)


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
