"""Every statement against every intrinsic: how it is bound, or what it differs in."""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.errors import HwgenError
from hwgen.polyhedral.match.matching import Match
from hwgen.polyhedral.match.nearest import Diagnosis
from hwgen.polyhedral.match.operations import NOTHING_SHARED, Apply, Plan, Sharing
from hwgen.polyhedral.match.select import advance, outcome
from hwgen.polyhedral.match.selection import Selector
from hwgen.polyhedral.scop import Scop, ScopStatement
from hwgen.polyhedral.semantics import neutral_element, widens, written
from hwgen.spec.expression import Access, Const, Expr, walk
from hwgen.spec.hardware import HardwareSpec, Intrinsic
from hwgen.spec.typecheck import is_float


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


def explain(
    scop: Scop,
    hardware: HardwareSpec,
    match: Match | None,
    sharing: Sharing = NOTHING_SHARED,
    problem: HwgenError | None = None,
) -> list[Explanation]:
    """Every statement against every intrinsic, in the order of the files. `problem`: why there is
    no match, if that is known."""
    bound = _bindings(match)
    failed = "" if match is not None else _failed(scop, hardware, sharing)
    selector = _Supposing(scop, hardware, sharing)
    result: list[Explanation] = []
    for statement in scop.statements:
        taken = [
            i.name
            for i in hardware.intrinsics
            if (statement.name, i.name) in bound and _computes(i)
        ]
        if match is not None:
            instead = f"the kernel takes {' and '.join(taken)} instead, at no more cost"
            if not taken:
                instead = "the kernel needs no call for it"
        elif failed:
            instead = f"but no intrinsics compute {failed}"
        else:
            instead = f"but {_refusal(problem)}"
        open_to = failed if match is None else None
        table = _Table(selector, statement, instead, open_to)
        for intrinsic in hardware.intrinsics:
            binding = bound.get((statement.name, intrinsic.name), "")
            reason, repair = ("", "") if binding else table.why_not(intrinsic)
            result.append(Explanation(statement.name, intrinsic.name, binding, reason, repair))
        selector.follow(statement, taken)
    return result


def _refusal(problem: HwgenError | None) -> str:
    """Why statements that intrinsics compute are no kernel, in an error's own words."""
    if problem is None:
        return "the statements do not become one kernel"
    found = problem.diagnostic.found
    # The message of H302 names the statement, its `found` is the reason.
    return found if problem.code == "H302" and found else problem.diagnostic.message


def _bindings(match: Match | None) -> dict[tuple[str, str], str]:
    """How intrinsics serve statements, by their names."""
    bound: dict[tuple[str, str], str] = {}
    if match is None:
        return bound
    for line, operation in zip(str(match).splitlines(), match.selection.operations, strict=True):
        key = (operation.statement, operation.intrinsic.name)
        text = line.split(": ", 1)[1]
        bound[key] = f"{bound[key]}; {text}" if key in bound else text
        if operation.first is not None:
            begins = f"begins the sums of {operation.intrinsic.name}, which adds to them"
            bound[operation.statement, operation.first.name] = begins
    return bound


def _computes(intrinsic: Intrinsic) -> bool:
    """Whether an intrinsic does more than copy or set."""
    only = written(intrinsic)
    return only is None or only[0].op != "=" or not isinstance(only[0].value, (Access, Const))


def _beyond_matching(intrinsic: Intrinsic) -> tuple[str, str]:
    """Why the compiler uses an intrinsic in no kernel, and what it would use in its place."""
    apart = next((o.name for o in intrinsic.operands if not o.plain), "")
    if apart:
        return f"it reads {apart} at several indices", f"declare an operand for each of {apart}"
    if len({s.target.tensor for s in intrinsic.semantics}) > 1:
        return "it writes several operands", "declare an intrinsic for each that it writes"
    return "it performs several assignments", "match its assignments one by one"


def _failed(scop: Scop, hardware: HardwareSpec, sharing: Sharing) -> str:
    """The statement that nothing computes."""
    found = outcome(scop, hardware, sharing, trial=True)
    if found.error is None or found.error.code != "H301":
        return ""
    return scop.statements[found.reached].name


class _Supposing(Selector):
    """A selection that goes on behind a statement which nothing computes, as if something left
    its result in whatever memory it is read from."""

    def __init__(self, scop: Scop, hardware: HardwareSpec, sharing: Sharing) -> None:
        super().__init__(scop, hardware, sharing)
        self.supposed: set[str] = set()

    def follow(self, statement: ScopStatement, taken: list[str]) -> None:
        """Cover a statement, with the intrinsics of the match where they accumulate; its result is
        supposed too where it follows from what is."""
        if any(r.tensor in self.supposed for r in statement.reads):
            self.supposed.add(statement.target.tensor)
            return
        try:
            plans = list(self.update(statement))
            known = (n for n, p in enumerate(plans) if p.intrinsic.name in taken)
            advance(self, statement, next(known, 0), trial=True)
        except HwgenError:
            self.supposed.add(statement.target.tensor)

    def cover(self, value: Expr, memory: str, statement: ScopStatement) -> Plan | None:
        if isinstance(value, Access) and value.tensor in self.supposed:
            if is_float(self.scop.dtype[value.tensor]) != is_float(
                self.hardware.memory[memory].dtype or self.scop.dtype[value.tensor]
            ):
                return None
            return self._supposed(memory)
        return super().cover(value, memory, statement)

    def _supposed(self, memory: str) -> Plan | None:
        """A result that an operation leaves in a memory, one that may be followed by any."""
        if self.hardware.is_offchip(memory):
            return None
        accepted = {
            n
            for i in self.hardware.intrinsics
            for o in i.operands
            if o.memory == memory
            for n in o.written_by
        }
        writers = [
            i
            for i in self.hardware.intrinsics
            if any(o.memory == memory and o.access != "read" for o in i.operands)
        ]
        writers.sort(key=lambda i: i.name not in accepted)
        return Apply(writers[0], (), (), 0.0) if writers else None


class _Table:
    """The intrinsics that a kernel does not take for one statement. `instead`: what it does, or
    why there is none; `failed`: the statement that nothing computes ("" where another reason
    prevents the kernel, None where there is one)."""

    def __init__(
        self, selector: Selector, statement: ScopStatement, instead: str, failed: str | None
    ) -> None:
        self.selector = selector
        self.hardware = selector.hardware
        self.scop = selector.scop
        self.statement = statement
        self.instead = instead
        self.matched = failed is None
        self.failed = statement.name == failed
        self.diagnosis = Diagnosis(selector)
        self.copies = set[str]() if self.matched else self._copies()

    def why_not(self, intrinsic: Intrinsic) -> tuple[str, str]:
        """The nearest reason why an intrinsic does not serve, and the nearest repair."""
        statement, only = self.statement, written(intrinsic)
        if only is None:
            return _beyond_matching(intrinsic)
        if isinstance(only[0].value, Access) and only[0].op == "=":
            return self._no_copy(intrinsic)
        if statement.accumulates and isinstance(only[0].value, Const):
            return self._no_beginning(intrinsic)
        found = self.diagnosis.application(statement, intrinsic)
        if found is not None:
            if found.miss is None:
                verb = "accumulates" if found.sums else "computes"
                return self._fits(f"{verb} `{found.value}`"), ""
            return found.miss.reason, found.miss.repair
        if statement.accumulates:
            return (
                f"the statement accumulates with `{statement.op}`, it computes `{only[0]}`",
                f"an intrinsic with `{only[0].target} {statement.op} ...`",
            )
        if only[0].op != "=":
            return f"it accumulates with `{only[0].op}`, the statement assigns", ""
        return f"no part of the value has the form `{only[0].value}`", ""

    def _fits(self, what: str) -> str:
        return f"it {what}{' too' if self.matched else ''}, {self.instead}"

    def _no_beginning(self, intrinsic: Intrinsic) -> tuple[str, str]:
        statement, only = self.statement, written(intrinsic)
        assert only is not None
        value, dtype = only[0].value, self.scop.dtype[statement.target.tensor]
        assert isinstance(value, Const)
        kept = intrinsic.operand(only[1]).dtype
        if is_float(kept) != is_float(dtype):
            return f"{statement.target.tensor} is {dtype}, it sets {kept}", ""
        if value.value != neutral_element(statement.op, dtype):
            return f"it sets {only[1]} to {value}, not the value `{statement.op}` starts from", ""
        if self.matched:
            return "the sums begin without it", ""
        return self._fits("can begin the sums"), ""

    def _no_copy(self, intrinsic: Intrinsic) -> tuple[str, str]:
        only, statement = written(intrinsic), self.statement
        assert only is not None
        assert isinstance(only[0].value, Access)
        target = intrinsic.operand(only[1])
        source = intrinsic.operand(only[0].value.tensor)
        if self.hardware.is_offchip(target.memory):
            return self._no_store(target.dtype)
        if not self.hardware.is_offchip(source.memory):
            return f"no operand of the statement is needed in {target.memory}", ""
        inputs = dict.fromkeys(
            node.tensor
            for node in walk(statement.value)
            if isinstance(node, Access) and self.selector.is_input(node.tensor)
        )
        if not inputs:
            return "the statement reads no input", ""
        if intrinsic.name in self.copies:
            return self._fits(f"brings operands to {target.memory}"), ""
        loaded = [
            n
            for n in inputs
            if self.selector.loader(target.memory, self.scop.dtype[n], n) is intrinsic
        ]
        if self.failed and loaded:
            return self._fits(f"can bring {' and '.join(loaded)} to {target.memory}"), ""
        others = [
            n
            for n in inputs
            if not widens(self.scop.dtype[n], source.dtype)
            or is_float(self.scop.dtype[n]) != is_float(source.dtype)
        ]
        if len(others) == len(inputs):
            types = {self.scop.dtype[n] for n in others}
            is_are = "is" if len(others) == 1 else "are"
            told = f"{' and '.join(others)} {is_are} {' and '.join(sorted(types))}"
            return f"{told}, it copies {source.dtype}", ""
        return f"no operand of the statement is needed in {target.memory}", ""

    def _no_store(self, dtype: str) -> tuple[str, str]:
        statement = self.statement
        declared = self.scop.workload.tensor.get(statement.target.tensor)
        if declared is None or declared.role != "output":
            return "the result is not stored", ""
        if declared.dtype != dtype:
            return f"{declared.name} is {declared.dtype}, it stores {dtype}", ""
        return f"the result is not stored unchanged as {dtype}", ""

    def _copies(self) -> set[str]:
        """Copies from off-chip memory that bring operands to the intrinsics which would do."""
        statement, found = self.statement, set[str]()

        def collect(plan: Plan) -> None:
            if isinstance(plan, Apply):
                for _, part in plan.operands:
                    collect(part)
            elif plan.copy is not None:
                found.add(plan.copy.name)

        if statement.accumulates:
            for plan in self.selector.update(statement):
                collect(plan)
            return found
        for memory in self.hardware.memories:
            for value in self.diagnosis.parts(statement):
                plan = self.selector.cover(value, memory.name, statement)
                if isinstance(plan, Apply) and plan.moved is None:
                    collect(plan)
        return found
