"""Workloads that a chip cannot serve give exactly the error in the golden beside them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import hwgen
from hwgen.cli import main
from hwgen.errors import HwgenError
from hwgen.model.trace import calls
from hwgen.passes.kernel import Kernel
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_kernel
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.conftest import Golden
from tests.sampling import QUICK

HERE = Path(__file__).parent / "compile"
SPEC = Path(__file__).parents[2] / "hw_specs" / "vta.yaml"
WORKLOADS = SPEC.parents[1] / "workloads"
SPECS = Path(__file__).parents[1] / "specs"
Text = pytest.CaptureFixture[str]


@pytest.mark.parametrize("path", sorted(HERE.glob("*.yaml")), ids=lambda p: p.stem)
def test_refused(path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)
    first = path.read_text(encoding="utf-8").split("\n", maxsplit=1)[0]
    parameters = {n: int(v) for n, v in re.findall(r"(\w+)=(\d+)", first)}
    hardware = hwgen.load_hardware(SPEC, parameters)
    with pytest.raises(HwgenError) as caught:
        hwgen.compile_kernel(hwgen.load_workload(path.name), hardware)
    golden(path.with_suffix(".yaml.txt"), str(caught.value))


def test_too_small_a_memory_is_named(tmp_path: Path, golden: Golden) -> None:
    """One ACC entry cannot hold both summands, whatever the tiling."""
    text = SPEC.read_text(encoding="utf-8").replace("size: 128 KiB", "size: 64 B")
    text = text.replace("address: 0..2047", "address: 0..0").replace(
        "inp, address: 0..0", "inp, address: 0..2047"
    )
    small = tmp_path / "small.yaml"
    small.write_text(text, encoding="utf-8")
    with pytest.raises(HwgenError) as caught:
        hwgen.compile_kernel(summands(), hwgen.load_hardware(small))
    golden(HERE / "nothing_fits.txt", str(caught.value).replace(str(tmp_path), "."))


def summands(m: int = 56, n: int = 256) -> Workload:
    """A sum of wide integers, which no product with weights widens."""
    wide = {"a": "int32", "b": "int32"}
    return hwgen.load_workload(WORKLOADS / "add.yaml", {"M": m, "N": n}, wide)


def reaching(folder: Path, last: int) -> HardwareSpec:
    """The chip with summands that are loaded from so many entries off chip at most."""
    text = SPEC.read_text(encoding="utf-8")
    field = "dtype: int32, address: 0..4294967295"
    assert text.count(field) == 1
    chip = folder / "chip.yaml"
    chip.write_text(text.replace(field, f"dtype: int32, address: 0..{last}"), encoding="utf-8")
    return hwgen.load_hardware(chip)


def test_an_address_past_its_field(tmp_path: Path, golden: Golden) -> None:
    """A given schedule with a field that ends where its last call begins, and one entry before."""
    workload = summands()
    kernel = compile_kernel(workload, hwgen.load_hardware(SPEC))
    last = max(e.addresses[1] for e in calls(kernel.program) if e.call.intrinsic == "load_acc")
    script = kernel.script
    fits = compile_script(workload, reaching(tmp_path, last), script)
    assert str(fits.program) == str(kernel.program)
    with pytest.raises(HwgenError) as caught:
        compile_script(workload, reaching(tmp_path, last - 1), script)
    text = str(caught.value).replace(str(tmp_path), ".").replace(f"{WORKLOADS}/", "")
    golden(HERE / "address_field.txt", text)


@cache
def unlimited() -> Kernel:
    """The summands on the chip as it is."""
    return compile_kernel(summands(), hwgen.load_hardware(SPEC))


@pytest.mark.parametrize("last", [600, 400])
def test_other_schedules_have_lower_addresses(tmp_path: Path, last: int) -> None:
    """The search goes on until its calls begin early enough, which are longer then."""
    workload, hardware = summands(), reaching(tmp_path, last)
    kernel = compile_kernel(workload, hardware, options=QUICK)
    examine(kernel, draw_inputs(workload, 0), "python")
    assert kernel.cycles > unlimited().cycles


def test_no_schedule_has_low_addresses(tmp_path: Path) -> None:
    """No call is as long as the summands: the last ones begin past entry 0."""
    with pytest.raises(HwgenError) as caught:
        compile_kernel(summands(1, 40000), reaching(tmp_path, 0), options=QUICK)
    assert caught.value.code == "H616"


def test_addresses_of_what_goes_through_offchip_memory() -> None:
    """Too large a tensor to stay on the chip is too large for its addresses as well: it is for
    these that there is no kernel."""
    hardware = hwgen.load_hardware(SPEC.with_name("npu_shared_buffer.yaml"))
    with pytest.raises(HwgenError) as caught:
        compile_kernel(
            hwgen.load_workload(WORKLOADS / "attention.yaml", {"L": 100000}),
            hardware,
        )
    found = caught.value.diagnostic
    assert (caught.value.code, found.allowed) == ("H616", "0..1073741823")
    assert found.found.endswith(" in s_image, which holds s")
    assert "at most 1073741824 entries instead of 10000000000" in found.repair


STORE = (
    '{r: I, c: J}\n    semantics: "dst[r, c] = src[r, c]"\n    operands:\n      dst: {memory: ext'
)
BLOCKS = {
    "blocks_stored_in_rows": (
        STORE,
        '{c: J}\n    semantics: "dst[c] = src[c]"\n    operands:\n      dst: {memory: ext',
    ),
    "rows_loaded_in_blocks": (
        '{c: K}\n    semantics: "dst[c] = src[c]"',
        '{p: 2, q: 2, c: K}\n    semantics: "dst[p, q, c] = src[p, q, c]"',
    ),
}
"""Two chips whose intrinsics cover other blocks than the product does: the text of one
intrinsic, and the text in its place."""


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_two_shapes(
    name: str, tmp_path: Path, golden: Golden, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    text = (SPECS / "block_rows.yaml").read_text(encoding="utf-8")
    assert text.count(BLOCKS[name][0]) == 1
    monkeypatch.chdir(tmp_path)
    Path("chip.yaml").write_text(text.replace(*BLOCKS[name]), encoding="utf-8")
    Path("product.yaml").write_text(PRODUCT, encoding="utf-8")
    assert main(["explain", "--spec", "chip.yaml", "--workload", "product.yaml"]) == 0
    golden(HERE / f"{name}.txt", capsys.readouterr().out)


PRODUCT = """\
hwgen: 1
name: product
sizes: {M: 8, N: 8, K: 6}
tensors: {a: "float32[M, K]", b: "float32[K, N]", c: "float32[M, N]"}
compute: ["c[m, n] += a[m, k] * b[k, n]"]
"""
