"""Numbers that reach C fit their types, or the schedule, size or spec is refused with a code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwgen import HwgenError, Schedule, load_hardware, load_workload
from hwgen.codegen.limits import check_kernel, check_nest
from hwgen.codegen.nodes import Assign, Code, Loop
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_kernel
from hwgen.spec.expression import Access, Binary, Const, Name
from hwgen.spec.load import parse_workload
from hwgen.spec.workload import Workload
from hwgen.verify.examine import Engine, examine

ROOT = Path(__file__).resolve().parents[3]
CPU = load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml")
CUDA = load_hardware(ROOT / "hw_specs" / "cuda_generic.yaml")
VTA = load_hardware(ROOT / "hw_specs" / "vta.yaml")
CHAIN: dict[str, object] = {
    "name": "chain",
    "sizes": {"N": 64},
    "tensors": {"a": "float32[N]", "b": "float32[N]", "c": "float32[N]"},
    "compute": ["b[i] = a[i] * 2", "c[i] = b[i] + 1"],
}
GEMM = load_workload(ROOT / "workloads" / "gemm.yaml", {"M": 16, "N": 16, "K": 16})


def chain() -> Workload:
    return parse_workload(CHAIN)


def refused(script: str) -> HwgenError:
    with pytest.raises(HwgenError) as caught:
        Schedule(chain(), CPU).replay(script)
    return caught.value


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("s.transform_layout('b', '[i] -> [i*4611686018427387904]')", "elements"),
        ("s.storage_align('b', 0, 4611686018427387904, 0)", "elements"),
        ("s.split('i', factor=10000000000000000000000000000000000000000)", "of 41 digits"),
        ("s.split('i', factor=1000000000000)", "1000000000000 iterations"),
        ("s.split('i', nparts=1000000000000)", "1000000000000 iterations"),
        ("s.set_address('b', 9223372036854775808)", "byte 9223372036854775808"),
        ("s.double_buffer('b')\ns.transform_layout('b', '[i] -> [i*17179869184]')", "elements"),
        (
            "o, i = s.split('i', factor=2147483647)\n"
            "oo, oi = s.split(o, factor=2147483647)\n"
            "ooo, ooi = s.split(oo, factor=2147483647)",
            "values such as",
        ),
    ],
)
def test_a_schedule_beyond_c_is_refused(script: str, found: str) -> None:
    """The first two allocated 64 bytes and overran them; the last is an index."""
    error = refused(script)
    assert error.code == "H617"
    assert found in error.diagnostic.found
    assert error.diagnostic.repair


@pytest.mark.parametrize(
    "line",
    [
        "s.storage_align('a_inp', 0, 4611686018427387904, 0)",
        "s.transform_layout('a_inp', '[i, j] -> [i*4611686018427387904, j]')",
        "s.set_address('a_inp', 9223372036854775808)",
        "s.split('c_m', factor=10000000000000000000000000000000000000000)",
    ],
)
def test_a_schedule_for_units_beyond_c_is_refused(line: str) -> None:
    script = f"s.cache_read('a', 'inp')\n{line}"
    with pytest.raises(HwgenError) as caught:
        compile_script(GEMM, VTA, script)
    assert re.fullmatch(r"H\d{3}", caught.value.code)


def integers(text: str) -> list[int]:
    """Integer constants of C text, with those in comments left out."""
    plain = re.sub(r'/\*.*?\*/|"[^"\n]*"|//[^\n]*', " ", text, flags=re.S)
    return [int(n) for n in re.findall(r"(?<![\w.])\d+(?![\w.])", plain)]


LARGE = st.one_of(
    st.integers(1, 100),
    st.sampled_from([2**k + d for k in (20, 31, 40, 62, 63, 64, 130) for d in (-1, 0, 1)]),
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from(["cpu", "cuda"]),
    st.lists(
        st.tuples(st.sampled_from(["split", "nparts", "align", "layout", "at", "cache"]), LARGE),
        max_size=3,
    ),
)
def test_every_constant_of_an_accepted_schedule_fits(
    chip: str, edits: list[tuple[str, int]]
) -> None:
    """Each edit is refused with a code, or the text of the kernel holds 64-bit numbers only."""
    hardware = CPU if chip == "cpu" else CUDA
    s = Schedule(chain(), hardware)
    codes: list[str] = []
    for kind, number in edits:
        loop = s.loops()[0]
        try:
            match kind:
                case "split":
                    s.split(loop, factor=number)
                case "nparts":
                    s.split(loop, nparts=number)
                case "align":
                    s.storage_align("b", 0, number, number - 1)
                case "layout":
                    s.transform_layout("b", f"[i] -> [i * {number}]")
                case "cache":
                    s.cache_read("b", "heap" if hardware is CPU else "scratch")
                case _:
                    s.set_address("b", number)
        except HwgenError as error:
            codes.append(error.code)
    try:
        made = compile_nest(chain(), hardware, s.trace(), auto=False)
    except HwgenError as error:
        codes.append(error.code)
    else:
        assert all(n <= 2**43 for n in integers(made.source.c))
    assert all(re.fullmatch(r"H023|H41\d|H51\d|H617", code) for code in codes), codes


def test_a_kernel_of_huge_buffers_compiles_and_is_not_run() -> None:
    """Within what C can hold, but the allocation would abort the process."""
    script = "s.storage_align('b', 0, 1073741824, 0)"
    made = compile_nest(chain(), CPU, script, auto=False)
    assert max(integers(made.source.c)) == 2**38  # bytes
    engines: tuple[Engine, ...] = ("python", "c")
    for engine in engines:
        with pytest.raises(HwgenError, match="H792"):
            examine(made, {"a": np.zeros(64, np.float32)}, engine)


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**30])
def test_a_size_or_parameter_set_beyond_c_is_refused(value: int) -> None:
    with pytest.raises(HwgenError) as caught:
        parse_workload({**CHAIN, "sizes": {"N": 64, "UNUSED": 1}}, {"UNUSED": value})
    assert caught.value.code == "H026"
    with pytest.raises(HwgenError) as caught:
        load_hardware(ROOT / "tests" / "specs" / "one_unit.yaml", {"DEPTH": value})
    assert caught.value.code == "H026"


def test_constants_of_values_wrap_as_their_type_does() -> None:
    """Each fits, and so does what is written for their product."""
    data = {**CHAIN, "sizes": {"N": 64, "BIG": 2**62},
            "compute": ["b[i] = a[i] * (BIG * 8)", "c[i] = b[i]"]}  # fmt: skip
    text = compile_nest(parse_workload(data), CPU, "", auto=False).source.c
    assert max(integers(text)) == 2**62


def test_a_memory_beyond_c_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "tests" / "specs" / "one_unit.yaml").read_text(encoding="utf-8")
    spec = tmp_path / "huge.yaml"
    spec.write_text(text.replace("size: 4 KiB", "size: 8589934592 GiB"), encoding="utf-8")
    with pytest.raises(HwgenError) as caught:
        load_hardware(spec)
    assert caught.value.code == "H026"


def wide(program: Code, number: int) -> list[Code]:
    """The program with one number of each kind too large."""
    (loop,) = [n for n in program.body if isinstance(n, Loop)]
    (assign,) = loop.body
    assert isinstance(assign, Assign)
    far = replace(assign, target=Access(assign.target.tensor, (Const(number),)))
    step = Binary("*", Name(loop.variable), Const(number))
    strided = replace(assign, target=Access(assign.target.tensor, (step,)))
    first, *others = program.arrays
    return [
        replace(program, arrays=(replace(first, strides=(number,)), *others)),
        replace(program, body=(replace(loop, extent=number),)),
        replace(program, body=(replace(loop, upper=Const(number)),)),
        *(replace(program, body=(replace(loop, body=(a,)),)) for a in (far, strided)),
    ]


def test_the_last_check_before_c_finds_every_kind_of_number() -> None:
    data = {**CHAIN, "tensors": {"a": "float32[N]", "c": "float32[N]"}, "compute": ["c[i] = a[i]"]}
    program = compile_nest(parse_workload(data), CPU, "", auto=False).program.codes[0]
    check_nest(program)
    for broken in wide(program, 2**64):
        with pytest.raises(HwgenError) as caught:
            check_nest(broken)
        assert caught.value.code == "H617"


def test_the_last_check_of_calls_finds_every_kind_of_number() -> None:
    program = compile_kernel(GEMM, VTA).program
    check_kernel(program)
    image, *images = program.images
    buffer, *buffers = program.buffers
    kernel, *kernels = program.kernels
    far = tuple(b + 2**64 for b in kernel.bases[0])
    loop = Loop("n", Const(0), Const(2**64), ())
    broken = [
        replace(program, images=(replace(image, outer=(2**41,)), *images)),
        replace(program, images=(replace(image, index=(Const(2**64),)), *images)),
        replace(program, buffers=(replace(buffer, base=2**41), *buffers)),
        replace(program, kernels=(replace(kernel, bases=(far,)), *kernels)),
        replace(program, body=(*program.body, loop)),
    ]
    for changed in broken:
        with pytest.raises(HwgenError) as caught:
            check_kernel(changed)
        assert caught.value.code == "H617"
