"""Energy of a program's calls and their accesses, counted from its loops without running them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from hwgen.codegen.nodes import Call, SyncNode
from hwgen.codegen.program import Program
from hwgen.model.costs import call_span, entry_bytes, held_steps, iterations
from hwgen.model.counting import total
from hwgen.spec.call_cycles import repeats
from hwgen.spec.expression import Expr, evaluate
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.memory import WAYS

PARTS = 1_000_000
"""Energies of calls are counted in such parts of a picojoule, whole ones, which add up exactly."""


@dataclass(frozen=True, slots=True)
class EnergyPart:
    """Picojoules of accesses of a memory, and the `bytes` of these; or of calls of an intrinsic."""

    name: str
    picojoules: float
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Energy:
    """By memory, then by intrinsic, in the order of the chip's file; those that take none are left
    out."""

    parts: tuple[EnergyPart, ...] = ()

    @property
    def picojoules(self) -> float:
        """Of all of them."""
        return sum(p.picojoules for p in self.parts)


def program_energy(program: Program, hardware: HardwareSpec) -> Energy:
    """What calls take, and every byte that they read or write; not what a processor computes.

    An operand that a unit holds is read when it is brought in, every other in each iteration.
    """
    if not hardware.has_energy:
        return Energy()

    def counted(node: Call | SyncNode) -> tuple[Expr, ...] | None:
        if not isinstance(node, Call):
            return None
        steps = held_steps(node, hardware.intrinsic[node.intrinsic])
        return (*node.extents, *steps, *(() if node.fresh is None else (node.fresh,)))

    def leaf(node: Call | SyncNode, values: Mapping[str, int]) -> Mapping[str, int]:
        assert isinstance(node, Call)
        intrinsic = hardware.intrinsic[node.intrinsic]
        extents = tuple(int(evaluate(e, values)) for e in node.extents)
        times = iterations(node, program, extents)
        around = extents[: intrinsic.software_loops]
        found: dict[str, int] = {}
        for rule in intrinsic.operands:
            moved = times
            if intrinsic.stationary is not None and intrinsic.stationary.operand == rule.name:
                steps = [int(evaluate(e, values)) for e in held_steps(node, intrinsic)]
                fresh = node.fresh is None or evaluate(node.fresh, values)
                moved = prod(around) // repeats(around, steps[: len(around)]) if fresh else 0
            touched = moved * call_span(intrinsic, rule, node) * entry_bytes(rule)
            for way in WAYS[rule.access]:
                key = f"{way} {rule.memory}"
                found[key] = found.get(key, 0) + touched
        if intrinsic.energy is not None:
            own = extents[len(around) :]
            if node.kernel:
                own = tuple(x.extent for x in program.kernel[node.kernel].loops)
            loops = (x.name for x in intrinsic.loops[len(around) :])
            names = dict(zip(loops, own, strict=False)) | {"iterations": times // prod(around)}
            each = evaluate(intrinsic.energy, names)
            found[f"call {intrinsic.name}"] = prod(around) * round(PARTS * each)
        return found

    every = total(program.body, counted, leaf)
    memories = [
        EnergyPart(
            m.name,
            every[f"read {m.name}"] * m.read_energy + every[f"write {m.name}"] * m.write_energy,
            every[f"read {m.name}"] + every[f"write {m.name}"],
        )
        for m in hardware.memories
    ]
    calls = [EnergyPart(i.name, every[f"call {i.name}"] / PARTS) for i in hardware.intrinsics]
    return Energy(tuple(p for p in (*memories, *calls) if p.picojoules))
