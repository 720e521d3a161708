"""The C for a chip's own compiler and headers: of every shipped workload and script on every chip,
by gcc and clang, without a warning.

Headers are those that tests execute, or stubs of them. The quick tests take compilers and standards
in turn, and let them parse; the thorough ones take all, optimise, and compile what is for firmware.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import hwgen
from hwgen.codegen.c_words import code_alone
from hwgen.codegen.emit_c import emit_firmware
from hwgen.codegen.vendor_stub import stub, vendor_headers
from hwgen.errors import HwgenError
from hwgen.passes.kernel import Kernel
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_workload
from hwgen.spec.hardware import HardwareSpec
from tests.hexagon import COMPILER, WHEEL, have_compiler
from tests.samples import ROOT, SMALLER
from tests.sampling import QUICK, THOROUGH, some, tiered
from tests.shim.cuda.device import host_text

STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
C99 = ("c99", "c11")


@dataclass(frozen=True, slots=True)
class Vendor:
    """How a chip's C is compiled. `headers`: their folder under `tests`; "": stubs of them.
    `standards`: C11 where the spec's own text is."""

    headers: str = ""
    flags: tuple[str, ...] = ()
    standards: tuple[str, ...] = C99
    compilers: tuple[tuple[str, ...], ...] = ()
    """Commands of those for another machine; none: gcc and clang."""
    parse: str = "-fsyntax-only"
    """The option by which they parse the C."""

    def installed(self, *, cuda: bool) -> list[tuple[str, ...]]:
        """The commands that are here."""
        own = self.compilers or tuple((names[cuda],) for names in INSTALLED)
        return [command for command in own if shutil.which(command[0])]


def processor(*flags: str) -> Vendor:
    return Vendor("", ("-fopenmp", *flags), ("c11", "gnu11"))


CHIPS = {
    "apple_amx": Vendor("apple_amx", ("-fopenmp",)),
    "arm_neon": Vendor(
        flags=("-fopenmp", "-march=armv8.2-a+dotprod"),
        standards=("c11", "gnu11"),
        compilers=(("aarch64-linux-gnu-gcc",), ("clang", "--target=aarch64-linux-gnu")),
    ),
    "cpu_generic": processor(),
    "cuda_generic": Vendor("shim/cuda", ("-Wno-unknown-pragmas",), ("c++14", "c++17")),
    "davinci_core": Vendor("shim_chips"),
    "gemmini": Vendor("gemmini"),
    "hexagon_hvx": Vendor(
        flags=("-fopenmp-simd", "-Wno-pass-failed"),
        standards=("c11", "gnu11"),
        compilers=(COMPILER if have_compiler() else (WHEEL,),),
        parse="-c",  # It takes this alone for a reason not to link.
    ),
    "npu_shared_buffer": Vendor(),
    "riscv_rvv": Vendor(
        # Clang remarks that it does not vectorise a loop of the core.
        flags=("-fopenmp", "-march=rv64gcv", "-Wno-pass-failed"),
        standards=("c11", "gnu11"),
        compilers=(("clang-19", "--target=riscv64-linux-gnu"),),
    ),
    "tpu_v1": Vendor(),
    "vta": Vendor("shim"),
    "vtcm_two_banks": Vendor(),
    "x86_avx2": processor("-mavx2", "-mfma"),
    "x86_avx512": processor("-mavx512f", "-mfma"),
    "x86_bf16": processor("-mavx512f", "-mavx512bf16", "-mavx512bw", "-mavx512vl"),
    "x86_vnni": processor("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni"),
}
FOLDERS = (ROOT / "workloads", ROOT / "workloads" / "quantised")
WORKLOADS = [p for folder in FOLDERS for p in sorted(folder.glob("*.yaml"))]
SCRIPTS = sorted((ROOT / "workloads" / "schedules").glob("*.script"))
PAIRS = [(chip, path) for chip in CHIPS for path in WORKLOADS]
LONG = {
    *((chip, name) for chip in CHIPS for name in ("fully_connected_chain", "softmax")),
    *(
        (chip, "attention")
        for chip in ("arm_neon", "cuda_generic", "npu_shared_buffer", "vtcm_two_banks")
    ),
    *((chip, "depthwise_conv2d") for chip in ("arm_neon", "gemmini", "riscv_rvv")),
    *(("apple_amx", name) for name in ("attention", "layernorm", "mlp")),
    *(
        (chip, name)
        for chip in ("arm_neon", "riscv_rvv")
        for name in ("add", "attention", "conv2d", "conv2d_requant", "matmul", "mlp")
    ),
    *((chip, "mlp") for chip in ("x86_avx2", "x86_avx512")),
    *(("hexagon_hvx", name) for name in ("conv2d_requant", "gemm_requant")),
}
"""Pairs that take a second or more to generate."""
UNITS_ALONE = ("npu_shared_buffer", "vtcm_two_banks")
"""Chips without a processor: they refuse what their units do not compute."""

INSTALLED = [c for c in (("gcc", "g++"), ("clang", "clang++")) if all(map(shutil.which, c))]

pytestmark = pytest.mark.skipif(not INSTALLED, reason="neither gcc nor clang")


def test_every_chip_is_compiled() -> None:
    assert set(CHIPS) == {p.stem for p in (ROOT / "hw_specs").glob("*.yaml")}


def test_both_compilers_are_here() -> None:
    if len(INSTALLED) < 2:
        pytest.skip(f"of gcc and clang there is {INSTALLED[0][0]} alone")


@dataclass(frozen=True, slots=True)
class Files:
    """A kernel's files for the chip's compiler, by name."""

    chip: HardwareSpec
    texts: Mapping[str, str]
    freestanding: bool = False

    def warnings(self, folder: Path, turn: int | None) -> list[str]:
        """The first warning or error of one compiler at one standard, by `turn`; None: of each at
        each, also those that need the optimiser."""
        folder.mkdir()
        vendor = CHIPS[self.chip.name]
        include = ROOT / "tests" / vendor.headers if vendor.headers else folder / "stub"
        named = [(name.partition(".")[0], text) for name, text in self.texts.items()]
        for header in vendor_headers(self.chip.code.includes) if not vendor.headers else ():
            (include / header).parent.mkdir(parents=True, exist_ok=True)
            (include / header).write_text(stub(named, header, self.chip.name))
        for name, text in self.texts.items():
            (folder / name).write_text(host_text(text) if name.endswith(".cu") else text)
        cuda = any(name.endswith(".cu") for name in self.texts)
        flags = [*STRICT, *vendor.flags, "-isystem", str(include), f"-I{folder}"]
        # Clang remarks that it does not vectorise a loop that calls rintf, freestanding as it is.
        flags += ["-ffreestanding", "-Wno-pass-failed"] if self.freestanding else []
        flags += ["-x", "c++"] if cuda else []
        flags += ["-O2", "-c"] if turn is None else [vendor.parse]
        sources = [name for name in self.texts if not name.endswith(".h")]
        found: list[str] = []
        commands = vendor.installed(cuda=cuda)
        builds = [(c, standard) for c in commands for standard in vendor.standards]
        for compiler, standard in builds if turn is None else [builds[turn % len(builds)]]:
            command = [*compiler, f"-std={standard}", *flags, *sources]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode or done.stderr:
                first = re.search(r".*(?:error|warning): .*", done.stderr)
                found.append(f"{compiler[0]} {standard}: {first[0] if first else done.stderr}")
        return found


def host_files(kernel: Kernel) -> Files:
    """The kernel with its own header in front, which the compiler then compares with it."""
    source = kernel.source
    header = f"{source.function}.h"
    text = f'#include "{header}"\n{source.c}'
    return Files(
        kernel.hardware, {header: source.header, f"{source.function}{source.suffix}": text}
    )


def firmware_files(kernel: Kernel) -> Files | None:
    """The same without a heap; None where iterations that run at once would share a workspace, and
    of a processor alone, whose text is the same."""
    if not kernel.hardware.units:
        return None
    try:
        made = emit_firmware(kernel.program, kernel.hardware, kernel.workload)
    except HwgenError as error:
        if error.code != "H042":
            raise
        return None
    name = made.source.function
    texts = {f"{name}.h": made.source.header, f"{name}.c": made.source.c}
    texts |= {f"{name}_pack.c": made.pack} if made.pack else {}
    return Files(kernel.hardware, texts, freestanding=True)


@cache
def made(chip: str, path: Path) -> Kernel | None:
    """The kernel; None where a chip's units do not compute it, and it has no processor."""
    sizes = SMALLER.get((chip, path.stem), {}) if path.parent == FOLDERS[0] else {}
    try:
        workload = hwgen.load_workload(path, sizes)
        return compile_workload(workload, hwgen.load_hardware(chip), options=QUICK)
    except HwgenError as error:
        if chip in UNITS_ALONE and error.code == "H301":
            return None
        raise


def check(kernel: Kernel, folder: Path, turn: int | None = None) -> None:
    vendor = CHIPS[kernel.hardware.name]
    if not vendor.installed(cuda=False):
        pytest.skip(f"no {' and no '.join(command[0] for command in vendor.compilers)}")
    found = host_files(kernel).warnings(folder / "host", turn)
    firmware = firmware_files(kernel) if turn is None else None
    if firmware is not None:
        found += firmware.warnings(folder / "firmware", turn)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("chip", "path"),
    tiered(PAIRS, [p for p in PAIRS[::17] if (p[0], p[1].stem) not in LONG]),
    ids=lambda p: p if isinstance(p, str) else f"{p.parent.name}-{p.stem}",
)
def test_a_kernel_compiles_without_a_warning(chip: str, path: Path, tmp_path: Path) -> None:
    kernel = made(chip, path)
    if kernel is None:
        pytest.skip(f"{chip} does not compute it")
    check(kernel, tmp_path, PAIRS.index((chip, path)))


@THOROUGH
@pytest.mark.parametrize(("chip", "path"), some(PAIRS, 11), ids=str)
def test_a_kernel_compiles_at_all_flags(chip: str, path: Path, tmp_path: Path) -> None:
    kernel = made(chip, path)
    if kernel is not None:
        check(kernel, tmp_path)


@pytest.mark.parametrize("script", tiered(SCRIPTS, SCRIPTS[:2]), ids=lambda p: p.stem)
def test_a_script_compiles_without_a_warning(script: Path, tmp_path: Path) -> None:
    text = script.read_text()
    head = "".join(x[1:].rstrip("\\") for x in text.splitlines() if x.startswith("#"))
    words = shlex.split(head[head.index("hwgen ") :])
    given = dict(pairwise(words))
    sizes = {n: int(v) for n, _, v in (w.partition("=") for w in words) if v}
    cores = {n: sizes.pop(n) for n in ("CORES",) if n in sizes}
    workload = hwgen.load_workload(given["--workload"], sizes)
    hardware = hwgen.load_hardware(given["--spec"], cores)
    check(compile_script(workload, hardware, text), tmp_path)


CONSTANTS: dict[str, tuple[str, dict[str, str], list[Any]]] = {
    "fill": (
        "npu_shared_buffer",
        {"x": "float32[6]", "xp": "float32[7]", "y": "float32[6]"},
        [
            "xp[h] = select(h < 6, x[h], -inf)",
            {"do": "y[i] max= xp[i + r]", "loops": {"i": 6, "r": 2}},
        ],
    ),
    "start": ("vta", {"x": "float32[4]", "y": "float32[1]"}, ["y[i] max= x[n]"]),
    "rounding": (
        "davinci_core",
        {"x": "float32[4]", "y": "int8[4]"},
        ["y[n] = int8(clip(round(x[n]), -128, 127))"],
    ),
}


@pytest.mark.parametrize("case", CONSTANTS)
def test_constants_are_those_of_c(case: str, tmp_path: Path) -> None:
    chip, tensors, compute = CONSTANTS[case]
    workload = hwgen.workload("constants", tensors=tensors, compute=compute)
    kernel = compile_workload(workload, hwgen.load_hardware(chip), options=QUICK)
    check(kernel, tmp_path)
    assert "-inf" not in code_alone(kernel.source.c)
