"""A calibration as text and as a record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from hwgen.calibrate.calibration import Calibration
from hwgen.report.records import Record
from hwgen.spec.table import Cell, table


def calibration_text(found: Calibration) -> str:
    """Costs, errors of the model, and lines for the spec."""
    tools = found.tools
    by = f"run by {' '.join(tools.runner)}" if tools.runner else "run on this machine"
    words = " ".join([*tools.compiler, *tools.flags])
    lines = [f"{found.hardware.name}: {found.unit} of {len(found.kernels)} kernels",
             f"{words} for {tools.target}, {by}", ""]  # fmt: skip
    rows = [
        (".".join(p.cost.path), *map(_short, (p.cost.value, p.value, p.error)), p.kernels)
        for p in found.proposals
    ]  # fmt: skip
    lines += [table(("cost", "spec", "proposed", "standard error", "kernels"), rows)]
    lines += ["-: not determined by these kernels; the spec's value stays", ""]
    errors = {n: found.errors(held_out=n == "held out") for n in ("fitted", "held out")}
    shown: list[tuple[Cell, ...]] = [
        (name, len(before), *(f"{x:.1%}" for e in both for x in (mean(e), max(e))))
        for name, both in errors.items() if (before := both[0])
    ]  # fmt: skip
    header = ("kernels", "number", "spec: mean", "worst", "proposed: mean", "worst")
    lines += ["error of the model", table(header, shown), ""]
    before, after = errors["held out"]
    if before and mean(after) >= mean(before):
        lines += ["The proposed costs are no better for kernels that they were not fitted to.", ""]
    return "\n".join([*lines, *_yaml(found)])


def calibration_record(found: Calibration) -> Record:
    """The same as plain data."""
    return {
        "chip": found.hardware.name, "unit": found.unit,
        "compiler": [*found.tools.compiler, *found.tools.flags], "runner": [*found.tools.runner],
        "target": found.tools.target,
        "costs": [{"cost": ".".join(p.cost.path), "spec": p.cost.value, "proposed": p.value,
                   "standard_error": p.error, "kernels": p.kernels}
                  for p in found.proposals],
        "kernels": [{"kernel": k.sample.name, "held_out": k.sample.held_out,
                     "measured": k.measured, "spec": k.before, "proposed": k.after}
                    for k in found.kernels],
    }  # fmt: skip


def _yaml(found: Calibration) -> Iterator[str]:
    """Lines of the proposed costs as a spec has them."""
    yield "processor:"
    open_keys: Sequence[str] = ()
    for p in found.proposals:
        if p.value is None:
            continue
        *keys, name = p.cost.path
        for depth, key in enumerate(keys):
            if tuple(keys[: depth + 1]) != tuple(open_keys[: depth + 1]):
                yield f"{'  ' * (depth + 1)}{key}:"
        open_keys = keys
        whole = name.endswith("_cycles") and name != "iteration_cycles"
        yield f"{'  ' * len(p.cost.path)}{name}: {round(p.value) if whole else _short(p.value)}"


def _short(value: float | None) -> str:
    """A number with three digits, without an exponent; "-" without one."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
