"""Workloads that a chip cannot serve give exactly the error in the golden beside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hwgen
from hwgen.errors import HwgenError
from tests.conftest import Golden

HERE = Path(__file__).parent / "compile"
SPEC = Path(__file__).parents[2] / "hw_specs" / "vta.yaml"


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
    workload = hwgen.load_workload(SPEC.parents[1] / "workloads" / "add.yaml")
    with pytest.raises(HwgenError) as caught:
        hwgen.compile_kernel(workload, hwgen.load_hardware(small))
    golden(HERE / "nothing_fits.txt", str(caught.value).replace(str(tmp_path), "."))
