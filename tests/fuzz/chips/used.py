"""Which of a chip's features a kernel uses."""

from __future__ import annotations

from hwgen.codegen.nodes import Call, calls
from hwgen.passes.kernel import Kernel
from hwgen.spec.expression import Const
from hwgen.spec.hardware import HardwareSpec

FEATURES = (
    "issue by a host",
    "C loops around calls",
    "stationary operands",
    "several instructions per call",
    "configurations",
    "memory shared with the host",
    "memory for constants",
    "contiguous banks",
    "interleaved banks",
    "padding against conflicts",
    "tensors through off-chip memory",
    "off-chip addresses of elements",
    "calls of fewer lanes",
    "posted writes",
    "sums in order",
)
"""Features that are counted, as `features_used` names them."""


def features_used(compilation: Kernel) -> tuple[str, ...]:
    """In the order of `FEATURES`. A C loop counts where it runs more than once, several
    instructions where a host issues them."""
    hardware = compilation.hardware
    sites = list(calls(compilation.program.body))
    intrinsics = [hardware.intrinsic[call.intrinsic] for call in sites]
    memories = [hardware.memory[o.memory] for i in intrinsics for o in i.operands]
    uses = (
        hardware.issue is not None,
        any(_repeated(call, hardware) for call in sites),
        any(i.stationary is not None for i in intrinsics),
        hardware.issue is not None and any(i.instructions > 1 for i in intrinsics),
        any(i.configuration for i in intrinsics),
        any(m.shared for m in memories),
        any(m.constants_only for m in memories),
        any(m.banks is not None and m.banks.count > 1 for m in memories),
        any(i.iterations_per_cycle for i in intrinsics),
        any(s.aligns for s in compilation.schedule.state.storages),
        any(i.role == "temporary" for i in compilation.program.images),
        any(m.by_element for m in memories),
        any(call.lanes for call in sites),
        any(hardware.bus[m.bus].write.posted_bursts for m in memories if m.kind == "offchip"),
        any(a.running for i in intrinsics if len(i.operands) == 3 for a in i.semantics),
    )
    return tuple(name for name, used in zip(FEATURES, uses, strict=True) if used)


def _repeated(call: Call, hardware: HardwareSpec) -> bool:
    count = hardware.intrinsic[call.intrinsic].software_loops
    return any(extent != Const(1) for extent in call.extents[:count])
