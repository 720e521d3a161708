"""`check`, `schema` and `explain`: what a file says and how an intrinsic fits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from hwgen.cli.resolve import assign, parse_assignments, resolve
from hwgen.errors import HwgenError
from hwgen.spec.find import find_spec

if TYPE_CHECKING:
    from hwgen.passes.spilling import Spill
    from hwgen.polyhedral.match.explain import Explanation
    from hwgen.polyhedral.scop import Scop
    from hwgen.spec.hardware import HardwareSpec
    from hwgen.spec.workload import Workload


def check(spec: str, settings: Sequence[str], *, as_json: bool = False) -> None:
    """Load a chip and print its summary."""
    from hwgen.report.chip import summary
    from hwgen.spec.hints import hints
    from hwgen.spec.load import load_hardware
    from hwgen.spec.source import read_document

    path = find_spec(spec)
    parameters, _ = assign(parse_assignments(settings), path, (), every=False)
    hardware = load_hardware(path, dict(parameters))
    found = hints(hardware, read_document(path))
    if as_json:
        from hwgen.cli.records import print_record
        from hwgen.report.records import chip_record

        said = [{"line": h.location.line or None, "text": h.text} for h in found]
        print_record("check", {"file": str(path), **chip_record(hardware), "hints": said}, ok=True)
        return
    typer.echo(f"{path}: valid\n{summary(hardware)}")
    for hint in found:
        typer.echo(f"\n{hint.location}: hint: {hint.text}")


def schema(*, workload: bool) -> None:
    """Print a JSON Schema."""
    from hwgen.spec.load import hardware_json_schema, workload_json_schema

    made = workload_json_schema() if workload else hardware_json_schema()
    typer.echo(json.dumps(made, indent=2))


def explain(
    spec: str,
    workload: str,
    settings: Sequence[str],
    dtypes: Sequence[str] = (),
    *,
    as_json: bool = False,
) -> None:
    """Print every statement against every intrinsic, bound as `generate` binds them."""
    from hwgen.spec.load import load_hardware

    request = resolve(spec, [workload], settings, dtypes)
    hardware = load_hardware(request.spec, dict(request.parameters))
    wanted = request.workloads[0]
    loaded = wanted.load()
    if hardware.processor is not None and not hardware.units:
        _explain_processor(loaded, hardware, as_json=as_json)
        return
    _show(_explained(loaded, hardware), hardware, loaded, as_json=as_json)


def _explain_processor(workload: Workload, hardware: HardwareSpec, *, as_json: bool) -> None:
    """Print what the automatic schedule does with every nest, and from how many choices."""
    from hwgen.passes.nest_pipeline import compile_nest
    from hwgen.report.text import describe_cycles, measure

    compilation = compile_nest(workload, hardware)
    if as_json:
        from hwgen.cli.records import print_record
        from hwgen.report.records import kernel_record

        print_record(
            "explain",
            {
                "chip": hardware.name,
                "workload": workload.name,
                "phases": [],
                "spilled": [],
                "problem": None,
                "kernel": kernel_record(measure(compilation)),
                "search": str(compilation.account.report),
            },
            ok=True,
        )
        return
    cycles = "\n".join(describe_cycles(measure(compilation)))
    typer.echo(f"{hardware.name} runs every statement as loops on its processor\n")
    typer.echo(f"{compilation.stage('state')}\n")
    typer.echo(f"{compilation.account.report}\n\n{cycles}")


@dataclass(frozen=True, slots=True)
class _Explained:
    """Each phase with its explanations; why there is no kernel; what goes through off-chip memory;
    the edits that say the workload otherwise, as a script."""

    phases: tuple[tuple[Scop, Sequence[Explanation]], ...]
    problem: HwgenError | None
    spills: tuple[Spill, ...] = ()
    edits: str = ""


def _explained(workload: Workload, hardware: HardwareSpec) -> _Explained:
    """Every phase's statements; where the kernel does not compile, why."""
    from hwgen.passes.covering import started
    from hwgen.passes.start import Start
    from hwgen.pipeline import compile_kernel
    from hwgen.polyhedral import isl
    from hwgen.polyhedral.match.explain import explain as explain_matches
    from hwgen.polyhedral.match.matching import match
    from hwgen.polyhedral.match.operations import NOTHING_SHARED, Sharing
    from hwgen.polyhedral.match.select import select
    from hwgen.polyhedral.phases import split_phases
    from hwgen.polyhedral.scop import build_scop

    try:
        compiled = compile_kernel(workload, hardware)
        phases = tuple((p.scop, p.explanations) for p in compiled.parts)
        return _Explained(phases, None, compiled.account.spills, compiled.start.trace)
    except HwgenError as error:
        problem = error
    found: list[tuple[Scop, Sequence[Explanation]]] = []
    start = started(Start(workload, hardware), nearest=True)
    phases = split_phases(start.workload)
    for phase in phases:
        scop, chosen = build_scop(phase.workload), None
        sharing = NOTHING_SHARED
        if len(phases) > 1:
            sharing = Sharing(leaves=phase.leaves, fetches=phase.takes)
        else:
            with isl.bounded(), suppress(HwgenError):  # It is not what prevents a kernel.
                chosen = match(scop, select(scop, hardware))[0]
        found.append((scop, explain_matches(scop, hardware, chosen, sharing, problem)))
    return _Explained(tuple(found), problem, edits=start.trace)


def _show(
    explained: _Explained, hardware: HardwareSpec, workload: Workload, *, as_json: bool
) -> None:
    from hwgen.report.text import explanations

    problem = explained.problem
    if as_json:
        from hwgen.cli.records import print_record
        from hwgen.report.records import error_record, statement_records

        print_record(
            "explain",
            {
                "chip": hardware.name,
                "workload": workload.name,
                "phases": [{"statements": statement_records(s, e)} for s, e in explained.phases],
                "spilled": [str(spill) for spill in explained.spills],
                "problem": None if problem is None else error_record(problem.diagnostic),
            },
            ok=True,
        )
        return
    if explained.edits:
        typer.echo(f"said otherwise, for calls to compute it:\n{explained.edits}")
    several = len(explained.phases) > 1
    for number, (scop, found) in enumerate(explained.phases):
        heading = f"phase {number}\n" if several else ""
        typer.echo(heading + explanations(scop, found))
    for spill in explained.spills:
        typer.echo(str(spill))
    if problem is not None:
        typer.echo(f"\n{_cannot(hardware)} {workload.name}:\n{problem}")


def _cannot(hardware: HardwareSpec) -> str:
    """Who does not run a workload whole: where there is a processor, it does the rest."""
    if hardware.processor is None:
        return f"{hardware.name} cannot run"
    return f"the units of {hardware.name}, whose processor does the rest, cannot run"
