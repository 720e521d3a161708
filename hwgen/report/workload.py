"""A workload as text."""

from __future__ import annotations

from hwgen.spec.workload import Workload


def workload_text(workload: Workload) -> str:
    """Sizes, tensors and statements."""
    lines = [workload.name]
    if workload.sizes:
        lines.append("sizes  " + ", ".join(f"{n}={v}" for n, v in workload.sizes))
    for t in workload.tensors:
        constant = ", constant" if t.constant else ""
        lines.append(f"{t.name}: {t.dtype}{list(t.shape)} {t.role}{constant}")
    for s in workload.statements:
        loops = ", ".join(f"{n}<{e}" for n, e in s.loops)
        lines.append(f"{s.name}: {s}  for {loops or 'one point'}")
    return "\n".join(lines)
