"""A chip with two off-chip memories for what changes: every tensor lies in one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwgen
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.passes.kernel import Kernel
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import Engine, examine
from tests.fuzz.edits import catch
from tests.planted.images import image_mutations
from tests.sampling import QUICK

SPEC = Path(__file__).parents[1] / "specs" / "two_memories.yaml"
ENGINES: tuple[Engine, ...] = ("python", "c") if have_compiler() else ("python",)


def linear() -> Workload:
    return hwgen.workload(
        "linear",
        tensors={
            "x": "float32[5, 16]", "w": "float32[16, 8]", "b": "float32[8]",
            "acc": "float32[5, 8]", "y": "float32[5, 8]",
        },
        compute=["acc[m, n] += x[m, k] * w[k, n]", "y[m, n] = max(acc[m, n] + b[n], 0)"],
    )  # fmt: skip


def chip(folder: Path, *, near: bool = True) -> HardwareSpec:
    """The chip, or one like it that stores to the second memory only."""
    path = folder / "chip.yaml"
    text = SPEC.read_text(encoding="utf-8")
    store, wide = text.index("  store:\n"), text.index("  store_wide:\n")
    path.write_text(text if near else text[:store] + text[wide:], encoding="utf-8")
    return hwgen.load_hardware(path)


def places(kernel: Kernel) -> dict[str, str]:
    return {i.tensor: i.memory for i in kernel.program.images}


@pytest.mark.parametrize(("near", "output"), [(True, "ddr"), (False, "hbm")])
def test_every_tensor_lies_where_its_calls_reach_it(
    near: bool, output: str, tmp_path: Path
) -> None:
    kernel = hwgen.compile_kernel(linear(), chip(tmp_path, near=near), options=QUICK)
    assert places(kernel) == {"x": "ddr", "w": "hbm", "b": "ddr", "y": output}
    for engine in ENGINES:
        examine(kernel, draw_inputs(kernel.workload, 1, "small"), engine)
    numbers = {"ddr": 0, "hbm": 1}
    for image in kernel.program.images:
        assert f"{image.name}_dev = reserve({numbers[image.memory]}, " in kernel.source.c
        assert f"release({numbers[image.memory]}, {image.name}_dev);" in kernel.source.c
    # An image in the other memory is found.
    (wrong,) = (m for m in image_mutations(kernel.hardware) if m.name == "image in another memory")
    inputs = draw_inputs(kernel.workload, 1)
    for seed in range(4):
        program = wrong.mutate(kernel.program, seed)
        assert program is not None
        assert catch(program, kernel.hardware, kernel.workload, inputs) == "H731"


def sums() -> Workload:
    """Two sums that do not both find room: one of them goes through off-chip memory."""
    return hwgen.workload(
        "sums",
        tensors={
            "x": "float32[20, 8]", "w": "float32[8, 16]", "v": "float32[8, 16]",
            "h": "float32[20, 16]", "g": "float32[20, 16]", "y": "float32[20, 16]",
        },
        compute=[
            "h[m, n] += x[m, k] * w[k, n]",
            "g[m, n] += x[m, k] * v[k, n]",
            "y[m, n] = h[m, n] + g[m, n]",
        ],
    )  # fmt: skip


def test_what_goes_between_phases_lies_where_it_is_loaded_from(tmp_path: Path) -> None:
    kernel = hwgen.compile_kernel(sums(), chip(tmp_path), options=QUICK)
    assert [(i.tensor, i.memory) for i in kernel.program.images if i.role == "temporary"] == [
        ("h", "ddr")
    ]
    examine(kernel, draw_inputs(kernel.workload, 1, "small"), "both")
    with pytest.raises(HwgenError) as refused:
        hwgen.compile_kernel(sums(), chip(tmp_path, near=False))
    assert refused.value.code == "H504"
    assert "in hbm and float32" in str(refused.value)
