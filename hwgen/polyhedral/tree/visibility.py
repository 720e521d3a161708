"""Which memory a tensor lives in, and whether all who touch it there see it.

A buffer in a memory that a block or the kernel shares has its home outside of the loops that run
on finer workers; one in a thread's own memory has it inside all of them.
"""

from __future__ import annotations

from dataclasses import replace

from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.aliases import shared_homes
from hwgen.polyhedral.tree.legality import check
from hwgen.polyhedral.tree.limits import check_limits
from hwgen.polyhedral.tree.loop_tree import Homes, Loop, LoopTree
from hwgen.polyhedral.tree.places import check_places
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import Level, Memory
from hwgen.spec.processor import Processor

_LEVELS: tuple[Level, ...] = ("kernel", "block", "thread")
_RANK = {level: rank for rank, level in enumerate(_LEVELS)}


def resolve(state: LoopTree, hardware: HardwareSpec) -> tuple[LoopTree, Homes]:
    """The state with a memory for every intermediate, and where each tensor is at home.

    Raises:
        HwgenError: H411, H412 as `check`; H413 a vectorized loop that holds others, a bank or an
            address that a memory does not have; H417 a memory that not all who touch a tensor see;
            H617 a number that C cannot hold.
    """
    check_limits(state)
    machine = hardware.processor
    if machine is None:
        check_places(state, hardware)
        return state, _homes(state)
    _check_lanes(state, machine)
    limits: dict[str, int] = {}
    for tensor in state.stage:
        memory = hardware.memory.get(state.storage[tensor].memory)
        if memory is not None and memory.kind == "workspace":
            limits[tensor] = _limit(state, machine, memory, tensor)
    homes = check(state, limits)
    chosen: list[str] = []
    rewritten = {s.over for s in state.stages if s.over}
    for tensor in state.stage:
        storage = state.storage[tensor]
        own = state.tensor[tensor].role == "intermediate" and tensor not in rewritten
        if own and not storage.memory:
            name = _natural(state, hardware, tensor, homes[tensor])
            state = state.with_storage(replace(storage, memory=name))
            limits[tensor] = _limit(state, machine, hardware.memory[name], tensor)
            if limits[tensor] < len(homes[tensor]):
                chosen.append(tensor)
    for tensor in rewritten:
        memory = state.place(tensor).memory
        state = state.with_storage(replace(state.storage[tensor], memory=memory))
    homes = shared_homes(state, check(state, limits) if chosen else homes, rewritten)
    for tensor in state.stage:
        memory = hardware.memory.get(state.storage[tensor].memory)
        if memory is not None and memory.shared_by != "kernel":
            _check_seen(state, machine, memory, tensor, homes[tensor])
    check_places(state, hardware)
    return state, homes


def _homes(state: LoopTree) -> Homes:
    """Where tensors of a chip with units are at home."""
    return shared_homes(state, check(state), state.storage)


def _check_lanes(state: LoopTree, machine: Processor) -> None:
    """Loops whose iterations are lanes hold no other loop, whatever edits came after."""
    for loop in state.loop.values():
        inner = next((n for n in loop.body if isinstance(n, Loop)), None)
        if machine.runs(loop.kind) == "vectorize" and inner is not None:
            raise HwgenError(
                "H413",
                f"{loop.name} would not be an innermost loop",
                found=f"{inner.name} inside {loop.name}, which is {loop.kind}",
                allowed=f"{loop.kind} loops that contain no other",
                repair=f"{loop.kind} last",
            )


def concurrent(machine: Processor, loop: Loop) -> int | None:
    """The rank of the workers that a loop's iterations are; None where they run in order."""
    if machine.runs(loop.kind) not in ("parallel", "bind"):
        return None
    return _RANK[machine.loop[loop.kind].level]


def _limit(state: LoopTree, machine: Processor, memory: Memory, tensor: str) -> int:
    """How many loops may lie around the home: those before workers finer than the sharers."""
    rank = _RANK[memory.shared_by]
    loops = state.users[tensor][0].loops
    for depth, loop in enumerate(loops):
        if machine.runs(loop.kind) == "bind" and _RANK[machine.loop[loop.kind].level] > rank:
            return depth
    return len(loops)


def _natural(state: LoopTree, hardware: HardwareSpec, tensor: str, home: tuple[str, ...]) -> str:
    """The memory of the finest workers that all see the tensor; the default without any."""
    machine = hardware.machine
    if not any(k.kind == "bind" for k in machine.loops):
        return machine.default_memory
    outside = [
        rank
        for site in state.users[tensor]
        for loop in site.loops
        if loop.name not in home and (rank := concurrent(machine, loop)) is not None
    ]
    around = [
        rank
        for loop in state.users[tensor][0].loops
        if loop.name in home and (rank := concurrent(machine, loop)) is not None
    ]
    wanted = min([*outside, _RANK["thread"] + 1]) - 1
    if not around:
        wanted = _RANK["kernel"]
    memory = hardware.workspace_of(_LEVELS[max(wanted, 0)])
    return memory.name if memory is not None else machine.default_memory


def _check_seen(
    state: LoopTree,
    machine: Processor,
    memory: Memory,
    tensor: str,
    home: tuple[str, ...],
) -> None:
    """One buffer's users are the sharers of its memory, in one start of blocks and threads."""
    found = state.users[tensor]
    for site in found:
        for loop in site.loops:
            rank = concurrent(machine, loop)
            if rank is not None and rank <= _RANK[memory.shared_by] and loop.name not in home:
                raise _unseen(
                    memory,
                    tensor,
                    f"{site.block.name} touches it in different iterations of {loop.name}, "
                    f"which is {loop.kind}",
                    f"compute_at({tensor!r}, ...) inside {loop.name}",
                )
    first = found[0]
    for site in found:
        for loop in (*first.loops, *site.loops):
            if concurrent(machine, loop) is not None and site.places[0] != first.places[0]:
                raise _unseen(
                    memory,
                    tensor,
                    f"{first.block.name} and {site.block.name} touch it in different launches, as "
                    f"{loop.name} is {loop.kind}",
                    f"compute_at({tensor!r}, ...) inside a loop of {site.block.name}",
                )


def _unseen(memory: Memory, tensor: str, found: str, repair: str) -> HwgenError:
    return HwgenError(
        "H417",
        f"{tensor} cannot live in {memory.name}",
        found=found,
        allowed=f"tensors of one {memory.shared_by} alone",
        repair=f"{repair}, or a memory that more see",
    )
