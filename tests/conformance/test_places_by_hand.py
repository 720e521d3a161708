"""Banks, addresses and layouts that a user fixes are honoured, and results stay right."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from hwgen.codegen.storages import Buffer
from hwgen.errors import HwgenError
from hwgen.passes.kernel import Kernel
from hwgen.passes.scripting import compile_script
from hwgen.pipeline import compile_kernel
from hwgen.spec.load import load_hardware, load_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import QUICK

ROOT = Path(__file__).parents[2]
MATMUL = {"M": 64, "N": 128, "K": 128}
BANK_ENTRIES = 16384


@cache
def begun(chip: str, workload: str, **sizes: int) -> Kernel:
    """What the search finds, as a script."""
    hardware = load_hardware(ROOT / "hw_specs" / f"{chip}.yaml")
    loaded = load_workload(ROOT / "workloads" / f"{workload}.yaml", sizes)
    found = compile_kernel(loaded, hardware, options=QUICK)
    return compile_script(loaded, hardware, found.script)


def by_hand(made: Kernel, *edits: str) -> Kernel:
    """The same with further edits; it is right."""
    script = made.schedule.trace() + "".join(f"{edit}\n" for edit in edits)
    kernel = compile_script(made.workload, made.hardware, script, "mine.py")
    examine(kernel, draw_inputs(made.workload, 1))
    return kernel


def buffer(kernel: Kernel, name: str) -> Buffer:
    return kernel.program.buffer[name]


@pytest.mark.parametrize("bank", [0, 1])
def test_all_slots_lie_in_the_bank_that_is_given(bank: int) -> None:
    made = begun("vtcm_two_banks", "matmul", **MATMUL)
    kernel = by_hand(made, f"s.set_bank('a_vtcm', {bank})")
    a = buffer(kernel, "a_vtcm")
    slots = [a.base + n * (a.stride or a.slot_entries) for n in range(a.slots)]
    assert all(s // BANK_ENTRIES == bank for s in slots)
    assert all((s + a.slot_entries - 1) // BANK_ENTRIES == bank for s in slots)
    assert kernel.cycles > made.cycles  # The load and the core want one port.


def test_one_tile_lies_in_both_banks() -> None:
    """Half of the first slot before the end of a bank, half behind it."""
    made = begun("vtcm_two_banks", "matmul", **MATMUL)
    base = BANK_ENTRIES - buffer(made, "a_vtcm").slot_entries // 2
    a = buffer(by_hand(made, f"s.set_address('a_vtcm', {4 * base})"), "a_vtcm")
    assert a.base == base
    assert a.base < BANK_ENTRIES < a.base + a.slot_entries


@pytest.mark.parametrize(("name", "entry"), [("a_spad", 4096), ("b_spad", 64)])
def test_an_address_is_kept_and_others_make_room(name: str, entry: int) -> None:
    """A row of the scratchpad has 16 bytes."""
    made = begun("gemmini", "gemm_scaled", M=64, N=64, K=64)
    kernel = by_hand(made, f"s.set_address('{name}', {16 * entry})")
    assert buffer(kernel, name).base == entry
    other = buffer(kernel, {"a_spad": "b_spad", "b_spad": "a_spad"}[name])
    mine = buffer(kernel, name)
    assert other.base + other.slots * other.slot_entries <= mine.base or (
        mine.base + mine.slots * mine.slot_entries <= other.base
    )


def test_a_layout_is_kept() -> None:
    made = begun("vtcm_two_banks", "matmul", **MATMUL)
    kernel = by_hand(made, "s.transform_layout('b_vtcm', '[i, j] -> [j, i]')")
    before, after = made.layouts["b_vtcm"], kernel.layouts["b_vtcm"]
    assert before.strides[0] > before.strides[1]
    assert after.box == before.box[::-1]


def test_a_bank_that_there_is_not_is_refused_at_its_line() -> None:
    """At that line alone, though edits before it are legal only together."""
    made = begun("gemmini", "gemm_scaled", M=64, N=64, K=64)
    with pytest.raises(HwgenError, match="H413") as refused:
        by_hand(made, "s.set_bank('a_spad', 2)")
    location = refused.value.diagnostic.location
    assert location is not None
    assert location.line == len(made.schedule.edits()) + 1


def test_a_layout_that_parts_the_entries_of_calls_is_refused() -> None:
    made = begun("gemmini", "gemm_scaled", M=64, N=64, K=64)
    with pytest.raises(HwgenError, match="H503"):
        by_hand(made, "s.transform_layout('a_spad', '[i, j] -> [j, i]')")
