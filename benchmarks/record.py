"""A record of every shipped workload on every chip, to be compared with that of another commit.

`python -m benchmarks.record FILE` writes for each kernel its script, cycles, bytes off chip, a
digest of its C and CPU seconds, or the code of its refusal. `--jobs N`: processes; `--only TEXT`:
kernels with TEXT in their name. `python -m benchmarks.record --compare BEFORE AFTER` prints what
differs, and exits with 1 where a kernel is slower, moves more bytes or is refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from math import exp, log
from pathlib import Path
from time import process_time

from hwgen.completing import compile_scripted
from hwgen.errors import HwgenError
from hwgen.passes.phase import SearchOptions
from hwgen.pipeline import compile_workload
from hwgen.spec.load import load_hardware, load_workload

ROOT = Path(__file__).resolve().parent.parent
Row = dict[str, object]
Case = tuple[str, Path, Path, Path | None]
"""Its name, chip, workload and script."""

FIELDS = ("refused", "cycles", "bytes", "script", "c")
"""What may differ between two records of a kernel, what matters most first."""


def cases() -> list[Case]:
    """All chips with all workloads, and the shipped scripts on all chips."""
    chips = sorted((ROOT / "hw_specs").glob("*.yaml"))
    folders = ("workloads", "workloads/quantised", "benchmarks")
    workloads = [p for folder in folders for p in sorted((ROOT / folder).glob("*.yaml"))]
    folder = ROOT / "workloads" / "schedules"
    known = {p.stem: p for p in (*workloads, *sorted(folder.glob("*.yaml")))}
    found: list[Case] = []
    for chip in chips:
        found += [(f"{chip.stem} {p.parent.name}/{p.stem}", chip, p, None) for p in workloads]
        for script in sorted(folder.glob("*.script")):
            of = max((n for n in known if script.stem.startswith(n)), key=len)
            found.append((f"{chip.stem} {script.name}", chip, known[of], script))
    return found


def record(case: Case) -> tuple[str, Row]:
    """One kernel."""
    name, chip, workload, script = case
    begun = process_time()
    try:
        given = load_workload(workload), load_hardware(chip)
        if script is None:
            made = compile_workload(*given, SearchOptions())
        else:
            made = compile_scripted(*given, script.read_text(), str(script))
        text = "".join(f"{n}\n{made.files[n]}" for n in sorted(made.files))
        row: Row = {
            "refused": "",
            "cycles": made.cycles,
            "bytes": made.offchip_bytes,
            "script": made.script,
            "c": hashlib.sha256(text.encode()).hexdigest(),
        }
    except HwgenError as error:
        row = {"refused": str(error).replace(f"{ROOT}/", "")}
    return name, row | {"seconds": round(process_time() - begun, 2)}


def differences(before: Mapping[str, Row], after: Mapping[str, Row]) -> tuple[list[str], bool]:
    """A line for each kernel that differs; whether one is worse."""
    lines: list[str] = []
    worse = False
    for name in sorted(before.keys() & after.keys()):
        one, other = before[name], after[name]
        different = [f for f in FIELDS if one.get(f) != other.get(f)]
        if not different:
            continue
        told = [
            f"{f} {one.get(f, '-')} -> {other.get(f, '-')}" if f not in ("script", "c") else f
            for f in different
        ]
        lines.append(f"{name}: {', '.join(told)}")
        more = [f for f in ("cycles", "bytes") if _number(other, f) > _number(one, f)]
        worse |= bool(more) or (bool(other["refused"]) and not one["refused"])
    missing = sorted(before.keys() ^ after.keys())
    lines += [f"{name}: in one record alone" for name in missing]
    return lines, worse or bool(missing)


def _number(row: Row, field: str) -> float:
    value = row.get(field, 0)
    assert isinstance(value, int | float)
    return value


def compare(before: Path, after: Path) -> int:
    """Print the differences of two records; 1 where one kernel is worse."""
    one, other = (json.loads(path.read_text()) for path in (before, after))
    lines, worse = differences(one, other)
    print("\n".join(lines))
    both = [n for n in one if n in other]
    changed = sum(line.partition(":")[0] in other for line in lines)
    print(f"{len(both)} compared, {len(both) - changed} equal, {changed} different")
    pairs = [(_number(one[n], "seconds"), _number(other[n], "seconds")) for n in both]
    ratios = [log(b / a) for a, b in pairs if a > 0.5 and b > 0]
    if ratios:
        mean = exp(sum(ratios) / len(ratios))
        print(f"CPU seconds of those above 0.5: {mean:.2f} x, worst {exp(max(ratios)):.2f} x")
    return int(worse)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    if given.compare:
        return compare(*given.compare)
    if given.file is None:
        parser.error("a FILE to write, or --compare")
    chosen = [c for c in cases() if given.only in c[0]]
    found: dict[str, Row] = {}
    with ProcessPoolExecutor(given.jobs) as pool:
        for name, row in pool.map(record, chosen):
            found[name] = row
            print(f"\r{len(found)}/{len(chosen)} {name:60}", end="", file=sys.stderr, flush=True)
            given.file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
