"""Products of matrices in the shapes that tests ask for."""

from __future__ import annotations

import hwgen
from hwgen.spec.workload import Workload


def narrowed(m: int, n: int, k: int) -> Workload:
    """A product with a bias in 32 bits, shifted and clipped to 8."""
    return hwgen.workload(
        "narrowed",
        tensors={
            "x": f"int8[{m}, {k}]",
            "w": f"int8[{k}, {n}]",
            "b": f"int32[{n}]",
            "acc": f"int32[{m}, {n}]",
            "y": f"int8[{m}, {n}]",
        },
        compute=[
            "acc[m, n] += x[m, k] * w[k, n]",
            "y[m, n] = int8(clip((acc[m, n] + b[n]) >> 5, -128, 127))",
        ],
    )
