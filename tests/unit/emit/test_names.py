"""Names: whatever a tensor, loop, workload, memory or intrinsic is called, the emitted C compiles,
and kernels that differ in a size can be linked."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hwgen.codegen.c_names import NameTable, Reserved, kernel_name
from hwgen.codegen.source import CSource
from hwgen.errors import HwgenError
from hwgen.model.compiled import find_compiler, have_compiler
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.pipeline import compile_kernel
from hwgen.spec.expression import DTYPES, FUNCTIONS
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware, load_workload, parse_hardware, parse_workload
from hwgen.spec.source import read_document
from hwgen.spec.workload_resolve import C_WORDS, POLYHEDRAL_WORDS, RESERVED
from tests.sampling import QUICK

ROOT = Path(__file__).resolve().parents[3]
ONE_UNIT = ROOT / "tests" / "specs" / "one_unit.yaml"
STRICT = ("-std=c11", "-O1", "-Wall", "-Wextra", "-Werror")
HEADERS = re.findall(
    r"\w+",
    """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal
    stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads
    time uchar wchar wctype
    """,
)
"""Of C11."""
EMITTED = ("math", "stdint", "stdio", "stdlib", "string")
"""Headers that emitted files include."""
KEYWORDS = re.findall(
    r"\w+",
    """
    auto break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch typedef
    union unsigned void volatile while
    """,
)
HOSTILE = re.findall(
    r"\w+",
    """
    NAN INFINITY INT8_MAX SIZE_MAX RAND_MAX EXIT_FAILURE HUGE_VAL MB_CUR_MAX INT64_C I M_PI isnan
    expf sqrtf errno stdout unix linux malloc free memcpy memset abort chip status packed code
    from to writer entry text model model_TRY model_chip model_op_load_vec image_0 int64_t int8_t
    index time y0 rank place width
    """,
)
"""Names that once broke some emitted file, or look as if they could."""

needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


def compiler(*arguments: str, text: str) -> str:
    """What the compiler prints for a C text on its standard input; it must be content."""
    found = find_compiler()
    assert found is not None
    done = subprocess.run(
        [*found, *arguments, "-x", "c", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:4000]
    return done.stdout


def compiled(text: str) -> None:
    compiler(*STRICT, "-fopenmp", "-c", "-o", "/dev/null", text=text)


def included(headers: Sequence[str]) -> str:
    return "".join(f"#include <{h}.h>\n" for h in headers)


@cache
def library() -> tuple[str, ...]:
    """Every identifier that the C11 headers declare or define, by this machine's compiler; and
    what those that emitted files include define where nobody asks for strict C."""
    strict = compiler("-std=c11", "-E", text=included(HEADERS))
    found = set(re.findall(r"[A-Za-z]\w*", re.sub(r'"[^"\n]*"|^#.*$', "", strict, flags=re.M)))
    for standard, headers in (("-std=c11", HEADERS), ("-std=gnu11", EMITTED)):
        macros = compiler(standard, "-E", "-dM", text=included(headers))
        found |= set(re.findall(r"^#define ([A-Za-z]\w*)", macros, re.M))
    return tuple(sorted({*found, *KEYWORDS, *HOSTILE, "atomic_new", "E99", "strnew", "uint7_t"}))


def accepted(names: Sequence[str]) -> list[str]:
    """Those that a workload may call both a loop and a tensor."""
    words = {*C_WORDS, *RESERVED, *DTYPES, *FUNCTIONS}
    return [
        n for n in names if n not in words and n.lower() not in POLYHEDRAL_WORDS and len(n) < 65
    ]


@needs_compiler
@pytest.mark.parametrize(
    ("standard", "headers"), [("-std=c11", HEADERS), ("-std=gnu11", EMITTED)], ids=["c11", "gnu11"]
)
def test_no_identifier_is_the_librarys(standard: str, headers: Sequence[str]) -> None:
    """Of a parameter, a loop and a function with external linkage, for every word of C11's."""
    names = [NameTable()[w] for w in library()]
    assert len(set(names)) == len(names) > 1200
    lines = [included(headers)]
    for number, name in enumerate(names):
        lines += [
            f"void sum{number}(const float *{name}, float *result);",
            f"void sum{number}(const float *{name}, float *result)",
            f"{{ for (int i = 0; i < 8; ++i) result[i] += {name}[i]; }}",
            f"void fill{number}(float *result);",
            f"void fill{number}(float *result)",
            f"{{ for (int {name} = 0; {name} < 8; ++{name}) result[{name}] = 0; }}",
        ]
        if standard == "-std=c11":
            lines += [
                f"void {name}(float *result);",
                f"void {name}(float *result)",
                "{ *result = 0; }",
            ]
    flags = [f for f in STRICT if not f.startswith("-std")]
    compiler(standard, *flags, "-fsyntax-only", text="\n".join(lines))


def statements(names: Sequence[str]) -> dict[str, Any]:
    """A workload whose tensors and loops have these names, with library functions beside them."""
    tensors = dict.fromkeys(names, "float32[6]") | {
        f"r_{n}": "float32[6]" for n in range(len(names))
    }
    compute = [
        f"r_{n}[{name}] = exp({name}[{name}]) + sqrt({name}[{name}])"
        for n, name in enumerate(names)
    ]
    return {"name": "hostile", "sizes": {}, "tensors": tensors, "compute": compute}


@needs_compiler
def test_a_processors_kernel_compiles_whatever_its_tensors_and_loops_are_called() -> None:
    chip = load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml")
    names = accepted(HOSTILE)
    made = compile_nest(parse_workload(statements(names)), chip, "", auto=False)
    compiled(made.source.c)
    compiled(made.source.header)


SUM: dict[str, Any] = {
    "name": "s",
    "tensors": {
        "x": "float32[6, 8]",
        "w": {"type": "float32[4, 8]", "constant": True},
        "y": "float32[6, 4]",
    },
    "compute": ["y[i, j] += x[i, k] * w[j, k]"],
}


def renamed(names: dict[str, str], workload: str = "s") -> dict[str, Any]:
    """The sum, with other names of its tensors and loops."""

    def text(old: str) -> str:
        return re.sub(r"\w+", lambda m: names.get(m[0], m[0]), old)

    tensors = {names.get(n, n): t for n, t in SUM["tensors"].items()}
    return {"name": workload, "sizes": {}, "tensors": tensors, "compute": [text(SUM["compute"][0])]}


RUNTIME = """
    void start(void); void finish(void); uint32_t reserve(int64_t bytes); void release(uint32_t b);
    void upload(uint32_t b, const void *host, int64_t bytes);
    void download(void *host, uint32_t b, int64_t bytes);
"""


def check_units(source: CSource, spec: str) -> None:
    """Both files of a kernel compile; the vendor's functions are declared as they are called."""
    compiled(source.model)
    compiled(source.header)
    called = sorted(set(re.findall(r'emit: "(\w+)\(', spec)))
    stub = RUNTIME + "".join(f"void {f}(int64_t first, ...);\n" for f in called)
    compiled(source.c.replace('#include "one_unit.h"', stub))


@needs_compiler
@pytest.mark.parametrize(
    "names",
    [
        {"x": "NAN", "w": "INFINITY", "y": "isnan", "i": "RAND_MAX", "j": "errno", "k": "stdout"},
        {"x": "malloc", "w": "free", "y": "memcpy", "i": "INT64_C", "j": "chip", "k": "code"},
        {"x": "status", "w": "packed", "y": "model", "i": "image_0", "j": "model_TRY", "k": "I"},
        {"x": "w_packed", "y": "w_host", "i": "load_vec", "j": "finish", "k": "model_op_load_vec"},
        {
            "x": "s_one_unit",
            "w": "s_one_unit_run",
            "y": "s_one_unit_prepacked",
            "i": "s_one_unit_min",
        },
        {
            "x": "x_vec_image_dev",
            "w": "x_vec_image_host",
            "y": "w_pack",
            "i": "SIZE_MAX",
            "k": "memset",
        },
    ],
    ids=lambda names: ",".join(names.values()),
)
def test_a_chips_kernel_compiles_whatever_its_tensors_and_loops_are_called(
    names: dict[str, str],
) -> None:
    workload = parse_workload(renamed(names))
    spec = ONE_UNIT.read_text(encoding="utf-8")
    check_units(compile_kernel(workload, load_hardware(ONE_UNIT), options=QUICK).source, spec)


@needs_compiler
@pytest.mark.parametrize(
    ("vec", "mat", "out"), [("NAN", "INT8_MAX", "errno"), ("tokens", "a", "a_writer")]
)
def test_the_model_compiles_whatever_memories_are_called(vec: str, mat: str, out: str) -> None:
    chip = renamed_chip({"vec": vec, "mat": mat, "out": out})
    compiled(compile_kernel(parse_workload(SUM), chip, options=QUICK).source.model)


@needs_compiler
def test_the_model_compiles_where_an_intrinsic_is_called_like_the_step_of_another() -> None:
    chip = renamed_chip({"load_vec": "load", "load_mat": "load_step"})
    compiled(compile_kernel(parse_workload(SUM), chip, options=QUICK).source.model)


def renamed_chip(names: dict[str, str]) -> HardwareSpec:
    """The chip of one unit with other names, in all that names them."""

    def walk(data: Any) -> Any:
        match data:
            case dict():
                return {names.get(k, k): walk(v) for k, v in data.items()}  # type: ignore[misc]
            case list():
                return [walk(v) for v in data]  # type: ignore[misc]
            case str():
                return names.get(data, data)
            case _:
                return data

    return parse_hardware(walk(read_document(ONE_UNIT).data))


@needs_compiler
@pytest.mark.parametrize("name", ["NAN", "exp", "y0", "read", "main", "signal"])
def test_a_kernel_compiles_whatever_its_workload_is_called(name: str) -> None:
    if name in C_WORDS:
        with pytest.raises(HwgenError, match="H204"):
            parse_workload(renamed({}, name))
        return
    workload = parse_workload(renamed({}, name))
    check_units(
        compile_kernel(workload, load_hardware(ONE_UNIT), options=QUICK).source,
        ONE_UNIT.read_text(),
    )
    made = compile_nest(
        workload, load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml"), "", auto=False
    )
    assert made.source.function == f"{name}_cpu_generic"  # never `read`, which the library has
    compiled(made.source.c)


def test_names_that_headers_take_are_the_specs_to_say() -> None:
    table = NameTable(Reserved(frozenset({"grid"}), ("cuda", "v1_")))
    assert [table[n] for n in ("grid", "cudaHostAllocDefault", "cud", "barracuda")] == [
        "grid_", "v2_cudaHostAllocDefault", "cud", "barracuda",
    ]  # fmt: skip
    cuda = load_hardware(ROOT / "hw_specs" / "cuda_generic.yaml")
    workload = parse_workload(statements(["cudaStreamLegacy", "threadIdx"]))
    text = compile_nest(workload, cuda, "", auto=False).source.c
    assert not re.search(r"\bcudaStreamLegacy", text)


# Sizes


@needs_compiler
@pytest.mark.parametrize("target", ["one_unit", "cpu_generic"])
def test_two_sizes_of_one_workload_can_be_linked(target: str, tmp_path: Path) -> None:
    data = {
        "name": "scale", "sizes": {"N": 4}, "tensors": {"x": "float32[N, 8]", "w": "float32[4, 8]",
        "y": "float32[N, 4]"}, "compute": ["y[i, j] += x[i, k] * w[j, k]"],
    }  # fmt: skip
    found = find_compiler()
    assert found is not None
    objects: list[str] = []
    for sizes in ({}, {"N": 4}, {"N": 5}):
        workload = parse_workload(data, sizes)
        if target == "cpu_generic":
            chip = load_hardware(ROOT / "hw_specs" / "cpu_generic.yaml")
            made = compile_nest(workload, chip, "", auto=False).source
            name, text = made.function, made.c
        else:
            source = compile_kernel(workload, load_hardware(ONE_UNIT), options=QUICK).source
            name, text = source.function, source.model
        label = f"_N{sizes['N']}" if sizes.get("N", 4) != 4 else ""
        assert name == f"scale_{target}{label}"
        file = tmp_path / f"{name}.c"
        file.write_text(text, encoding="utf-8")
        subprocess.run(
            [*found, *STRICT, "-fopenmp", "-c", str(file), "-o", f"{file}.o"], check=True
        )
        objects.append(f"{file}.o")
    assert len(set(objects)) == 2
    subprocess.run([*found, "-r", "-o", str(tmp_path / "all.o"), *sorted(set(objects))], check=True)


def test_a_kernels_name_says_what_was_set() -> None:
    gemm, vta = ROOT / "workloads" / "gemm.yaml", ROOT / "hw_specs" / "vta.yaml"

    def name(sizes: dict[str, int], parameters: dict[str, int]) -> str:
        return kernel_name(load_workload(gemm, sizes), load_hardware(vta, parameters))

    assert name({}, {}) == name({"M": 1}, {"BATCH": 1}) == "gemm_vta"
    assert name({"K": 32, "M": 17}, {"BATCH": 2}) == "gemm_vta_BATCH2_M17_K32"
    data = {"name": "f", "sizes": {"K1": 1, "K": 1}, "tensors": {"x": "int8[9]", "y": "int8[9]"},
            "compute": ["y[i] = x[i]"]}  # fmt: skip
    made = [parse_workload(data, s) for s in ({"K1": 2}, {"K": 12}, {"K": -2})]
    labels = [kernel_name(w, load_hardware(vta)) for w in made]
    assert labels == ["f_vta_K1_2", "f_vta_K12", "f_vta_Kminus2"]
