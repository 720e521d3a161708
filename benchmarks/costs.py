"""How far the cost of schedules is from their simulation, for every candidate that a compile tries.

`python -m benchmarks.costs [CHIP ...]` prints for each chip and workload: candidates that were
simulated, the mean error of their cost, the share of pairs that the cost puts in the right order
(those whose cycles differ by more than 0.2 %), and the cycles of the cheapest by cost over those of
the fastest.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean, median

from hwgen.errors import HwgenError
from hwgen.pipeline import compile_workload
from hwgen.spec.load import load_hardware, load_workload

ROOT = Path(__file__).resolve().parent.parent
CHIPS = ("vta", "gemmini", "tpu_v1", "npu_shared_buffer", "vtcm_two_banks")
EQUAL = 0.002
"""Cycles that differ by no more of themselves count as equal."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Cycles of a kernel's candidates, as costed and as simulated."""

    name: str
    pairs: tuple[tuple[float, float], ...]

    @property
    def error(self) -> float:
        return mean(abs(cost / cycles - 1) for cost, cycles in self.pairs)

    @property
    def in_order(self) -> float:
        """The share of pairs of candidates whose costs are in the order of their cycles."""
        differing = [
            (a, b)
            for a, b in combinations(self.pairs, 2)
            if abs(a[1] - b[1]) > EQUAL * min(a[1], b[1])
        ]
        right = sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in differing)
        return right / len(differing) if differing else 1.0

    @property
    def best(self) -> float:
        """Cycles of the cheapest by cost over those of the fastest."""
        return min(self.pairs)[1] / min(cycles for _, cycles in self.pairs)


def compared(chips: Sequence[str], names: str = "*") -> Iterator[Comparison]:
    """Every shipped workload that a chip's units run in one search of several candidates; `names`:
    of these files, without their endings."""
    folder = ROOT / "workloads"
    workloads = [p for x in (folder, folder / "quantised") for p in sorted(x.glob(f"{names}.yaml"))]
    for chip in chips:
        for path in workloads:
            try:
                made = compile_workload(
                    load_workload(path), load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
                )
            except HwgenError:
                continue  # What a chip refuses has no cost.
            pairs = made.account.search.compared
            if len(pairs) > 1:
                yield Comparison(f"{chip} {path.parent.name}/{path.stem}", pairs)


def main() -> int:
    found: list[Comparison] = []
    print(f"{'':50} tried  error  in order   best")
    for c in compared(sys.argv[1:] or CHIPS):
        print(
            f"{c.name:50} {len(c.pairs):5} {c.error:6.1%} {c.in_order:8.0%} {c.best:8.3f}",
            flush=True,
        )
        found.append(c)
    if found:
        errors = [c.error for c in found]
        orders, best = mean(c.in_order for c in found), mean(c.best for c in found)
        print(f"{len(found)} kernels: error {mean(errors):.1%} on average, {median(errors):.1%} in")
        print(f"the median; {orders:.0%} of pairs in order; cheapest over fastest {best:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
