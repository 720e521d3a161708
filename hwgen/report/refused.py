"""Why a workload has no kernel: the chip cannot, or hwgen found no way to it.

A refusal is the chip's where it follows from its file: an operation or a data type that none of its
calls has, no room, a field that is too narrow, no way to order two units. Everything else is a
limit of what hwgen looks at, and another form of the workload may well run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hwgen.errors import HwgenError
from hwgen.spec.expression import Call, Expr, walk
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

Verdict = Literal["chip", "search", "file", "defect"]
"""Who it is that prevents a kernel; `search`: hwgen, which found none."""

CHIP = {
    "H305": "none of its calls sets what the sum starts from",
    "H405": "its memories have no room for the smallest tiles",
    "H611": "it cannot order two of its units",
    "H612": "it holds fewer variants of a micro-kernel",
    "H613": "its memory of micro-operations is too small",
    "H614": "the fields of its loops cannot run a tile",
    "H615": "it has too few flags",
    "H616": "the field of an address does not go so far",
}
"""Codes of what follows from a chip's file, and what it is that the chip has not."""

SEARCH = {
    "H301": "its calls have each operation and data type, but hwgen found no way to put this "
    "together from them; the statement in another form may match",
    "H302": "a call computes this, but hwgen found no lanes for these indices",
    "H402": "hwgen does not pad a tensor in some reads alone",
    "H407": "hwgen gave up: a computation took more than its bound",
    "H408": "hwgen does not rearrange on the chip what another phase computed",
    "H502": "none of the schedules that hwgen tried fits the memories",
    "H503": "hwgen found no layout that all calls can take",
    "H504": "hwgen found no layout for what goes off the chip and comes back",
    "H505": "hwgen does not move a tensor off the chip that is written in part",
}
"""Codes of what hwgen did not find, and what that means."""

_FORMS = ("select", "min", "max", "clip", "abs")
"""Functions that the matcher rewrites: that no call names one proves nothing."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A workload without a kernel: its name, the error, who prevents the kernel and why."""

    name: str
    error: HwgenError
    verdict: Verdict
    because: str

    @property
    def text(self) -> str:
        """The verdict in words."""
        match self.verdict:
            case "chip":
                return f"the chip cannot: {self.because}"
            case "search":
                return f"not found: {self.because}"
            case "file":
                return f"not tried: {self.because}"
            case "defect":
                return f"a defect of hwgen: {self.because}"


def refusal(
    name: str, error: HwgenError, workload: Workload | None, hardware: HardwareSpec
) -> Refusal:
    """Judge an error of compilation; `workload`: None where its file has an error."""
    code = error.code
    if workload is None or code < "H3":
        return Refusal(name, error, "file", "the workload's file has an error")
    if code == "H301":
        lacking = _lacking(workload, hardware)
        if lacking:
            return Refusal(name, error, "chip", lacking)
    if code in CHIP:
        return Refusal(name, error, "chip", CHIP[code])
    if code in SEARCH:
        return Refusal(name, error, "search", SEARCH[code])
    if code >= "H7":
        return Refusal(name, error, "defect", "the kernel fails its checks")
    return Refusal(name, error, "search", "no schedule that hwgen tried can be compiled")


def _lacking(workload: Workload, hardware: HardwareSpec) -> str:
    """What the workload needs and no call of the chip has, in any form; "" where there is none."""
    off_chip = {
        o.dtype
        for i in hardware.intrinsics
        for o in i.operands
        if o.memory == hardware.offchip.name
    }
    types = {t.dtype: t.name for t in (*workload.inputs, *workload.outputs)}
    foreign = [t for t in sorted(types) if t not in off_chip]
    if foreign:
        return f"none of its calls moves {' or '.join(foreign)} to or from off-chip memory"
    has = {f for i in hardware.intrinsics for a in i.semantics for f in _functions(a.value)}
    wanted = sorted({f for s in workload.statements for f in _functions(s.value)} - has)
    if wanted:
        return f"none of its calls computes {' or '.join(wanted)}"
    return ""


def _functions(value: Expr) -> set[str]:
    """The functions in an expression that only a call of the same name computes."""
    return {n.function for n in walk(value) if isinstance(n, Call) and n.function not in _FORMS}
