"""Text for firmware: constants, layout numbers, stubs of headers, files beside the kernels."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

import hwgen
from hwgen.codegen.emit_c import emit, emit_firmware
from hwgen.codegen.firmware_build import Argument, Part, cmake_file, example, makefile
from hwgen.codegen.image_identity import layout_number, layout_text
from hwgen.codegen.storages import Image
from hwgen.codegen.vendor_stub import compiler_headers, stub, vendor_headers
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.model.numeric import Array
from hwgen.model.weights import Constant, weights_file
from hwgen.pipeline import compile_kernel
from hwgen.spec.expression import Binary, Const, Expr, Name
from hwgen.spec.workload import Tensor
from tests.firmware import harness
from tests.sampling import QUICK
from tests.shim.harness import STRICT, compile_c
from tests.unit.emit import toy

needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")
P = [Name(f"p{d}") for d in range(4)]


# --- layouts ---


def blocked(outer: int, lane: int, width: int = 8) -> Expr:
    return Binary("+", Binary("*", P[outer], Const(width)), P[lane])


def image(
    role: str, outer: tuple[int, ...], lanes: tuple[int, ...], *index: Expr, dtype: str = "int8"
) -> Image:
    assert role in ("input", "output")
    made = Image("t_image", "t", "input", dtype, outer, lanes, index, 0)
    return made if role == "input" else replace(made, role="output")


def tensor(*shape: int) -> Tensor:
    return toy.tensor("t", shape, "input", "int8")


ROWS = image("output", (4, 2), (8,), P[0], blocked(1, 2))
SAME = (
    (image("input", (4, 2), (1, 8), P[0], Binary("+", blocked(1, 3), P[2])), tensor(4, 16)),
    (image("input", (64,), (), P[0]), tensor(64)),
    (image("input", (1, 4), (16,), P[1], P[2]), tensor(4, 16)),
    (image("input", (1, 4), (16,), P[0], P[1], P[2]), tensor(1, 4, 16)),
)
OTHER = (
    (image("input", (2, 4), (8,), P[1], blocked(0, 2)), tensor(4, 16)),  # another order
    (image("input", (4, 16), (), P[0], P[1], dtype="int16"), tensor(4, 16)),  # wider
    (image("input", (4, 15), (), P[0], P[1]), tensor(4, 15)),  # fewer
    (image("input", (3, 16), (), Binary("+", P[0], Const(1)), P[1]), tensor(4, 16)),  # a part
    (image("input", (4, 2), (8,), P[0], Binary("%", blocked(1, 2), Const(5))), tensor(4, 16)),
)


@pytest.mark.parametrize(("other", "of"), SAME)
def test_the_same_elements_at_the_same_bytes_have_one_number(other: Image, of: Tensor) -> None:
    assert layout_number(other, of) == layout_number(ROWS, tensor(4, 16))


@pytest.mark.parametrize(("other", "of"), OTHER)
def test_others_have_other_numbers(other: Image, of: Tensor) -> None:
    assert layout_number(other, of) != layout_number(ROWS, tensor(4, 16))
    assert layout_number(other, of) == layout_number(other, of)


def test_what_is_outside_a_tensor_is_an_inputs_fill_and_no_outputs() -> None:
    into = image("input", (4, 2), (8,), P[0], blocked(1, 2))
    out = replace(into, role="output")
    for columns, equal in ((16, True), (13, False)):
        assert (
            layout_number(into, tensor(4, columns)) == layout_number(out, tensor(4, columns))
        ) is equal
    assert layout_text(into, tensor(4, 13)) != layout_text(replace(into, fill=1), tensor(4, 13))


# --- constants ---


def values(text: str, dtype: str, array: Array) -> Array:
    """What a compiler makes of the text of a constant."""
    kind = {"float32": "float", "float64": "double"}.get(dtype, f"{dtype}_t")
    constant = Constant(f"const {kind} k_const_w[{array.size}]", dtype, array)
    loaded = harness.library(
        {"w.c": weights_file(text, "constants", [constant])}, "-Wall", "-Werror"
    )
    kept = (ctypes.c_char * array.nbytes).in_dll(loaded, "k_const_w")
    return np.frombuffer(bytes(kept), array.dtype)


EXTREMES: list[tuple[str, Array]] = [
    *((d, np.array([np.iinfo(d).min, -1, 0, 1, np.iinfo(d).max], d))
      for d in ("int8", "uint8", "int16", "int32", "uint32", "int64") if d[0] == "i"),
    ("uint32", np.array([0, 1 << 31, (1 << 32) - 1], np.uint32)),
    ("float32", np.array([-0.0, 0.1, 1e-45, 3.4028235e38, np.inf, -np.inf, 16777216], np.float32)),
    ("float64", np.array([-0.0, 0.1, 5e-324, 1.7976931348623157e308, -np.inf], np.float64)),
]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(("dtype", "array"), EXTREMES, ids=[d for d, _ in EXTREMES])
def test_constants_are_the_same_bits(dtype: str, array: Array) -> None:
    assert values("k", dtype, array).tobytes() == array.tobytes()


@needs_compiler
def test_constants_are_aligned_in_any_c() -> None:
    text = weights_file(
        "k", "constants", [Constant("const int8_t k_const_w[1]", "int8", np.zeros(1, np.int8))]
    )
    text += "typedef char check[__alignof__(k_const_w) == 64 ? 1 : -1];\n"
    folder = harness.folder({"w.c": text})
    for standard in ("-std=c99", "-std=c11"):
        compile_c(
            [
                standard,
                "-Wall",
                "-Wextra",
                "-Werror",
                "-pedantic",
                "-c",
                folder / "w.c",
                "-o",
                folder / "w.o",
            ]
        )


def test_nan_is_refused() -> None:
    constant = Constant("const float k[2]", "float32", np.array([1, np.nan], np.float32))
    with pytest.raises(HwgenError) as caught:
        weights_file("k", "constants", [constant])
    assert caught.value.code == "H043"


# --- offsets ---


def test_offsets_are_as_wide_as_they_must_be() -> None:
    """32 bits in firmware where they hold every offset; 64 on a host."""
    program, workload = toy.copying((8, 16), (8, 2), (P[0], blocked(1, 2)))
    padded = replace(program.images[0], index=(Binary("-", P[0], Const(1)), blocked(1, 2)))
    small = replace(program, images=(padded, *program.images[1:]))
    assert "int64_t" in emit(small, toy.chip(), workload).c
    assert "int64_t" not in emit_firmware(small, toy.chip(), workload).source.c
    rows = 1 << 28
    large, of = toy.copying((rows, 16), (rows, 2), (P[0], blocked(1, 2)))
    large = replace(large, images=(replace(large.images[0], index=padded.index), *large.images[1:]))
    assert emit_firmware(large, toy.chip(), of).plan.index == "int64_t"


def test_a_specs_heap_stays_the_specs() -> None:
    """A spec whose own text allocates gets the header for it; ours takes nothing."""
    program, workload = toy.copying((8, 16), (8, 2), (P[0], blocked(1, 2)))
    text = emit_firmware(program, toy.chip(), workload).source.c
    assert "#include <stdlib.h>" in text
    assert "_host = malloc(" not in text


# --- stubs and the files beside kernels ---

CHIPS: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("vta", "gemm_requant", {"M": 4, "N": 32, "K": 32}),
    ("gemmini", "gemm_scaled", {"M": 16, "N": 20, "K": 20}),
    ("npu_shared_buffer", "layernorm", {}),
    ("tpu_v1", "gemm_requant", {"M": 16, "N": 32, "K": 32}),
    ("vtcm_two_banks", "matmul", {"M": 16, "N": 32, "K": 16}),
)


@needs_compiler
@pytest.mark.parametrize(("chip", "workload", "sizes"), CHIPS, ids=[c for c, *_ in CHIPS])
def test_a_stub_declares_what_a_kernel_calls(
    chip: str, workload: str, sizes: dict[str, int]
) -> None:
    hardware = hwgen.load_hardware(chip)
    compiled = compile_kernel(hwgen.load_workload(workload, sizes), hardware, options=QUICK)
    source = emit_firmware(compiled.program, hardware, compiled.workload).source
    texts = [(source.function, source.header + source.c)]
    (path,) = vendor_headers(hardware.code.includes)
    files = {f"{source.function}.c": source.c, f"{source.function}.h": source.header}
    folder = harness.folder({**files, path: stub(texts, path, chip)})
    file = folder / f"{source.function}.c"
    compile_c([*STRICT, "-Wstrict-prototypes", f"-I{folder}", "-c", file, "-o", folder / "k.o"])


TEXT = """
#include "chip.h"
#define MINE 1
typedef int other;
static int k_build(void *signature) { return *(const int *)signature; }
void k_run(chip_buffer a_dev, void *b_dev)
{
  chip_queue q = chip_open("a /* b */", 0x80000000u); /* chip_comment(1); */
  for (int i = 0; i < 4; ++i) {
    chip_call(q, a_dev, k_build, i * CHIP_STEP + 1, 2.5f, &q);
    chip_fill(-INFINITY);
    chip_fill(0);
    chip_log(i);
    chip_log(i, i);
    chip_move((int8_t *)b_dev + i * 4, 5000000000);
  }
}
"""


def test_types_follow_from_arguments() -> None:
    text = stub([("k", TEXT)], "chip.h", "chip")
    wanted = (
        "typedef void *chip_buffer;",
        "typedef void *chip_queue;",
        "  CHIP_STEP,",
        "chip_queue chip_open(const char *a0, uint32_t a1);",
        "void chip_call(chip_queue a0, chip_buffer a1, int (*a2)(void *), int32_t a3, float a4, "
        "void *a5);",
        "#define chip_log(...) ((void)0)",
        "void chip_fill(float a0);",
        "void chip_move(const void *a0, int64_t a1);",
    )
    for line in wanted:
        assert line in text.splitlines(), line
    assert "comment" not in text
    assert "k_build" not in text


def test_buffers_are_typed_as_templates_use_them() -> None:
    text = """
    void k_run(chip_buffer a_dev, void *b_dev, const int8_t *c_dev)
    {
      for (int i = 0; i < 4; ++i) {
        chip_load(a_dev + i, b_dev + i * 4, c_dev - 4);
        chip_store((uintptr_t)a_dev + i, (uintptr_t)b_dev, i + 4);
      }
    }
    """
    lines = stub([("k", text)], "chip.h", "chip").splitlines()
    assert "void chip_load(chip_buffer a0, void *a1, const void *a2);" in lines
    assert "void chip_store(uintptr_t a0, uintptr_t a1, int32_t a2);" in lines


def test_directives_of_several_lines_call_nothing() -> None:
    text = "#if defined(__A__) || \\\n  defined(__B__)\n#error no\n#endif\nvoid f(void) { go(1); }"
    found = stub([("k", text)], "v.h", "a")
    assert "void go(int32_t a0);" in found
    assert "defined" not in found
    assert "__B__" not in found


def test_words_of_the_compiler_are_no_calls_and_arguments_have_values() -> None:
    text = 'void f(void) { __asm__("add %1, %0" : "+r"(sums) : "r"(wide(load(4)))); go(load(5)); }'
    lines = stub([("k", text)], "v.h", "a").splitlines()
    assert "int32_t wide(int32_t a0);" in lines
    assert "int32_t load(int32_t a0);" in lines
    assert "void go(int32_t a0);" in lines
    assert not any("__asm__" in line for line in lines)


def test_limits_of_stdint_are_no_constants_of_the_vendor() -> None:
    text = "int32_t f(int32_t x) { return x == INT32_MIN ? LOWEST : x; }"
    found = stub([("k", text)], "v.h", "a")
    assert "  LOWEST," in found.splitlines()
    assert "INT32_MIN" not in found


def test_only_a_vendors_headers_get_a_stub() -> None:
    includes = ["<stdlib.h>", '"chip.h"', "<vendor/chip.h>", '"../mine.h"', "<omp.h>"]
    assert vendor_headers(includes) == ["chip.h", "vendor/chip.h"]
    assert compiler_headers(includes) == []


def test_instructions_of_a_machine_are_the_compilers() -> None:
    """No stub stands in front of the compiler's own header."""
    includes = ["<math.h>", "<immintrin.h>", '"chip.h"']
    assert vendor_headers(includes) == ["chip.h"]
    assert compiler_headers(includes) == ["immintrin.h"]
    assert "CFLAGS ?= -O2 -march=native\n" in makefile([part("a")], 99, ("-march=native",))
    assert "${HWGEN_MACHINE}" in cmake_file([part("a")], 99, ("-march=native",))


def test_names_that_one_statement_declares_have_its_type() -> None:
    text = "void f(void) { vec a = make(1), b = make(2); b = join(b, a); put(b); }"
    lines = stub([("k", text)], "v.h", "a").splitlines()
    assert "vec join(vec a0, vec a1);" in lines
    assert "void put(vec a0);" in lines


def part(name: str) -> Part:
    given = (Argument("x", "float", "4"), Argument("w_packed", "unsigned char", "8", aligned=True))
    return Part(name, f"{name}.c", (f"{name}_weights.c",), "", given, "workspace", 16, status=True)


def test_kernels_of_one_folder_do_not_meet_in_the_example() -> None:
    one, two = example([part("a")]), example([part("a"), part("b")])
    assert "if (a(x, w_packed, workspace) != 0)" in one
    assert "if (b(k1_x, k1_w_packed, k1_workspace) != 0)" in two
    assert "b_ALIGNED static unsigned char k1_workspace[b_WORKSPACE_BYTES];" in two


def test_build_files_name_every_source() -> None:
    parts = [part("a"), part("b")]
    for text in (makefile(parts, 99), cmake_file(parts, 99)):
        assert all(f"{n}{end}" in text for n in "ab" for end in (".c", "_weights.c"))
