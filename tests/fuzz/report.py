"""Campaigns as text: outcomes of draws, and the commands that repeat failures."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import cast

from hwgen.model.c_compiler import build_in_turn
from hwgen.polyhedral.schedule.script import PRIMITIVES
from hwgen.spec.table import Cell, counted, table
from tests.fuzz.chips.campaign import ChipReport
from tests.fuzz.chips.campaign import Failure as ChipFailure
from tests.fuzz.chips.campaign import Tally as ChipsTally
from tests.fuzz.chips.draw import Draw
from tests.fuzz.chips.used import FEATURES
from tests.fuzz.schedules import Failure, ScheduleReport
from tests.fuzz.tree_campaign import TREES, TreeReport

FUZZ = ("python", "-m", "tests.fuzz")
"""The command of these campaigns, in a checkout."""


def _wrong(count: int) -> tuple[Cell, ...]:
    return ("WRONG" if count else "wrong", count, "")


def _nothing(ran: object) -> tuple[str, ...]:
    return () if ran else ("Nothing was run.",)


# Schedules


def schedules_text(report: ScheduleReport) -> str:
    """Calls per primitive, what became of the schedules, and every failure as a workload and a
    script."""
    tally = report.tally
    rows: list[tuple[Cell, ...]] = []
    for name in PRIMITIVES:
        refused = counted({c: n for (p, c), n in tally.refused.items() if p == name})
        rows.append((name, tally.tried[name], tally.taken[name], refused))
    outcomes: list[tuple[Cell, ...]] = [
        ("run, equal to the reference", tally.checked, ""),
        ("refused where storage or code is made", tally.lowering.total(), counted(tally.lowering)),
    ]
    if tally.inexact:
        outcomes.append(("not compared: floats too large to be exact", tally.inexact, ""))
    outcomes.append(_wrong(len(tally.failures)))
    calls = sum(tally.tried.values())
    taken = sum(tally.taken.values())
    parts = [
        f"{report.hardware}, seed {report.seed}: {tally.sequences:,} sequences of primitives on "
        f"as many workloads\n{calls:,} calls, {taken:,} of them taken, at most "
        f"{max(tally.taken_calls, default=0)} in one schedule",
        table(("primitive", "tried", "taken", "refused"), rows),
        table(("schedules", "number", "codes"), outcomes),
        *(failure_text(f) for f in report.failures),
        *_nothing(report.ok or report.failures),
    ]
    return "\n\n".join(parts)


def failure_text(failure: Failure) -> str:
    """A failure with its workload and its script."""
    data = failure.case.data
    sizes = data.get("sizes", {})
    lines = [
        f"{failure.kind}: {failure.message}",
        f"data: seed {failure.case.seed}",
        "workload:",
        f"  name: {data['name']}",
        *([f"  sizes: {_flow(sizes)}"] if sizes else []),
        "  tensors:",
        *(f"    {n}: {_flow(t)}" for n, t in data["tensors"].items()),
        "  compute:",
    ]
    for statement in data["compute"]:
        lines.append(f"    - {_flow(statement)}")
    lines += ["script:", *(f"  {c}" for c in failure.case.calls)]
    return "\n".join(lines)


def _flow(value: object) -> str:
    """Plain data in one line of YAML."""
    if isinstance(value, dict):
        inside = ", ".join(f"{k}: {_flow(v)}" for k, v in cast(dict[str, object], value).items())
        return f"{{{inside}}}"
    return json.dumps(value)


def trees_text(report: TreeReport) -> str:
    """What became of draws and schedules, and every failure as a workload and a script."""
    tally = report.tally
    draws: list[tuple[Cell, ...]] = [
        ("refused when they are read", tally.unread.total(), counted(tally.unread)),
        ("refused by the compiler", tally.uncompiled.total(), counted(tally.uncompiled)),
    ]
    schedules: list[tuple[Cell, ...]] = [
        ("run, equal to the reference", tally.right, ""),
        ("refused", tally.refused.total(), counted(tally.refused)),
        _wrong(len(tally.failures)),
    ]
    chip = report.hardware or "chips that are drawn too"
    begun = f"interrupted before {report.count:,} schedules: " if report.interrupted else ""
    parts = [
        f"{begun}{chip}, seed {report.seed}: {tally.trees:,} schedules near those of "
        f"{tally.draws:,} kernels",
        table(("kernels", "number", "codes"), draws),
        table(("schedules", "number", "codes"), schedules),
        *(_failed_tree(report, *f) for f in report.failures),
        *_nothing(tally.right or tally.failures),
    ]
    return "\n\n".join(parts)


def _failed_tree(report: TreeReport, number: int, failure: Failure) -> str:
    again = [*FUZZ, "schedules", str(TREES), "--seed", str(number)]
    if report.hardware is not None:
        again += ["--spec", str(report.hardware)]
    return f"{failure_text(failure)}\ndrawn by: {shlex.join(again)}"


# Chips


def chips_text(report: ChipReport, folder: Path) -> str:
    """What became of the draws, in all, per kind of synchronisation and per feature, then every
    failure with the commands that show it. `folder`: where `failure_files` are."""
    tally = report.tally
    chips = f"variants of {report.base}" if report.base else "invented chips"
    parts = [
        f"{chips}, seed {report.seed}: {tally.drawn:,} drawn, each with a workload",
        table(("outcome", "number", "codes"), _of_draws(tally)),
        table(("synchronisation", "drawn", "ran", "refused", "wrong"), _kinds(tally)),
        table(("feature", "kernels that ran with it"), [(f, tally.features[f]) for f in FEATURES]),
        *(_failed_chip(report, f, folder) for f in report.failures),
        *_nothing(report.ok or report.failures),
    ]
    return "\n\n".join(parts)


def failure_files(report: ChipReport) -> dict[str, str]:
    """Names and texts of files: the chip and the workload of every failure."""
    files: dict[str, str] = {}
    for failure in report.failures:
        chip, workload = _files_of(failure)
        files |= {chip: failure.draw.chip, workload: failure.draw.workload}
    return files


def _of_draws(tally: ChipsTally) -> list[tuple[Cell, ...]]:
    return [
        ("ran, equal to the reference", tally.count("equal"), ""),
        ("  of them in emitted C too", tally.c_runs, ""),
        ("  of them in phases, with a wait too many", tally.surplus, ""),
        ("  of them with a defect planted, and found", tally.caught, ""),
        ("refused where a file is read", tally.count("unread"), counted(tally.unread)),
        ("refused where a kernel is made", tally.count("refused"), counted(tally.refused)),
        _wrong(tally.count("wrong")),
    ]


def _kinds(tally: ChipsTally) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for kind in sorted({kind for kind, _ in tally.verdicts}):
        of = {v: tally.verdicts[kind, v] for v in ("equal", "unread", "refused", "wrong")}
        refused = of["unread"] + of["refused"]
        rows.append((kind, sum(of.values()), of["equal"], refused, of["wrong"]))
    return rows


def _failed_chip(report: ChipReport, failure: ChipFailure, folder: Path) -> str:
    chip, workload = (folder / name for name in _files_of(failure))
    again = [*FUZZ, "chips", "1", "--seed", str(failure.number)]
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


def _files_of(failure: ChipFailure) -> tuple[str, str]:
    return f"chip_{failure.number}.yaml", f"workload_{failure.number}.yaml"
