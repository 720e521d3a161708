"""The search against exhaustive enumeration: `python -m benchmarks.search [small|medium|all]`.

Every schedule of each space is compiled and simulated. `medium` takes some minutes; `all` also
takes every match that the search considers, not only the best group.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hwgen.spec.table import Cell, table
from tests.conformance.exhaustive import MEDIUM, SMALL, judge

HEADER = (
    "space", "schedules", "refused", "chosen", "best", "ratio", "of bound", "simulated",
    "exhausted", "CPU seconds",
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    which = arguments[0] if arguments else "small"
    if which not in ("small", "medium", "all"):
        sys.stderr.write(f"unknown set {which}; there are: small, medium, all\n")
        return 2
    rows: list[tuple[Cell, ...]] = []
    cases = {"small": SMALL, "medium": MEDIUM, "all": (*SMALL, *MEDIUM)}[which]
    for case in cases:
        found = judge(case, every_match=which == "all")
        c = found.compilation
        looked = c.account.search
        rows.append((
            str(case), found.points, found.refused, c.cycles, found.best, found.ratio,
            c.cycles / c.bound.cycles, looked.simulated, "yes" if looked.exhausted else "no",
            found.seconds,
        ))  # fmt: skip
        # What is known of a run of an hour that ends too soon.
        sys.stderr.write(f"{len(rows)}/{len(cases)} {case}: {found.ratio:.3f}\n")
        sys.stderr.flush()
    sys.stdout.write(table(HEADER, rows) + "\n")
    worst = max(float(row[5]) for row in rows)
    sys.stdout.write(f"{len(rows)} spaces, worst ratio to the best schedule {worst:.3f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
