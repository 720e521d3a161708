"""`hwgen.build`: what it takes, what its kernels are called with, and what they give."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import pytest

import hwgen
from hwgen.autoschedule.options import Options
from hwgen.cli import main
from hwgen.errors import HwgenError
from hwgen.kernel import Engine, Kernel
from hwgen.model.c_compiler import have_compiler
from hwgen.model.native import lacking
from hwgen.model.reference import run_reference
from hwgen.passes.phase import SearchOptions
from hwgen.report.figures import timeline
from hwgen.report.kernels import kernel_html
from hwgen.report.recording import record
from hwgen.report.svg import timeline_svg
from hwgen.spec.find import shipped_in
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.shown import LONGEST
from hwgen.verify.data import draw_inputs
from tests.conftest import Golden
from tests.sampling import QUICK

GOLDENS = Path(__file__).parents[1] / "error" / "python"
SMALL = {"M": 2, "N": 32, "K": 32}
HTML = "_repr_html_"
Array = npt.NDArray[Any]

needs_c = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


@pytest.fixture(scope="module")
def gemm() -> Kernel:
    return hwgen.build("gemm", "vta", sizes=SMALL, engine="python", options=QUICK)


def drawn(kernel: Kernel) -> tuple[list[Array], list[Array]]:
    """Inputs, and the outputs that the reference has for them."""
    inputs = draw_inputs(kernel.workload, 1)
    return list(inputs.values()), list(run_reference(kernel.workload, inputs).values())


def same(found: object, expected: Sequence[Array]) -> None:
    results = cast("tuple[Array, ...]", found if isinstance(found, tuple) else (found,))
    assert len(results) == len(expected)
    for mine, theirs in zip(results, expected, strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(
            mine.astype(np.float64), theirs.astype(np.float64), rtol=1e-4, atol=1e-4
        )


def html(shown: object) -> str:
    """What a notebook shows."""
    text = cast("str", getattr(shown, HTML)())
    ElementTree.fromstring(f"<body>{text}</body>")
    return text


class Foreign:
    """An array of another library, by one protocol or the other."""

    def __init__(self, array: Array) -> None:
        self.array = array


class ByDLPack(Foreign):
    def __dlpack__(self, **keywords: Any) -> object:
        return cast("Any", self.array).__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return cast("Any", self.array).__dlpack_device__()


class ByArray(Foreign):
    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        assert (dtype, copy) in ((None, None), (None, False))
        return self.array


class Elsewhere(Foreign):
    def __dlpack__(self, **keywords: Any) -> object:
        raise BufferError(f"the array is on device 1\n({len(keywords)} keywords)")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 1)


@pytest.mark.parametrize(
    ("workload", "chip", "sizes"),
    [
        ("gemm", "vta", SMALL),
        ("linear_relu", "npu_shared_buffer", None),
        ("matmul", "cpu_generic", {"M": 9, "N": 10, "K": 11}),
        ("relu", "cuda_generic", {"M": 3, "N": 40}),
    ],
)
@pytest.mark.parametrize("engine", ["python", "c"])
def test_every_kind_of_chip_computes_what_the_reference_does(
    workload: str, chip: str, sizes: Mapping[str, int] | None, engine: Engine
) -> None:
    units = hwgen.load_hardware(chip).units
    options = QUICK if units else Options(attempts=2)
    kernel = hwgen.build(workload, chip, sizes=sizes, engine=engine, options=options)
    assert kernel.engine == engine
    inputs, expected = drawn(kernel)
    before = [np.array(a) for a in inputs]
    if engine == "c" and not have_compiler():
        with pytest.raises(HwgenError, match=r"H703|H705"):
            kernel(*inputs)
        return
    if engine == "c" and kernel.hardware.processor and kernel.hardware.processor.language != "c":
        with pytest.raises(HwgenError, match="H705"):
            kernel(*inputs)
        assert hwgen.build(workload, chip, sizes=sizes, options=options).engine == "python"
        return
    first = kernel(*inputs)
    same(first, expected)
    same(
        kernel(**{t.name: a for t, a in zip(kernel.workload.inputs, inputs, strict=True)}), expected
    )
    assert all(np.array_equal(a, b) for a, b in zip(inputs, before, strict=True))
    assert kernel.cycles >= kernel.bound > 0
    assert "equal to the reference" in repr(kernel.check(seed=3))
    assert "<script" not in html(kernel)
    again = hwgen.build(kernel.workload, kernel.hardware, script=kernel.script, auto=False)
    assert again.c == kernel.c
    assert again.cycles == kernel.cycles


def requiring(*macros: str) -> HardwareSpec:
    """A core's vector units, of machines for which compilers define some macros."""
    chip = hwgen.load_hardware("x86_avx2")
    return replace(chip, code=replace(chip.code, requires=macros))


@needs_c
def test_a_core_computes_itself_where_it_has_the_instructions() -> None:
    """Every machine defines how wide a byte is; C of a chip that says nothing is on the model."""
    sizes = {"M": 5, "N": 9, "K": 7}
    here = not lacking(hwgen.load_hardware("x86_avx2"))
    kernel = hwgen.build("matmul", "x86_avx2", sizes=sizes, options=QUICK)
    assert kernel.engine == ("native" if here else "c")
    inputs, expected = drawn(kernel)
    same(kernel(*inputs), expected)
    assert lacking(requiring("__CHAR_BIT__")) == []
    assert hwgen.build("matmul", requiring(), sizes=sizes, options=QUICK).engine == "c"


@needs_c
def test_instructions_that_a_machine_lacks_are_named() -> None:
    chip = requiring("__CHAR_BIT__", "__NO_SUCH_MACHINE__")
    sizes = {"M": 5, "N": 9, "K": 7}
    assert hwgen.build("matmul", chip, sizes=sizes, options=QUICK).engine == "c"
    kernel = hwgen.build("matmul", chip, sizes=sizes, options=QUICK, engine="native")
    with pytest.raises(HwgenError, match="H705") as told:
        kernel(*drawn(kernel)[0])
    assert told.value.diagnostic.found == "no __NO_SUCH_MACHINE__"
    given = hwgen.build("gemm", "vta", sizes=SMALL, engine="native", options=QUICK)
    with pytest.raises(HwgenError, match=r"no code\.requires"):
        given(*drawn(given)[0])


@needs_c
def test_a_kernel_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = hwgen.build("relu", "vta", sizes={"M": 4, "N": 32}, options=QUICK)
    assert kernel.engine == "c"
    inputs, expected = drawn(kernel)
    same(kernel(*inputs), expected)

    def none(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr("hwgen.model.compiled.load_library", none)
    same(kernel(*inputs), expected)


def test_arrays_of_any_kind(gemm: Kernel) -> None:
    (a, b), expected = drawn(gemm)
    strided = np.asfortranarray(a)
    assert not strided.flags.c_contiguous
    frozen = np.array(b)
    frozen.setflags(write=False)
    same(gemm(strided, b), expected)
    same(gemm(a, b=frozen), expected)
    same(gemm(np.stack([a, a], axis=2)[..., 0], frozen), expected)
    same(gemm(ByDLPack(a), ByArray(b)), expected)


def test_elements_off_their_alignment() -> None:
    kernel = hwgen.build(
        "matmul", "cpu_generic", sizes={"M": 3, "N": 8, "K": 5}, options=Options(attempts=1)
    )
    (x, y), expected = drawn(kernel)
    shifted = np.ndarray(x.shape, x.dtype, b"\0" + x.tobytes(), offset=1)
    assert not shifted.flags.aligned
    same(kernel(shifted, y), expected)


def test_several_outputs_are_a_tuple_in_their_order() -> None:
    workload = hwgen.workload(
        "two",
        tensors={"x": "float32[8]", "high": "float32[8]", "low": "float32[8]"},
        compute=["low[i] = min(x[i], 0)", "high[i] = max(x[i], 0)"],
    )
    kernel = hwgen.build(workload, "cpu_generic", engine="python")
    x = np.arange(-4, 4, dtype=np.float32)
    found = kernel(x)
    assert isinstance(found, tuple)
    same(found, [np.maximum(x, 0), np.minimum(x, 0)])


def refused(golden: Golden, name: str, code: str, caught: pytest.ExceptionInfo[HwgenError]) -> None:
    assert caught.value.code == code
    text = str(caught.value).replace(str(Path(hwgen.__file__).parents[1]), ".")
    golden(GOLDENS / f"{name}.txt", text)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("engine", {"engine": "pyton"}),
        ("sizes", {"sizes": SMALL}),
        ("options", {"options": Options()}),
        ("slack", {"options": SearchOptions(slack=-0.01)}),
        ("chip", {"chip": hwgen.load_workload("relu")}),
        ("workload", {"workload": 3}),
        ("script", {"script": ["s.split('m', factor=2)"]}),
    ],
)
def test_another_argument(
    golden: Golden, gemm: Kernel, name: str, arguments: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"workload": gemm.workload, "chip": gemm.hardware} | arguments
    with pytest.raises(HwgenError) as caught:
        hwgen.build(**given)
    refused(golden, f"build_{name}", "H050", caught)


def test_a_schedule_of_another_workload(golden: Golden, gemm: Kernel) -> None:
    other = hwgen.Schedule(hwgen.load_workload("relu"), gemm.hardware)
    with pytest.raises(HwgenError) as caught:
        hwgen.build(gemm.workload, gemm.hardware, script=other)
    refused(golden, "build_schedule", "H050", caught)


@pytest.mark.parametrize(
    ("name", "places", "named"),
    [
        ("too_many", 3, ()),
        ("too_few", 1, ()),
        ("none", 0, ()),
        ("unknown", 1, ("B",)),
        ("twice", 2, ("a",)),
    ],
)
def test_other_inputs(
    golden: Golden, gemm: Kernel, name: str, places: int, named: Sequence[str]
) -> None:
    a, b = drawn(gemm)[0]
    with pytest.raises(HwgenError) as caught:
        gemm(*[a, b, b][:places], **dict.fromkeys(named, b))
    refused(golden, f"inputs_{name}", "H051", caught)


@pytest.mark.parametrize("name", ["list", "device", "masked"])
def test_what_is_no_array(golden: Golden, gemm: Kernel, name: str) -> None:
    a, b = drawn(gemm)[0]
    with pytest.raises(HwgenError) as caught:
        gemm(a, {"list": b.tolist(), "device": Elsewhere(b), "masked": np.ma.array(b)}[name])
    refused(golden, f"array_{name}", "H052", caught)


@pytest.mark.parametrize("name", ["dtype", "both", "transposed", "flat", "larger"])
def test_an_array_that_does_not_fit(golden: Golden, gemm: Kernel, name: str) -> None:
    a, b = drawn(gemm)[0]
    given: dict[str, Array] = {
        "dtype": a.astype(np.int64),
        "both": np.zeros((4, 32)),
        "transposed": np.transpose(a),
        "flat": a.ravel(),
        "larger": np.concatenate([a, a]),
    }
    with pytest.raises(HwgenError) as caught:
        gemm(given[name], b)
    refused(golden, f"fits_{name}", "H053", caught)


@pytest.mark.parametrize(
    ("workload", "chip", "sizes"),
    [("gemm", "vta", {"M": 2, "N": 20, "K": 40}), ("relu", "cpu_generic", {"M": 3})],
)
def test_what_is_saved_is_what_generate_writes(
    workload: str, chip: str, sizes: dict[str, int], tmp_path: Path
) -> None:
    kernel = hwgen.build(workload, chip, sizes=sizes)
    written = kernel.save(tmp_path / "mine")
    settings = [f"--set={name}={value}" for name, value in sizes.items()]
    command = ["generate", "--spec", chip, "--workload", workload, *settings]
    assert main([*command, "-o", str(tmp_path / "theirs")]) == 0
    theirs = sorted((tmp_path / "theirs").iterdir())
    assert sorted(p.name for p in written) == [p.name for p in theirs]
    for path in theirs:
        assert (tmp_path / "mine" / path.name).read_bytes() == path.read_bytes()


def test_a_page_is_given_and_written(gemm: Kernel, tmp_path: Path) -> None:
    text = gemm.report(tmp_path / "own.html")
    assert "<!doctype html>" in text[:200]
    assert (tmp_path / "own.html").read_text(encoding="utf-8") == text
    gemm.report(tmp_path / "folder")
    assert (tmp_path / "folder" / f"{gemm.name}.html").is_file()
    loops = hwgen.build("relu", "cpu_generic", options=Options(attempts=1))
    assert "<title>relu on cpu_generic</title>" in loops.report()
    assert str(loops).startswith("relu on cpu_generic")


def test_a_schedule_by_hand(tmp_path: Path) -> None:
    s = hwgen.Schedule(hwgen.load_workload("relu", {"M": 4}), hwgen.load_hardware("cpu_generic"))
    s.parallel("m")
    kernel = hwgen.build(s.workload, s.hardware, script=s, auto=False, engine="python")
    assert kernel.script == s.trace()
    file = tmp_path / "mine.py"
    file.write_text(kernel.script, encoding="utf-8")
    assert hwgen.build(s.workload, s.hardware, script=file, auto=False).c == kernel.c
    file.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(HwgenError, match="H418"):
        hwgen.build(s.workload, s.hardware, script=file)


def test_scripts_for_units(gemm: Kernel) -> None:
    begun = "".join(gemm.script.splitlines(keepends=True)[:1])
    whole = hwgen.build(gemm.workload, gemm.hardware, script=begun, options=QUICK)
    assert whole.script.startswith(begun)
    with pytest.raises(HwgenError, match="H421"):
        hwgen.build(gemm.workload, replace(gemm.hardware, processor=None), auto=False)
    coded = hwgen.build(gemm.workload, gemm.hardware, auto=False)
    assert not coded.compilation.parts
    assert len(coded.compilation.program.codes) == len(coded.compilation.program.parts)


def test_a_picture_has_a_bar_for_every_call(gemm: Kernel) -> None:
    compilation = gemm.compilation
    assert compilation.parts
    recording = record(compilation.program, gemm.hardware, compilation.timing, 5)
    assert not recording.complete
    for drawn_calls in (5, 1000):
        text = timeline_svg(compilation, drawn_calls)
        bars = text.count("</title></rect>")
        assert bars == min(drawn_calls, compilation.timing.operations)
        assert (f", of {gemm.cycles:,} cycles" in text) == (bars == 5)
        assert all(f">{u.name}</text>" in text for u in gemm.hardware.units)


def test_a_picture_has_a_row_for_the_processor_beside_units(gemm: Kernel) -> None:
    coded = hwgen.build(gemm.workload, gemm.hardware, auto=False).compilation
    assert coded.program.codes
    text = timeline_svg(coded)
    assert text.count("</title></rect>") == coded.timing.operations
    assert ">processor</text>" in text
    assert text in kernel_html(coded)
    recording = record(coded.program, coded.hardware, coded.timing, 1000)
    layout = json.dumps(timeline(recording, coded.hardware)["layout"])
    assert '"categoryarray": ["processor", ' in layout


def test_the_page_about_python_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], known)
    assert repr(known["kernel"]).startswith("<Kernel gemm on vta, M=16, N=256, K=256: ")
    assert (tmp_path / "out" / "gemm_vta_M16.c").is_file()
    shown = (GOLDENS / "fits_larger.txt").read_text(encoding="utf-8")
    assert shown in page
    parameters = list(signature(hwgen.build).parameters)
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)[: len(parameters)] == [
        *("workload", "chip", "sizes", "dtypes", "script", "auto", "engine", "options"),
        *("objective", "trust"),
    ]
    assert len(parameters) == 10


def test_importing_hwgen_loads_nothing_heavy() -> None:
    heavy = ("numpy", "islpy", "pydantic", "jinja2", "plotly", "hwgen.kernel")
    code = f"import sys, hwgen; dir(hwgen); print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("folder", ["hw_specs", "workloads"])
def test_what_ships_is_one_line_and_html(folder: str) -> None:
    for path in shipped_in(folder):
        shown = hwgen.load_hardware(path) if folder == "hw_specs" else hwgen.load_workload(path)
        assert shown.name in repr(shown)
        one_line(shown)
        assert "<table>" in html(shown)
        assert "<script" not in html(shown)


def one_line(shown: object) -> None:
    assert len(repr(shown)) < 200
    assert "\n" not in repr(shown)


def test_what_is_compiled_is_one_line(gemm: Kernel) -> None:
    made = gemm.compilation
    assert made.parts
    loops = hwgen.build("relu", "cpu_generic", options=Options(attempts=1))
    for shown in (
        *(gemm, made, made.program, made.schedule),
        *(loops, loops.compilation, gemm.check()),
    ):
        one_line(shown)
    assert str(made.program).startswith("kernel gemm_vta")
    many = hwgen.load_workload("gemm")
    assert len(repr(replace(many, name="x" * 500))) < LONGEST + 20
