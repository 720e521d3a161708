"""Loops around calls whose iterations run at once: each worker has its own units and memories."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hwgen.errors import HwgenError
from hwgen.polyhedral.tree.loop_tree import Homes, LoopTree
from hwgen.spec.hardware import HardwareSpec


def parallel_loops(state: LoopTree, hardware: HardwareSpec) -> Mapping[str, str]:
    """The kinds of the loops whose iterations run at once, by name."""
    machine = hardware.processor
    if machine is None:
        return {}
    return {n: x.kind for n, x in state.loop.items() if machine.runs(x.kind) == "parallel"}


def check_workers(
    state: LoopTree, homes: Homes, hardware: HardwareSpec, parallel: Collection[str]
) -> None:
    """Every worker of a parallel loop has units to run on, and buffers that no other one uses.

    Raises:
        HwgenError: H417 a buffer of each iteration in memory that all share; H425 units that all
            share.
    """
    if not parallel:
        return
    if hardware.machine.units_shared_by == "kernel":
        raise HwgenError(
            "H425",
            f"iterations of {min(parallel)} cannot run at once: {hardware.name} has one of each "
            "unit",
            location=hardware.machine.location,
            field="processor.units_shared_by",
            found=f"calls in {', '.join(sorted(parallel))}, a parallel loop",
            allowed="chips whose workers have units of their own",
            repair="leave the loop serial, or write units_shared_by: thread if each worker has its "
            "own",
        )
    for tensor, home in sorted(homes.items()):
        inside = [n for n in home if n in parallel]
        memory = hardware.memory.get(state.memory(tensor))
        if not inside or (memory is not None and memory.shared_by == "thread"):
            continue
        where = hardware.offchip.name if memory is None else memory.name
        own = [m.name for m in hardware.of_kind("scratchpad") if m.shared_by == "thread"]
        raise HwgenError(
            "H417",
            f"{tensor} cannot live in {where}",
            field=f"buffers.{tensor}",
            found=f"each iteration of {inside[0]}, which is parallel, has its own {tensor}",
            allowed=f"memories that each worker has: {', '.join(own) or 'none'}",
            repair=f"set_scope({tensor!r}, {own[0]!r})"
            if own
            else f"leave {inside[0]} serial, or compute_root({tensor!r})",
        )
