"""Random chains of stages under random schedules: buffers share room, and results stay right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from hwgen.codegen.nodes import Code, Routine, nodes
from hwgen.codegen.processor.emit import emit_nest
from hwgen.codegen.processor.lower import lower_nest
from hwgen.codegen.processor.races import findings
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.model.reference import run_reference
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.verify.data import draw_inputs
from tests.fuzz.nest_calls import CallDraws
from tests.fuzz.nest_runs import HOST, Kernel, Target, run_kernels
from tests.fuzz.nest_workloads import Data, Draws
from tests.fuzz.schedules import make
from tests.property.test_schedules import CPU, CUDA, SHIM
from tests.sampling import THOROUGH, examples

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no C compiler")
TYPES = ("int32", "int8", "uint8", "int16", "int64")


def drawn_chain(draws: Draws, name: str) -> Data:
    """Stages of rows: sums of neighbours, other elements of a row and sums over rows, each of the
    stage before and now and then of an older one too."""
    rows, width = draws(range(1, 5)), draws(range(1, 9))
    tensors = {"x": f"int8[{rows}, {width}]"}
    shapes = {"x": (rows, width)}
    compute: list[str | Data] = []
    for n in range(draws(range(3, 9))):
        before = list(shapes)[-1]
        dtype = draws(TYPES)
        height, width = shapes[before]
        match draws(("neighbours", "wider", "reversed", "rows")):
            case "neighbours" if width > 1:
                width -= 1
                value = f"{before}[r, i] + {before}[r, i + 1]"
            case "wider":
                width += draws(range(1, 30))
                value = f"select(i < {shapes[before][1]}, {before}[r, i], i)"
            case "rows" if height > 1:
                tensors[f"t{n}"], shapes[f"t{n}"] = f"int32[1, {width}]", (1, width)
                loops = {"z": 1, "i": width, "r": height}
                compute.append({"do": f"t{n}[z, i] += int32({before}[r, i])", "loops": loops})
                continue
            case _:
                value = f"{before}[r, {width - 1} - i] - r"
        older = [t for t, shape in shapes.items() if shape[0] >= height and shape[1] >= width]
        if older and draws.chance(3):
            value = f"{value} + {draws(older)}[r, i]"
        shapes[f"t{n}"], tensors[f"t{n}"] = (height, width), f"{dtype}[{height}, {width}]"
        compute.append(f"t{n}[r, i] = {dtype}({value})")
    return {"name": name, "tensors": tensors, "compute": compute}


def scheduled(draws: Draws, data: Data, hardware: HardwareSpec) -> Schedule:
    """A chain, its stages placed in loops of later ones, and any other edits."""
    schedule = Schedule(parse_workload(data), hardware)
    source = CallDraws(draws, schedule)
    memories = [m.name for m in hardware.of_kind("workspace")]
    for stage in list(schedule.state.stages):
        loops = [x for s in schedule.state.stages for x in schedule.loops(s.tensor)]
        try:
            if draws.chance(2) and loops:
                schedule.compute_at(stage.tensor, draws(loops))
            if draws.chance(3):
                schedule.set_scope(stage.tensor, draws(memories))
        except HwgenError:
            continue
    for _ in range(draws(range(6))):
        for call in source.calls():
            make(schedule, call)
    return schedule


def kernel_of(schedule: Schedule, seed: int) -> tuple[Code, Kernel]:
    workload, hardware = schedule.workload, schedule.hardware
    program = lower_nest(schedule.resolved, schedule.homes, hardware)[0]
    source = emit_nest(program, hardware, workload)
    inputs = draw_inputs(workload, seed, "random")
    return program, Kernel(workload, program, source, inputs, run_reference(workload, inputs))


@pytest.mark.parametrize(
    ("spec", "target", "count"),
    [(CPU, HOST, 20), pytest.param(CUDA, SHIM, 50, marks=THOROUGH)],
    ids=["cpu", "cuda"],
)
def test_random_chains(spec: Path, target: Target, count: int) -> None:
    hardware = load_hardware(spec)
    assert hardware.processor is not None
    kernels: list[Kernel] = []
    seen: Counter[str] = Counter()
    for seed in range(examples(count)):
        draws = Draws(Random(seed).randrange)
        schedule = scheduled(draws, drawn_chain(draws, f"chain{seed}"), hardware)
        try:
            program, kernel = kernel_of(schedule, seed)
        except HwgenError as error:
            seen[error.code] += 1
            continue
        assert findings(program, hardware) == [], schedule.trace()
        kernels.append(kernel)
        members = [b for b in program.arrays if b.within]
        seen["shared"] += len({(b.within, b.address_bytes) for b in members}) < len(members)
        seen["typed"] += len({b.within for b in members if b.memory in ("stack", "local")})
        seen["routines"] += any(isinstance(n, Routine) for n in nodes(program.body))
    assert len(kernels) > 0.6 * count, seen
    assert seen["shared"] > 0.2 * count, seen
    assert seen["routines"] or spec == CUDA, seen
    messages = run_kernels(kernels, hardware, target)
    wrong = [(k.workload.name, m) for k, m in zip(kernels, messages, strict=True) if m]
    assert not wrong
