"""A processor beside units: what no intrinsics compute runs there, between what they do.

Statements are taken phase by phase. Of a phase that units cannot run, as many of its first
statements as they can run stay with them, and the next one is the processor's. Phases without a
sum that only bring the processor's results to units and back are the processor's where it is
modelled to be faster. Sums of a type that no call stores leave the chip in planes of a narrower
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from hwgen.autoschedule.search import autoschedule
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError, Tolerating
from hwgen.passes.account import Account
from hwgen.passes.covering import started
from hwgen.passes.kernel import REFUSALS, Kernel
from hwgen.passes.parts import CompileUnits
from hwgen.passes.phase import least_cycles
from hwgen.passes.replaying import replayed
from hwgen.passes.start import Start
from hwgen.passes.trees import compile_padded
from hwgen.polyhedral import isl
from hwgen.polyhedral.caches import through_caches
from hwgen.polyhedral.constant_part import constant_statements
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.phases import Phase, phase_of, split_phases
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.scop import build_scop, view_statements
from hwgen.polyhedral.tree.cost import estimate_nest
from hwgen.polyhedral.tree.planes import planes_for, written_whole
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Statement, Workload


@dataclass(frozen=True, slots=True)
class _Group:
    """Statements that follow each other, and their kernel; None where the processor runs them."""

    statements: tuple[Statement, ...]
    made: Kernel | None


def compile_beside(start: Start, units: CompileUnits) -> Kernel | None:
    """A kernel of which the processor runs a part, or all; None where it cannot run the rest.

    It does not run statements that write part of a tensor again, or take more than its memory.
    """
    hosting = _Hosting(start, units)
    groups: list[_Group] = []
    with isl.bounded():
        while True:
            with Tolerating(REFUSALS):
                groups = groups or hosting.groups()
                return hosting.compiled(groups)
            if all(g.made is None for g in groups):  # None, where units refuse to be asked.
                return None
            groups = hosting.fewer(groups)


@dataclass
class _Hosting:
    """`start`: with the sums that leave the chip in planes."""

    start: Start
    units: CompileUnits

    @property
    def hardware(self) -> HardwareSpec:
        return self.start.hardware

    @property
    def workload(self) -> Workload:
        return self.start.workload

    def groups(self) -> list[_Group]:
        """Statements by who runs them."""
        once = constant_statements(self.workload)
        apart = (*view_statements(self.workload), *once)
        pending = [
            [s for s in p.workload.statements if s not in apart]
            for p in split_phases(self.workload)
        ]
        pending = [p for p in pending if p]
        found = [_Group(once, None)] if once else []
        while pending:
            mine = pending.pop(0)
            first, made = self._first(found, mine, pending)
            rest = mine[len(first) :]
            if made is None:
                first, rest, made = self._in_planes(found, mine, pending) or (first, rest, None)
            found.append(_Group(tuple(first), made))
            pending = [rest, *pending] if rest else pending
        return self._merged(self._cheaper(found))

    def _first(
        self,
        done: Sequence[_Group],
        mine: Sequence[Statement],
        later: Sequence[Sequence[Statement]],
    ) -> tuple[Sequence[Statement], Kernel | None]:
        """The longest beginning of a phase that units run, and its kernel; else one statement."""
        before = [list(g.statements) for g in done]
        count = len(mine)
        while count:
            rest = [list(mine[count:])] if count < len(mine) else []
            groups = [*before, list(mine[:count]), *rest, *map(list, later)]
            phase = phase_of(self.workload, groups, len(before))
            if self._slower(phase.workload):
                break
            made = self._made(phase)
            if isinstance(made, Kernel):
                return mine[:count], made
            count = _fewer(mine, count, made)
        count = 1
        while count < len(mine) and mine[count].begins(mine[count - 1]):
            count += 1
        return mine[:count], None

    def _in_planes(
        self,
        done: Sequence[_Group],
        mine: Sequence[Statement],
        later: Sequence[Sequence[Statement]],
    ) -> tuple[Sequence[Statement], list[Statement], Kernel] | None:
        """The longest beginning of a phase that units run where its results leave the chip in
        planes, the rest of the phase, and the kernel."""
        before = [list(g.statements) for g in done]
        count = len(mine)
        while count:
            rest = [list(mine[count:])] if count < len(mine) else []
            groups = [*before, list(mine[:count]), *rest, *map(list, later)]
            outputs = phase_of(self.workload, groups, len(before)).workload.outputs
            types = {t.name: planes_for(self.hardware, t.dtype) for t in outputs}
            made_of = self.start.state.stage
            whole = (t for t in types if written_whole(self.workload, t) and not made_of[t].over)
            parted = {t: types[t] for t in whole if types[t]}
            if not parted or not any(s.accumulates for s in mine[:count]):
                count -= 1
                continue
            start = self.start
            for tensor, dtype in parted.items():
                start = start.edited(partial(Schedule.planes, tensor=tensor, dtype=dtype))
            others = [s for g in (*before, *rest, *later) for s in g]
            others += view_statements(self.workload)
            inside = [s for s in start.workload.statements if s not in others]
            first = [s for s in inside if s.target.tensor not in parted]
            left = [*(s for s in inside if s.target.tensor in parted), *mine[count:]]
            phase = phase_of(start.workload, [*before, first, left, *map(list, later)], len(before))
            made = self._made(phase)
            if isinstance(made, Kernel):
                self.start = start
                return first, left, made
            count = _fewer(mine, count, made)
        return None

    def _made(self, phase: Phase) -> Kernel | HwgenError:
        """What units make of a phase, or why they cannot."""
        with Tolerating(REFUSALS) as refused:
            return self.units(phase.workload)
        return refused.error

    def _cheaper(self, groups: Sequence[_Group]) -> list[_Group]:
        """The same, the processor running what costs more to bring to units and back."""
        result = list(groups)
        for number, group in enumerate(groups):
            if group.made is None:
                continue
            beside = [n for n in (number - 1, number + 1) if 0 <= n < len(groups)]
            coded = [n for n in beside if result[n].made is None]
            phase = phase_of(self.workload, [list(g.statements) for g in groups], number)
            spared = self.handover if len(coded) == 2 else 0
            if coded and self._cycles(phase.workload) < group.made.cycles + spared:
                result[number] = replace(group, made=None)
        return result

    def _slower(self, workload: Workload) -> bool:
        """Whether units of the processor's own take longer for a phase than its code does, however
        they are used: then nobody needs to look for how."""
        if not self.own_core or not any(s.accumulates for s in workload.statements):
            return False
        least = None
        with Tolerating(REFUSALS):
            scop = build_scop(started(Start(workload, self.hardware)).workload)
            least = least_cycles(scop, self.hardware, select(scop, self.hardware))
        return least is not None and self._cycles(workload) < least

    @property
    def handover(self) -> int:
        return self.hardware.machine.handover_cycles

    @property
    def own_core(self) -> bool:
        """Whether the units are the processor's own, so that its code is as fast as their calls."""
        return through_caches(self.hardware)

    def _cycles(self, workload: Workload) -> int:
        """What a workload takes on the processor."""
        return processor_cycles(Schedule(workload, self.hardware))

    def fewer(self, groups: Sequence[_Group]) -> list[_Group]:
        """The same, the processor running what costs it least of what units run."""
        parts = [list(g.statements) for g in groups]
        costs = {
            n: self._cycles(phase_of(self.workload, parts, n).workload)
            for n, g in enumerate(groups)
            if g.made is not None
        }
        least = min(costs, key=lambda n: (costs[n], n))
        return [replace(g, made=None) if n == least else g for n, g in enumerate(groups)]

    def _merged(self, groups: Sequence[_Group]) -> list[_Group]:
        """Neighbours of units as one kernel, where they are: tensors stay on the chip."""
        result: list[_Group] = []
        begin = 0
        for end in range(1, len(groups) + 1):
            if end < len(groups) and groups[begin].made and groups[end].made:
                continue
            whole = self._joined(groups, begin, end) if end - begin > 2 else None
            result += [whole] if whole else self._by_pairs(groups, begin, end)
            begin = end
        return result

    def _by_pairs(self, groups: Sequence[_Group], begin: int, end: int) -> list[_Group]:
        """Each with what precedes it, where they are one kernel."""
        found = [groups[begin]]
        for number in range(begin + 1, end):
            both = self._joined(groups, begin, number + 1)
            if both is not None:
                found[-1] = both
            else:
                found.append(groups[number])
                begin = number
        return found

    def _joined(self, groups: Sequence[_Group], begin: int, end: int) -> _Group | None:
        """Groups that follow each other as one; None where units cannot run that."""
        statements = tuple(s for g in groups[begin:end] for s in g.statements)
        before, after = (
            [list(g.statements) for g in part] for part in (groups[:begin], groups[end:])
        )
        made = self._made(phase_of(self.workload, [*before, [*statements], *after], begin))
        return _Group(statements, made) if isinstance(made, Kernel) else None

    def compiled(self, groups: Sequence[_Group]) -> Kernel:
        """One kernel of all groups."""
        kernels = [g.made for g in groups if g.made is not None]
        made = self._with_nests(replayed(self.start, [k.schedule for k in kernels]))
        if not kernels:
            return made
        parts = tuple(p for k in kernels for p in k.parts)
        spills = [s for k in kernels for s in k.account.spills]
        return made.with_account(Account.of_phases(self.start, made.cycles, parts, spills))

    def _with_nests(self, schedule: Schedule) -> Kernel:
        """A schedule compiled; what the processor runs is scheduled where that is faster."""
        plain = compile_padded(schedule)
        nests = schedule.copy()
        made = plain
        with Tolerating(REFUSALS):
            autoschedule(nests)
            made = compile_padded(nests)
        if _of_units(plain.program) == _of_units(made.program):  # Code and units take turns.
            return min(plain, made, key=lambda k: sum(code.cycles for code in k.program.codes))
        return min(plain, made, key=lambda k: k.timing.cycles)


def processor_cycles(schedule: Schedule) -> int:
    """Cycles of a schedule that the processor runs alone, completed as code of it is."""
    completed = schedule.copy()
    autoschedule(completed)
    return estimate_nest(completed.resolved, completed.homes, completed.hardware).cycles


def _of_units(program: Program) -> list[Program]:
    """What units run of a program."""
    return [part for part in program.parts if isinstance(part, Program)]


def _fewer(mine: Sequence[Statement], count: int, refused: HwgenError) -> int:
    """How many first statements to try next: what nothing computes, nothing does while others
    follow it; at the end its result may leave the chip. None goes on in order from the last."""
    names = [s.name for s in mine[:count]]
    about = refused.statement
    fewer = count - 1 if about not in names[:-1] else names.index(about) + 1
    while fewer and mine[fewer].begins(mine[fewer - 1]):
        fewer -= 1
    return fewer
