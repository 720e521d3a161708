"""A campaign of random chips as text."""

from __future__ import annotations

import shlex
from pathlib import Path

from hwgen.model.c_compiler import build_in_turn
from hwgen.report.table import Cell, counted, table
from hwgen.verify.chips.campaign import ChipReport, Failure, Tally
from hwgen.verify.chips.draw import Draw
from hwgen.verify.chips.used import FEATURES


def chips_text(report: ChipReport, folder: Path) -> str:
    """What became of the draws, in all, per kind of synchronisation and per feature, then every
    failure with the commands that show it. `folder`: where `failure_files` are."""
    tally = report.tally
    chips = f"variants of {report.base}" if report.base else "invented chips"
    parts = [
        f"{chips}, seed {report.seed}: {tally.drawn:,} drawn, each with a workload",
        table(("outcome", "number", "codes"), _outcomes(tally)),
        table(("synchronisation", "drawn", "ran", "refused", "wrong"), _kinds(tally)),
        table(("feature", "kernels that ran with it"), [(f, tally.features[f]) for f in FEATURES]),
        *(_failure(report, f, folder) for f in report.failures),
        *(() if report.ok or report.failures else ("Nothing was run.",)),
    ]
    return "\n\n".join(parts)


def failure_files(report: ChipReport) -> dict[str, str]:
    """Names and texts of files: the chip and the workload of every failure."""
    files: dict[str, str] = {}
    for failure in report.failures:
        chip, workload = _names(failure)
        files |= {chip: failure.draw.chip, workload: failure.draw.workload}
    return files


def _outcomes(tally: Tally) -> list[tuple[Cell, ...]]:
    wrong = tally.count("wrong")
    return [
        ("ran, equal to the reference", tally.count("equal"), ""),
        ("  of them in emitted C too", tally.c_runs, ""),
        ("  of them in phases, with a wait too many", tally.surplus, ""),
        ("  of them with a defect planted, and found", tally.caught, ""),
        ("refused where a file is read", tally.count("unread"), counted(tally.unread)),
        ("refused where a kernel is made", tally.count("refused"), counted(tally.refused)),
        ("WRONG" if wrong else "wrong", wrong, ""),
    ]


def _kinds(tally: Tally) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for kind in sorted({kind for kind, _ in tally.verdicts}):
        of = {v: tally.verdicts[kind, v] for v in ("equal", "unread", "refused", "wrong")}
        refused = of["unread"] + of["refused"]
        rows.append((kind, sum(of.values()), of["equal"], refused, of["wrong"]))
    return rows


def _failure(report: ChipReport, failure: Failure, folder: Path) -> str:
    chip, workload = (folder / name for name in _names(failure))
    again = ["hwgen", "verify", "--chips", "1", "--seed", str(failure.number)]
    if report.base:
        again += ["--spec", str(report.base)]
    return (
        f"{failure.outcome.message}\n"
        f"reproduce:  {simulate_command(failure.draw, chip, workload)}\n"
        f"drawn by:   {shlex.join(again)}"
    )


def simulate_command(draw: Draw, chip: Path, workload: Path) -> str:
    """The `hwgen simulate` command that runs a draw."""
    words = ["hwgen", "simulate", "--spec", str(chip), "--workload", str(workload)]
    words += ["--seed", str(draw.seed), "--data", draw.style, "--no-cache"]
    if draw.rank:
        words += ["--schedule", str(draw.rank)]
    if not draw.use_c:
        return shlex.join(words)
    variables = build_in_turn(draw.seed).variables()
    return " ".join([*variables, shlex.join([*words, "--engine", "c"])])


def _names(failure: Failure) -> tuple[str, str]:
    return f"chip_{failure.number}.yaml", f"workload_{failure.number}.yaml"
