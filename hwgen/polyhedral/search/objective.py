"""What a search looks for: the fewest cycles, off-chip bytes or picojoules."""

from __future__ import annotations

from typing import Literal, Protocol, get_args

from hwgen.errors import HwgenError
from hwgen.spec.hardware import HardwareSpec

Objective = Literal["cycles", "traffic", "energy"]
"""`traffic`: off-chip bytes."""

OBJECTIVES: tuple[Objective, ...] = get_args(Objective)


class Measured(Protocol):
    """Something with modelled cycles, off-chip traffic and energy (picojoules), and the room that
    its buffers take on the chip."""

    @property
    def cycles(self) -> int: ...

    @property
    def offchip_bytes(self) -> int: ...

    @property
    def energy(self) -> float: ...

    @property
    def onchip_bytes(self) -> int: ...


Measure = tuple[float, ...]
"""What of two kernels is compared, the most important first; fewer is better."""


def measure(kernel: Measured, objective: Objective) -> Measure:
    """A kernel by an objective."""
    match objective:
        case "cycles":
            return (kernel.cycles,)
        case "traffic":
            return kernel.offchip_bytes, kernel.cycles
        case "energy":
            return kernel.energy, kernel.cycles


def check_objective(hardware: HardwareSpec, objective: Objective) -> None:
    """Refuse what a chip's kernels are not ranked by.

    Raises:
        HwgenError: H426 where the chip is a processor alone, or no energy is known of it.
    """
    if objective == "cycles":
        return
    if not hardware.units:
        reason, found = "kernels of a processor alone are ranked by cycles", "no units"
        repair = "leave the objective out, or write cycles"
    elif objective == "energy" and not hardware.has_energy:
        reason, found = f"nothing in the file of {hardware.name} has one", "no energies"
        repair = "add energy: {read: ..., write: ...} to a memory, in pJ per byte; or write traffic"
    else:
        return
    raise HwgenError(
        "H426",
        f"no kernel can be chosen by {objective}: {reason}",
        location=hardware.location,
        field="objective",
        found=f"{objective}, and {found}",
        allowed=", ".join(allowed_objectives(hardware)),
        repair=repair,
    )


def allowed_objectives(hardware: HardwareSpec) -> tuple[Objective, ...]:
    """The objectives that a chip's kernels can be chosen by."""
    if not hardware.units:
        return OBJECTIVES[:1]
    return tuple(o for o in OBJECTIVES if o != "energy" or hardware.has_energy)
