"""`check`, `schema` and `explain`: what a file says and how an intrinsic fits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from hwgen.cli.resolve import assign, parse_assignments, resolve
from hwgen.errors import HwgenError
from hwgen.spec.find import find_spec

if TYPE_CHECKING:
    from hwgen.spec.hardware import HardwareSpec
    from hwgen.spec.workload import Workload
    from hwgen.spilling import Spill


def check(spec: str, settings: Sequence[str]) -> None:
    """Load a chip and print its summary."""
    from hwgen.report.chip import summary
    from hwgen.spec.load import load_hardware

    path = find_spec(spec)
    parameters, _ = assign(parse_assignments(settings), path, (), every=False)
    hardware = load_hardware(path, dict(parameters))
    typer.echo(f"{path}: valid\n{summary(hardware)}")


def schema(*, workload: bool) -> None:
    """Print a JSON Schema."""
    from hwgen.spec.load import hardware_json_schema, workload_json_schema

    made = workload_json_schema() if workload else hardware_json_schema()
    typer.echo(json.dumps(made, indent=2))


def explain(spec: str, workload: str, settings: Sequence[str]) -> None:
    """Print every statement against every intrinsic, bound as `generate` binds them."""
    from hwgen.pipeline import compile_kernel
    from hwgen.polyhedral import isl
    from hwgen.polyhedral.explain import explain as explain_matches
    from hwgen.polyhedral.matching import match
    from hwgen.polyhedral.phases import split_phases
    from hwgen.polyhedral.scop import build_scop
    from hwgen.polyhedral.select import select
    from hwgen.report.text import explanations
    from hwgen.spec.load import load_hardware, load_workload

    request = resolve(spec, [workload], settings)
    hardware = load_hardware(request.spec, dict(request.parameters))
    wanted = request.workloads[0]
    loaded = load_workload(wanted.path, dict(wanted.sizes))
    if hardware.processor is not None and not hardware.units:
        from hwgen.cli.nest import explain as explain_nest

        explain_nest(loaded, hardware)
        return
    if len(split_phases(loaded)) > 1:
        _explain_phases(loaded, hardware)
        return
    chosen, problem = None, None
    with isl.bounded():
        scop = build_scop(loaded)
        try:
            chosen = match(scop, select(scop, hardware))[0]
        except HwgenError as error:
            problem = error
    if chosen is not None:
        try:
            chosen = compile_kernel(loaded, hardware).match
        except HwgenError as error:  # The first match stays: it is not what prevents a kernel.
            problem = error
    typer.echo(explanations(scop, explain_matches(scop, hardware, chosen)))
    if problem is not None:
        typer.echo(f"\n{_cannot(hardware)} {scop.workload.name}:\n{problem}")


def _explain_phases(workload: Workload, hardware: HardwareSpec) -> None:
    """Every phase's statements; where the kernel does not compile, why."""
    from hwgen.pipeline import PhasedCompilation, compile_kernel
    from hwgen.polyhedral.explain import explain as explain_matches
    from hwgen.polyhedral.operations import Sharing
    from hwgen.polyhedral.phases import split_phases
    from hwgen.polyhedral.scop import build_scop
    from hwgen.report.text import explanations

    found: list[str] = []
    problem = ""
    spills: tuple[Spill, ...] = ()
    try:
        compiled = compile_kernel(workload, hardware)
        assert isinstance(compiled, PhasedCompilation)
        found = [explanations(p.scop, p.explanations) for p in compiled.phases]
        spills = compiled.spills
    except HwgenError as error:
        for phase in split_phases(workload):
            scop = build_scop(phase.workload)
            sharing = Sharing(leaves=phase.leaves, fetches=phase.takes)
            found.append(explanations(scop, explain_matches(scop, hardware, None, sharing)))
        problem = f"\n{_cannot(hardware)} {workload.name}:\n{error}"
    for number, text in enumerate(found):
        typer.echo(f"phase {number}\n{text}")
    for spill in spills:
        typer.echo(str(spill))
    if problem:
        typer.echo(problem)


def _cannot(hardware: HardwareSpec) -> str:
    """Who does not run a workload whole: where there is a processor, it does the rest."""
    if hardware.processor is None:
        return f"{hardware.name} cannot run"
    return f"the units of {hardware.name}, whose processor does the rest, cannot run"
