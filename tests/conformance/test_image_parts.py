"""Tensors in parts: one image for what several statements store, and for what none does."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from hwgen.codegen.lower.image_uses import images_refused
from hwgen.codegen.nodes import calls
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_kernel
from hwgen.polyhedral.match.matching import match
from hwgen.polyhedral.match.select import select
from hwgen.polyhedral.phases import split_phases
from hwgen.polyhedral.scop import build_scop
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import Engine, examine
from tests.sampling import EVERYTHING, QUICK, THOROUGH, tiered
from tests.small_npu import npu_of

ROOT = Path(__file__).resolve().parents[2]
ENGINES: tuple[Engine, ...] = ("python", "c") if have_compiler() else ("python",)
NPU = ROOT / "hw_specs" / "npu_shared_buffer.yaml"

Part = tuple[str, dict[str, int]]


def run(compute: list[Part], size: int = 0, /, **shapes: str) -> Kernel:
    """Compiled for a chip with so large a memory, and right."""
    tensors = {name: f"float32[{shape}]" for name, shape in shapes.items()}
    statements = [{"do": do, "loops": loops} for do, loops in compute]
    workload = parse_workload({"name": "parts", "tensors": tensors, "compute": statements})
    kernel = compile_kernel(workload, npu_of(size) if size else load_hardware(NPU), options=QUICK)
    for engine in ENGINES:
        examine(kernel, draw_inputs(workload, 1, "small"), engine)
    return kernel


EIGHT, NARROW = {"i": 8, "j": 16}, {"i": 8, "j": 7}
PARTS: dict[str, tuple[str, dict[str, dict[str, int]]]] = {
    "below": ("16, 16", {"i, j": EIGHT, "i + 8, j": EIGHT}),
    "above": ("16, 16", {"i + 8, j": EIGHT, "i, j": EIGHT}),
    "beside": ("8, 14", {"i, j": NARROW, "i, j + 7": NARROW}),
    "between": ("16, 16", {"2*i, j": EIGHT, "2*i + 1, j": EIGHT}),
    "backwards": ("16, 16", {"7 - i, j": EIGHT, "i + 8, j": EIGHT}),
    "across": ("16, 16", {"i, j": EIGHT, "j + 8, i": {"i": 16, "j": 8}}),
    "in three": ("24, 16", {"i, j": EIGHT, "i + 16, j": EIGHT, "i + 8, j": EIGHT}),
}


def parts(tensor: str, case: str) -> list[Part]:
    """The statements that write a tensor's parts, each from an input of its own."""
    written = PARTS[case][1].items()
    return [
        (f"{tensor}[{index}] = max(x{n}[i, j] + {n}.0, 0)", loops)
        for n, (index, loops) in enumerate(written)
    ]


def inputs(case: str) -> dict[str, str]:
    return {f"x{n}": f"{p['i']}, {p['j']}" for n, p in enumerate(PARTS[case][1].values())}


@pytest.mark.parametrize("size", [0, pytest.param(600, marks=THOROUGH)])
@pytest.mark.parametrize("case", tiered([*PARTS], [*PARTS][1::3]))
def test_statements_store_parts_of_an_output(case: str, size: int) -> None:
    kernel = run(parts("y", case), size, **inputs(case), y=PARTS[case][0])
    assert [i.name for i in kernel.program.images if i.tensor == "y"] == ["y_image"]


@pytest.mark.parametrize("size", [pytest.param(0, marks=THOROUGH), 400])
@pytest.mark.parametrize("case", tiered([*PARTS], [*PARTS][::3]))
def test_statements_write_parts_of_what_later_phases_read(case: str, size: int) -> None:
    """Stored and loaded as one image where it does not stay on the chip."""
    rows, columns = map(int, PARTS[case][0].split(", "))
    loops = {"i": rows, "j": columns}
    readers: list[Part] = [("y[i] += t[i, j]", loops), ("z[i] max= t[i, j]", loops)]
    shapes = {**inputs(case), "t": PARTS[case][0], "y": str(rows), "z": str(rows)}
    kernel = run([*parts("t", case), *readers], size, **shapes)
    stored = [i.name for i in kernel.program.images if i.tensor == "t"]
    assert stored == (["t_image"] if size else [])


ALL_OVERLAPS = tuple(product((0, 8, 15), (0, 600, 1200)))
OVERLAPS = ALL_OVERLAPS if EVERYTHING else ((0, 0), (8, 0), (8, 600), (15, 0), (15, 1200))
"""By how many rows, and the size of the memory."""


@pytest.mark.parametrize(("shift", "size"), tiered(OVERLAPS, OVERLAPS[:2]))
def test_parts_that_overlap_are_stored_in_their_order(shift: int, size: int) -> None:
    loops = {"i": 16, "j": 16}
    compute = [("y[i, j] = max(x[i, j], 0)", loops), (f"y[i + {shift}, j] = u[i, j] * 2.0", loops)]
    shapes = {"x": "16, 16", "u": "16, 16", "y": f"{16 + shift}, 16"}
    run(compute, size, **shapes)


# Entries of several elements

GEMMINI = ROOT / "hw_specs" / "gemmini.yaml"
TWO_STAGE = ROOT / "tests" / "specs" / "two_stage.yaml"


@pytest.mark.parametrize("rows", [1, 4, 13, 16])
def test_parts_agree_on_what_an_entry_holds(rows: int) -> None:
    """One row more: entries along rows would hold it, and three rows that are not there."""
    workload = blocked(f"{rows + 1}, 16", (rows, 16), (1, 16), f"i + {rows}, j")
    kernel = compile_kernel(workload, load_hardware(TWO_STAGE), options=QUICK)
    for engine in ENGINES:
        examine(kernel, draw_inputs(workload, 1, "small"), engine)


def test_parts_that_do_not_agree_are_refused() -> None:
    workload, hardware = blocked("17, 16", (16, 16), (1, 16), "i + 16, j"), load_hardware(TWO_STAGE)
    scop = build_scop(workload)
    found = (images_refused(hardware, scop, m) for m in match(scop, select(scop, hardware)))
    known = next(error for error in found if error is not None).diagnostic
    assert (known.code, known.field) == ("H504", "tensors.t")
    assert known.found == (
        "float32[5, 16, 4] at (p0 * 4 + p2, p1) in ddr and "
        "float32[17, 16, 4] at (p0 + p2 * 17, p1) in ddr"
    )
    assert known.repair


@pytest.mark.parametrize(("target", "shape"), [("m + 16, h", "40, 33"), ("m, h", "40, 33")])
def test_parts_of_whole_entries_go_between_phases(target: str, shape: str) -> None:
    kernel = compile_kernel(layers(target, shape), load_hardware(GEMMINI), options=QUICK)
    assert "t_image" in kernel.program.image
    for engine in ENGINES:
        examine(kernel, draw_inputs(kernel.workload, 1), engine)


def test_parts_within_entries_go_lane_by_lane() -> None:
    """No lanes run along a row that begins inside an entry; one lane of each entry takes part."""
    kernel = compile_kernel(layers("m, h + 3", "19, 64"), load_hardware(GEMMINI), options=QUICK)
    assert {c.lanes for c in calls(kernel.program.body) if c.intrinsic == "mvout"} >= {(1,)}
    for engine in ENGINES:
        examine(kernel, draw_inputs(kernel.workload, 1), engine)


@pytest.mark.parametrize(("target", "shape"), [("m, h + 3", "19, 64"), ("m, 2*h", "19, 66")])
def test_parts_within_entries_are_refused(target: str, shape: str, tmp_path: Path) -> None:
    """Entries hold 16 elements of a row: `t` cannot leave the chip so (H302), nor stay (H301)."""
    whole = re.sub(r"\b([cjk]): 1\.\.DIM", r"\1: DIM", GEMMINI.read_text())
    (tmp_path / "chip.yaml").write_text(whole)
    workload, hardware = layers(target, shape), load_hardware(tmp_path / "chip.yaml")
    assert not any(i.partial for i in hardware.intrinsics)
    with pytest.raises(HwgenError, match="H301"):
        compile_kernel(workload, hardware, options=QUICK)
    scop = build_scop(split_phases(workload)[0].workload)
    found = [images_refused(hardware, scop, m) for m in match(scop, select(scop, hardware))]
    known = next(error for error in found if error is not None).diagnostic
    assert known.code == "H302"
    assert "does not split into an entry and a lane of 16 along h" in known.found
    assert known.repair


def layers(target: str, shape: str) -> Workload:
    """Two products; `t` goes from one to the other."""
    value = "int8(clip(round(float32({}) * 0.0078125), -128, 127))"
    m, h, n = 19, 33, 5
    return parse_workload(
        {
            "name": "layers",
            "tensors": {
                "x": f"int8[{m}, 7]",
                "w": f"int8[7, {h}]",
                "v": f"int8[{h}, {n}]",
                "s": f"int32[{m}, {h}]",
                "t": f"int8[{shape}]",
                "q": f"int32[{m}, {n}]",
                "y": f"int8[{m}, {n}]",
            },
            "compute": [
                {"do": "s[m, h] += x[m, k] * w[k, h]", "loops": {"m": m, "h": h, "k": 7}},
                {"do": f"t[{target}] = {value.format('s[m, h]')}", "loops": {"m": m, "h": h}},
                {"do": f"q[m, n] += t[{target}] * v[h, n]", "loops": {"m": m, "n": n, "h": h}},
                {"do": f"y[m, n] = {value.format('q[m, n]')}", "loops": {"m": m, "n": n}},
            ],
        }
    )


def blocked(shape: str, one: tuple[int, int], other: tuple[int, int], index: str) -> Workload:
    """Two statements that write parts of `t`."""
    return parse_workload(
        {
            "name": "entries",
            "tensors": {
                "x": f"float32[{one[0]}, {one[1]}]",
                "u": f"float32[{other[0]}, {other[1]}]",
                "t": f"float32[{shape}]",
            },
            "compute": [
                {"do": "t[i, j] = max(x[i, j], 0)", "loops": {"i": one[0], "j": one[1]}},
                {"do": f"t[{index}] = max(u[i, j], 0)", "loops": {"i": other[0], "j": other[1]}},
            ],
        }
    )


# Tensors of which no statement writes the rest


def between(target: str, loops: dict[str, int]) -> list[Part]:
    """Two phases that read the part of `t` that another writes."""
    return [
        (f"t[{target}] = max(x[i, j], 0)", loops),
        (f"y[i] += t[{target}]", loops),
        (f"z[i] max= t[{target}]", loops),
    ]


@pytest.mark.parametrize("size", [0, 400])
@pytest.mark.parametrize(
    ("target", "shape"),
    [("i + 2, j + 3", "13, 21"), ("9 - i, j + 1", "10, 36")],
)
def test_a_part_of_a_tensor_goes_between_phases(target: str, shape: str, size: int) -> None:
    compute = between(target, {"i": 10, "j": 18})
    kernel = run(compute, size, x="10, 18", t=shape, y="10", z="10")
    stored = [i.name for i in kernel.program.images if i.tensor == "t"]
    assert stored == (["t_image"] if size else [])


@pytest.mark.parametrize(
    ("target", "shape", "gap"), [("2*i, j", "20, 18", "t["), ("i, 3*j", "10, 52", "t[0, ")]
)
def test_a_part_with_gaps_stays_or_is_refused(target: str, shape: str, gap: str) -> None:
    """A load of a box would bring the gaps, which nothing has written."""
    compute, shapes = between(target, {"i": 10, "j": 18}), {"x": "10, 18", "y": "10", "z": "10"}
    run(compute, **shapes, t=shape)
    with pytest.raises(HwgenError, match="H505") as refused:
        run(compute, 400, **shapes, t=shape)
    known = refused.value.diagnostic
    assert known.field == "tensors.t"
    assert known.found.startswith(gap)
    assert known.allowed
    assert known.repair


def test_gaps_that_another_statement_writes_are_none() -> None:
    loops = {"i": 10, "j": 18}
    odd = ("t[2*i + 1, j] = x[i, j] * 2.0", loops)
    compute = [*between("2*i, j", loops)[:1], odd, *between("2*i, j", loops)[1:]]
    kernel = run(compute, 400, x="10, 18", t="20, 18", y="10", z="10")
    assert "t_image" in kernel.program.image
