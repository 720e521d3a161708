"""Tensors between two phases that cannot stay on the chip: through off-chip memory, in order."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import permutations
from math import prod
from pathlib import Path

import pytest

from hwgen.codegen.nodes import Node, Sync, calls, rewritten
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.model.bound import lower_bound
from hwgen.model.columns import off_chip_traffic
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import SearchOptions, compile_kernel
from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import (
    Barriers,
    Events,
    HardwareSpec,
    Scoreboard,
    Synchronization,
    Tokens,
)
from hwgen.spec.load import load_hardware, load_workload, make_workload, parse_hardware
from hwgen.spec.source import parse_document
from hwgen.spec.workload import Workload
from hwgen.verify.check_program import check_program
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import Engine, examine
from tests.fuzz.edits import catch
from tests.fuzz.mutations_synchronisation import synchronisation_mutations
from tests.sampling import QUICK, WHOLE, tiered

ROOT = Path(__file__).resolve().parents[2]
ENGINES: tuple[Engine, ...] = ("python", "c") if have_compiler() else ("python",)


def spilled(workload: Workload, hardware: HardwareSpec, options: SearchOptions = QUICK) -> Kernel:
    kernel = compile_kernel(workload, hardware, options=options)
    assert kernel.account.phases
    return kernel


def names(kernel: Kernel) -> list[str]:
    return [s.tensor for s in kernel.account.spills]


# A memory that is too small

LARGE: list[tuple[str, dict[str, int], dict[str, int]]] = [
    # By tensor, how often its bytes are loaded at least.
    ("mlp", {"M": 260, "H": 260}, {"h1": 1}),
    ("attention", {"L": 280, "D": 16}, {"s": 2, "e": 2, "p": 1}),
    ("mlp", {"M": 300, "H": 300, "G": 240}, {"h1": 1, "h2": 1}),
    ("layernorm", {"M": 260, "N": 300}, {"c": 2}),
]


@cache
def large(name: str, sizes: tuple[tuple[str, int], ...]) -> Kernel:
    hardware = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")
    return spilled(load_workload(ROOT / "workloads" / f"{name}.yaml", dict(sizes)), hardware)


@pytest.mark.parametrize(("name", "sizes", "loads"), tiered(LARGE, LARGE[:2]), ids=str)
def test_what_does_not_fit_is_stored_and_loaded(
    name: str, sizes: dict[str, int], loads: dict[str, int]
) -> None:
    kernel = large(name, tuple(sizes.items()))
    assert sorted(names(kernel)) == sorted(loads)
    inputs = draw_inputs(kernel.workload, 1, "small")
    for engine in ENGINES:
        found = examine(kernel, inputs, engine).functional
        for tensor in kernel.workload.tensors if found is not None else ():
            assert found is not None
            size = prod(tensor.shape) * DTYPES[tensor.dtype]
            read = found.traffic_bytes("global", tensor.name, "read")
            written = found.traffic_bytes("global", tensor.name, "write")
            if tensor.role == "intermediate":
                assert written == (size if tensor.name in loads else 0), tensor.name
                assert read % size == 0, tensor.name
                assert read // size in range(loads.get(tensor.name, 0), 5), tensor.name
                assert (read > 0) == (tensor.name in loads), tensor.name


@pytest.mark.parametrize(("name", "sizes", "loads"), tiered(LARGE[:3], LARGE[:2]), ids=str)
def test_reports_count_it_and_the_bound_does_not(
    name: str, sizes: dict[str, int], loads: dict[str, int]
) -> None:
    kernel = large(name, tuple(sizes.items()))
    traffic = {
        t.tensor: t for t in off_chip_traffic(kernel.program, kernel.hardware, kernel.workload)
    }
    for tensor, times in loads.items():
        found = traffic[tensor]
        assert (found.role, found.stored) == ("intermediate", found.size)
        assert found.loaded >= times * found.size
    dma = dict(lower_bound(kernel.program, kernel.hardware).per_resource)["unit dma"]
    given = sum(prod(t.shape) * DTYPES[t.dtype] for t in kernel.workload.inputs)
    out = sum(prod(t.shape) * DTYPES[t.dtype] for t in kernel.workload.outputs)
    assert dma < 1.5 * (given + out) / 16 + 64


@pytest.mark.parametrize("of", ["large", "synchronised", "scaled"])
def test_a_script_says_so_too(of: str) -> None:
    if of == "large":
        kernel = large("mlp", (("M", 260), ("H", 260)))
    elif of == "synchronised":
        kernel = synchronised("tokens")
    else:
        path = ROOT / "tests" / "gemmini" / "workloads" / "two_layers.yaml"
        kernel = spilled(load_workload(path), load_hardware(ROOT / "hw_specs" / "gemmini.yaml"))
    again = compile_script(kernel.workload, kernel.hardware, kernel.script)
    assert again.program == kernel.program


def test_an_explanation_names_the_tensor_and_the_reason() -> None:
    kernel = large("mlp", (("M", 260), ("H", 260)))
    assert kernel.notes == (
        "h1 goes through off-chip memory: kept on the chip, no tiling fits memory local "
        "(the smallest tiles take 67605 entries, 270420 bytes of local)",
    )


def test_what_fits_stays() -> None:
    """The second tensor has room, and moves no byte."""
    kernel = large("mlp", (("M", 260), ("H", 260)))
    assert "h2" not in {image.tensor for image in kernel.program.images}


def test_what_its_own_phase_reads_too() -> None:
    """Stored, and read where it was computed."""
    tensors = dict.fromkeys("sgh", "float32[300, 300]") | dict.fromkeys("ty", "float32[300]")
    workload = make_workload(
        name="read_twice",
        sizes={},
        tensors={"x": "float32[300, 8]", "v": "float32[8, 300]", **tensors},
        compute=[
            "s[m, n] += x[m, k] * v[k, n]",
            "g[m, n] = max(s[m, n], 0)",
            "h[m, n] = g[m, n] + 1.0",
            "t[m] += g[m, n] * h[m, n]",
            "y[m] = t[m] + 1.0",
        ],
    )
    kernel = spilled(workload, load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml"))
    assert sorted(names(kernel)) == ["g", "h"]
    found = examine(kernel, draw_inputs(workload, 1, "small")).functional
    assert found is not None
    for tensor in "gh":
        assert found.traffic_bytes("global", tensor, "write") == 4 * 300 * 300
        assert found.traffic_bytes("global", tensor, "read") == 4 * 300 * 300


# Every kind of synchronisation, with a unit that stores and another that loads


@cache
def three_units(lanes: int = 8) -> HardwareSpec:
    """`mover` loads, `core` computes, `writer` stores; no way from sums back to where they are
    factors but off-chip memory."""
    text = (ROOT / "tests" / "specs" / "two_stage.yaml").read_text(encoding="utf-8")
    text = text.replace("  core: {}", "  core: {}\n  writer: {}")
    text = text.replace("  store:\n    unit: mover", "  store:\n    unit: writer")
    text = text.replace("[core, mover]]", "[core, mover], [core, writer], [writer, core]]")
    text = text.replace("wait_units: [mover]", "wait_units: [mover, writer]")
    return parse_hardware(document(text), {"LANES": lanes})


def document(text: str) -> dict[str, object]:
    data = parse_document(text, "three.yaml").data
    assert isinstance(data, dict)
    return dict(data)


def layers(m: int = 11, k: int = 24, h: int = 40, n: int = 13) -> Workload:
    return make_workload(
        name="layers",
        sizes={},
        tensors={
            "x": f"float32[{m}, {k}]",
            "w": f"float32[{k}, {h}]",
            "v": f"float32[{h}, {n}]",
            "s": f"float32[{m}, {h}]",
            "h": f"float32[{m}, {h}]",
            "y": f"float32[{m}, {n}]",
        },
        compute=[
            "s[m, j] += x[m, k] * w[k, j]",
            "h[m, j] = max(s[m, j], 0)",
            "y[m, n] += h[m, j] * v[j, n]",
        ],
    )


UNITS = ("mover", "core", "writer")
EVERY = tuple(permutations(UNITS, 2))
CHAINED = tuple(edge for edge in EVERY if "core" in edge)
KINDS: dict[str, Synchronization] = {
    "tokens": Tokens(EVERY, "", "", 1),
    "tokens through the core": Tokens(CHAINED, "", "", 1),
    "barrier": Barriers(UNITS, "wait", "wait_all", 4),
    "one barrier for all": Barriers((), "", "wait_all", 4),
    "events": Events(EVERY, 8, False, 1, "", "", 1, 1),
    "events through the core": Events(CHAINED, 8, False, 1, "", "", 1, 1),
    "semaphores": Events(EVERY, 16, True, 3, "", "", 0, 2),
    "scoreboard": Scoreboard(2, "fence", 3),
}


every_kind = pytest.mark.parametrize(
    "kind",
    tiered(
        [*KINDS],
        [
            k
            for k in KINDS
            if k not in ("tokens through the core", "barrier", "events", "semaphores")
        ],
    ),
)
"""Those that come in two forms in one of them, by `make test`."""


@cache
def synchronised(kind: str) -> Kernel:
    """By the whole search: a wait by way of the core needs a call of it in between."""
    hardware = replace(three_units(), synchronization=KINDS[kind], completion=None)
    return spilled(layers(), hardware, WHOLE)


@every_kind
def test_the_load_waits_for_the_store(kind: str) -> None:
    kernel = synchronised(kind)
    assert names(kernel) == ["h"]
    examine(kernel, draw_inputs(kernel.workload, 1, "small"))


@every_kind
def test_without_the_wait_it_is_a_race(kind: str) -> None:
    """All that orders what follows the store after it, dropped: the checker sees the image."""
    kernel = synchronised(kind)
    program = kernel.program

    def drop(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Sync):
            return (node,)
        source, unit = getattr(node, "source", ""), getattr(node, "unit", "writer")
        return () if source == "writer" or (not source and unit in ("", "writer")) else (node,)

    broken = replace(program, body=rewritten(program.body, drop))
    inputs = draw_inputs(kernel.workload, 1, "small")
    assert broken != program
    assert catch(broken, kernel.hardware, kernel.workload, inputs) == "H760"


@every_kind
def test_mutants_are_caught(kind: str) -> None:
    kernel = synchronised(kind)
    inputs = draw_inputs(kernel.workload, 1, "small")
    for mutation in synchronisation_mutations(kernel.hardware):
        for seed in range(4):
            mutant = mutation.mutate(kernel.program, seed)
            if mutant is not None:
                found = catch(mutant, kernel.hardware, kernel.workload, inputs)
                assert found in mutation.caught_by, (mutation.name, seed)


def test_a_scoreboard_without_a_fence_is_refused() -> None:
    hardware = replace(three_units(), synchronization=Scoreboard(2, "", 0), completion=None)
    with pytest.raises(HwgenError, match="H611") as refused:
        compile_kernel(layers(), hardware, options=QUICK)
    assert "no fence orders" in refused.value.diagnostic.message


# What goes through off-chip memory is really there


def test_a_load_of_what_was_not_stored_is_noticed() -> None:
    kernel = synchronised("scoreboard")
    stores = [c.site for c in calls(kernel.program.body) if _writes(c.operands, "h_image")]
    broken = _without(kernel.program, stores[0])
    inputs = draw_inputs(kernel.workload, 1, "small")
    assert catch(broken, kernel.hardware, kernel.workload, inputs) == "H717"


def _writes(operands: object, image: str) -> bool:
    return f"name='dst', buffer='{image}'" in str(operands)


def _without(program: Program, site: int) -> Program:
    def drop(node: Node) -> tuple[Node, ...]:
        return () if getattr(node, "site", None) == site else (node,)

    return replace(program, body=rewritten(program.body, drop))


def test_an_image_that_misses_an_element_is_noticed() -> None:
    kernel = synchronised("tokens")
    images = tuple(
        replace(i, outer=(i.outer[0] - 1, *i.outer[1:])) if i.role == "temporary" else i
        for i in kernel.program.images
    )
    with pytest.raises(HwgenError, match="H736"):
        check_program(replace(kernel.program, images=images), kernel.hardware, kernel.workload)


def test_entries_that_are_stored_and_loaded_otherwise_are_refused() -> None:
    """Stores of 4 elements, loads of 8: no image has entries of both."""
    with pytest.raises(HwgenError, match="H504") as refused:
        compile_kernel(layers(), three_units(4), options=QUICK)
    known = refused.value.diagnostic
    assert known.field == "tensors.h"
    assert "float32[11, 10, 4]" in known.found
    assert known.found.endswith(", 8] at (p0 * 4 + p2, p1 * 8 + p3) in ddr")
    assert known.repair


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_that_no_call_stores(engine: Engine) -> None:
    """Loads of whole blocks: what they bring past the end is zero, not anything."""
    hardware = load_hardware(ROOT / "hw_specs" / "gemmini.yaml")
    path = ROOT / "tests" / "gemmini" / "workloads" / "two_layers.yaml"
    workload = load_workload(path, {"M": 19, "K": 7, "H": 33, "N": 5})
    kernel = spilled(workload, hardware)
    image = kernel.program.image["h_image"]
    assert image.entries * 16 > 19 * 48
    examine(kernel, draw_inputs(workload, 1), engine)
