"""Random edits of schedules of chips with units, and what becomes of the schedules that they make.

What an edit makes of a schedule may be more than the chip can run: then the lowering says so. What
is lowered must compute the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from hwgen.codegen.lower.program import lower_tree
from hwgen.errors import HwgenError
from hwgen.passes.kernel import Kernel
from hwgen.polyhedral.normal_form import normalise
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.semantics import updates, written
from hwgen.polyhedral.tree.loop_tree import Block, LoopTree, Site
from hwgen.polyhedral.tree.reductions import beginning
from hwgen.polyhedral.tree.relations import shared
from hwgen.polyhedral.unify import unify
from hwgen.spec.expression import Access, Expr
from hwgen.spec.hardware import HardwareSpec, Intrinsic, Operand
from hwgen.spec.memory import Memory
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import Engine, examine
from tests.fuzz.nest_calls import Call, CallDraws, Calls
from tests.fuzz.schedules import Case, FindingError, replayed
from tests.fuzz.tallies import crash_text

PHYSICAL = ("H502", "H512", "H516", "H611", "H612", "H613", "H614", "H615", "H616", "H618")
"""What the chip cannot run, however it is written."""

LACKING = ("H421", "H422", "H423", "H424", "H503")
"""What the lowering says it cannot do."""

MOST_CALLS = 4
"""Intrinsics that share the work of one stage."""

OFTEN = (
    ("split", 4), ("reorder", 4), ("fuse", 1), ("tile", 1), ("compute_at", 6), ("gather", 10),
    ("compute_root", 1), ("decompose_reduction", 3), ("double_buffer", 3), ("shift", 4),
    ("pipeline", 8), ("alias", 6), ("storage_align", 2), ("set_address", 2), ("rfactor", 1),
    ("compute_inline", 1), ("transform_layout", 1), ("create_group", 1),
)  # fmt: skip
WEIGHTED = tuple(name for name, count in OFTEN for _ in range(count))


@dataclass(slots=True)
class TreeDraws(CallDraws):
    """Draws the calls of one schedule: edits of loops and buffers, intrinsics."""

    def calls(self) -> Calls:
        """One edit, or several that only make sense together."""
        made: Callable[[], Calls] = getattr(self, f"_{self.draws(WEIGHTED)}")
        yield from made()

    def begun_apart(self) -> Calls:
        """Reductions that begin apart."""
        state = self.schedule.state
        for site in state.sites:
            if state.stage[site.block.stage].reduces and site.block.part == "whole":
                for before in (*((n,) for n in self.draws.shuffled(site.names)), ()):
                    if self.schedule.state.site[site.block.name].block.part == "whole":
                        yield Call("decompose_reduction", (site.block.stage, *before))

    def called(self) -> Calls:
        """Calls of every block that has none."""
        for site in self.schedule.state.sites:
            if site.block.tensorized is None:
                found = sorted(set(covers(self.schedule.state, site.block, self.schedule.hardware)))
                if found:
                    yield Call("tensorize", (site.block.name, *self.draws(found)))

    def pipelined(self) -> Calls:
        """Blocks that run later over the ends of loops, further in, or in turn."""
        for _ in range(self.draws((0, 1, 2, 3))):
            yield from self.draws((self._sunk, self._banded, self._banded, self._interleave))()

    # Names

    def memory(self) -> str:
        chip = self.schedule.hardware
        return self.draws([m.name for m in chip.of_kind("scratchpad")])

    def _held(self) -> list[str]:
        """Tensors in buffers of ours."""
        return [s.tensor for s in self.schedule.state.storages if s.memory]

    # Edits that come together

    def _gather(self) -> Calls:
        """Stages from a reader backwards, computed inside one of its loops."""
        state = self.schedule.state
        reader = self.draws([s.tensor for s in state.stages])
        chain = self.chain(reader)
        if not chain:
            return
        loop = self.draws(chain[: 1 + len(chain) // 2])
        if self.extent(loop) > 1 and not self.draws.chance(3):
            before = set(self.chain(reader))
            yield Call("split", (loop,), (("factor", self.factor(loop)),))
            made = [n for n in self.chain(reader) if n not in before]
            loop = made[0] if made else loop
            if self.draws.chance(2):
                yield Call("reorder", (loop, *(n for n in self.chain(reader) if n != loop)))
        wanted = {reader}
        for stage in reversed(self.schedule.state.stages):
            readers = {s.tensor for s in self.schedule.state.readers(stage.tensor)}
            if readers & wanted and not self.draws.chance(5):
                yield Call("compute_at", (stage.tensor, loop))
                wanted.add(stage.tensor)

    def _pipeline(self) -> Calls:
        """The stages inside a loop, each as late as those before it or later, with the slots."""
        state = self.schedule.state
        fits = [n for n in state.loop if len({s.block.stage for s in self._inside(n)}) > 1]
        if not fits:
            return
        loop = self.draws(fits)
        stages = list(dict.fromkeys(s.block.stage for s in self._inside(loop)))
        later: list[int] = []
        for _ in stages:
            later.append((later[-1] if later else 0) + self.draws((0, 0, 1)))
        for stage in stages:
            if state.storage[stage].memory:
                yield Call("double_buffer", (stage, self.draws((later[-1] + 1, 2, 1))))
        for stage, iterations in reversed(list(zip(stages, later, strict=True))):
            if iterations:
                yield Call("shift", (stage, loop, min(iterations, 2)))

    def _banded(self) -> Calls:
        """The stages inside some loops, each as late as those before it or later, with the slots;
        counted from any of them."""
        state = self.schedule.state
        site = self.draws(state.sites)
        common = max((shared(site, s) for s in state.sites if s is not site), default=0)
        if common < 2:
            return
        first = self.draws(range(common - 1))
        band = site.names[first : self.draws(range(first + 2, common + 1))]
        stages = list(dict.fromkeys(s.block.stage for s in self._inside(band[-1])))
        later: list[int] = []
        for _ in stages:
            later.append((later[-1] if later else 0) + self.draws((0, 1, 0, 2)))
        for stage in stages:
            if state.storage[stage].memory:
                yield Call("double_buffer", (stage, self.draws((later[-1] + 1, 2, 3))))
        now = self.draws([0, *later])
        order = list(zip(stages, later, strict=True))
        for stage, iterations in [p for p in order if p[1] < now] + order[::-1]:
            if iterations != now:
                yield Call("shift", (stage, band, iterations - now))

    def _sunk(self) -> Calls:
        """A block's nest inside a loop beside it."""
        site, other = self.draws(self.schedule.state.sites), self.draws(self.schedule.state.sites)
        beside = other.names[shared(site, other) :]
        if site is not other and beside:
            at = self.draws(("last", "last", "first"))
            yield Call("sink", (site.block.name, self.draws(beside), at))

    def _inside(self, loop: str) -> list[Site]:
        return [s for s in self.schedule.state.sites if loop in s.names]

    # One edit

    def _rfactor(self) -> Calls:
        before = set(self.schedule.state.stage)
        yield from CallDraws._rfactor(self)
        for stage in self.schedule.state.stages:
            if stage.tensor not in before:
                yield Call("set_scope", (stage.tensor, self.memory()))

    def _compute_inline(self) -> Calls:
        state = self.schedule.state
        found = [s.tensor for s in state.stages if s.kind == "compute" and not s.reduces]
        if found:
            yield Call("compute_inline", (self.draws(found),))

    def _set_address(self) -> Calls:
        held = self._held()
        if held:
            yield Call("set_address", (self.draws(held), self.draws((0, 4, 256, 4096, 262140))))


# What computes a block


def covers(state: LoopTree, block: Block, hardware: HardwareSpec) -> Iterator[tuple[str, ...]]:
    """Intrinsics that compute a block together, in all ways."""
    stage = state.stage[block.stage]
    dtypes = {t.name: t.dtype for t in state.tensors}
    if block.part == "init":
        value, op = beginning(stage, dtypes[stage.tensor]), "="
    else:
        value, op = normalise(stage.value, dtypes), stage.op
    yield from _Covers(state, hardware, dtypes).found(value, op, stage.tensor, MOST_CALLS)


@dataclass(frozen=True, slots=True)
class _Covers:
    state: LoopTree
    hardware: HardwareSpec
    dtypes: dict[str, str]

    def found(self, value: Expr, op: str, target: str, most: int) -> Iterator[tuple[str, ...]]:
        """Every way to put a value somewhere ("": wherever the next call takes it up)."""
        for intrinsic in self.hardware.intrinsics:
            fields = {i.name: i for i in intrinsic.immediates}
            for pattern, result in _patterns(intrinsic, op):
                copies = isinstance(pattern, Access) and not isinstance(value, Access)
                if not self._holds(result, target) or (copies and not self._offchip(result)):
                    continue
                for way in unify(pattern, value, fields, self.dtypes):
                    inside = [v for _, v in way.operands if not isinstance(v, Access)]
                    fits = all(
                        self._holds(intrinsic.operand(o), v.tensor)
                        for o, v in way.operands
                        if isinstance(v, Access)
                    )
                    if fits and not inside:
                        yield (intrinsic.name,)
                    elif fits and len(inside) == 1 and most > 1:
                        for first in self.found(inside[0], "=", "", most - 1):
                            yield (*first, intrinsic.name)

    def _offchip(self, operand: Operand) -> bool:
        return self.hardware.is_offchip(operand.memory)

    def _holds(self, operand: Operand, tensor: str) -> bool:
        if not tensor:
            return not self._offchip(operand)
        memory = self.state.storage[tensor].memory if tensor in self.state.storage else ""
        return operand.memory == memory if memory else self._offchip(operand)


def _patterns(intrinsic: Intrinsic, op: str) -> Iterator[tuple[Expr, Operand]]:
    """The values that an intrinsic puts, or adds, somewhere."""
    only = written(intrinsic)
    if only is None:
        return
    result = intrinsic.operand(only[1])
    if op == "=" and only[0].op == "=":
        yield only[0].value, result
    elif op != "=":
        for other, value in updates(intrinsic):
            if other == op:
                yield value, result


# One schedule


def outcome(case: Case, hardware: HardwareSpec, engine: Engine = "python") -> str:
    """The code with which a case is refused in the lowering; empty where it is right, with as much
    room as there is and, where it still fits, with less.

    Raises:
        FindingError: what is neither.
    """
    return judged(replayed(case, hardware)[0], case.seed, engine)


def judged(schedule: Schedule, seed: int, engine: Engine = "python") -> str:
    """The same of a schedule; `seed`: of the data and of the room.

    Raises:
        FindingError: as `outcome`.
    """
    found, code = _compiled(schedule, schedule.hardware)
    if found is None:
        return code
    _check(found, seed, engine)
    less, _ = _compiled(schedule, _with_less_room(found, seed))
    if less is not None:
        _check(less, seed, "python")
    return ""


def _compiled(schedule: Schedule, hardware: HardwareSpec) -> tuple[Kernel | None, str]:
    """A schedule on a chip like its own, or the code with which that is refused.

    Raises:
        FindingError: any other code, or a crash.
    """
    workload = schedule.workload
    try:
        lowered = lower_tree(workload, hardware, schedule.resolved, schedule.homes)
    except HwgenError as error:
        if error.code in (*PHYSICAL, *LACKING):
            return None, error.code
        raise FindingError("refused", crash_text(error)) from error
    except Exception as error:
        raise FindingError("lowering", crash_text(error)) from error
    return Kernel(workload, hardware, schedule, lowered), ""


def _with_less_room(compilation: Kernel, seed: int) -> HardwareSpec:
    """The chip with memories in which not all buffers have room of their own."""
    random = Random(seed)

    def smaller(memory: Memory) -> Memory:
        sizes = [b.entries for b in compilation.program.buffers if b.memory == memory.name]
        if not sizes or memory.banks is not None:
            return memory
        return replace(memory, capacity_entries=random.randint(max(sizes), sum(sizes)))

    hardware = compilation.hardware
    return replace(hardware, memories=tuple(map(smaller, hardware.memories)))


def _check(compilation: Kernel, seed: int, engine: Engine) -> None:
    """Raises:
    FindingError: what is wrong with a program.
    """
    try:
        examine(compilation, draw_inputs(compilation.workload, seed), engine)
    except HwgenError as error:
        raise FindingError("wrong", " ".join(str(error).split())) from error
    except Exception as error:
        raise FindingError("checking", crash_text(error)) from error
    _check_addresses(compilation)


def _check_addresses(compilation: Kernel) -> None:
    """What was put at an address is there.

    Raises:
        FindingError: where it is not.
    """
    state, hardware = compilation.schedule.resolved, compilation.hardware
    for buffer in compilation.program.buffers:
        address = state.storage[buffer.name].address if buffer.name in state.storage else None
        found = buffer.base * hardware.memory[buffer.memory].entry_bytes
        if address not in (None, found):
            raise FindingError("address", f"{buffer.name} is at byte {found} and not at {address}")


def failure(case: Case, hardware: HardwareSpec) -> str:
    """What is wrong with a case, kind first; empty where it is refused or right."""
    try:
        outcome(case, hardware)
    except HwgenError:
        return ""  # Without some statements it may be no workload.
    except FindingError as finding:
        return str(finding)
    return ""
