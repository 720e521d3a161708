"""Buffers: boxes, strides, slots, addresses, and what cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hwgen.codegen.nodes import Allocate
from hwgen.codegen.processor.lower import lower_nest
from hwgen.codegen.processor.pools import plan
from hwgen.codegen.processor.storage import aligned
from hwgen.codegen.storages import Array
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.polyhedral.tree.loop_tree import Storage
from hwgen.spec.hardware import HardwareSpec
from tests.unit.codegen_processor import samples

needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")


def buffer(s: Schedule, name: str) -> Array:
    return samples.program(s).array[name]


def code(call: object) -> str:
    assert callable(call)
    with pytest.raises(HwgenError) as caught:
        call()
    return caught.value.code


@needs_compiler
def test_a_buffer_holds_what_one_iteration_of_its_home_touches() -> None:
    s = samples.schedule("conv2d", samples.cpu())
    s.compute_at("acc", "y_i")
    s.compute_at("xp", "y_i")
    # One row of results; three rows of the padded input, with its two columns of halo.
    assert buffer(s, "acc").extents == (1, 1, 1, 5)
    assert buffer(s, "xp").extents == (1, 3, 3, 7)
    samples.check_native(s)


@needs_compiler
def test_slots_take_turns() -> None:
    s = samples.schedule("conv2d", samples.cpu())
    s.compute_at("acc", "y_i")
    s.double_buffer("acc", 2)
    made = buffer(s, "acc")
    assert (made.slots, made.elements) == (2, 2 * 5)
    assert "y_i % 2" in samples.check_native(s).c


def test_a_tile_that_none_follows_has_one_slot() -> None:
    s = samples.schedule("gemm", samples.cpu())
    s.double_buffer("acc", 3)
    assert buffer(s, "acc").slots == 1


def test_slots_need_iterations_in_order() -> None:
    s = samples.schedule("conv2d", samples.cpu())
    s.compute_at("acc", "y_i")
    s.parallel("y_i")
    s.double_buffer("acc", 2)
    assert code(lambda: lower_nest(s.resolved, s.homes, samples.cpu())) == "H511"


def test_strides_are_the_least_that_fit() -> None:
    assert aligned((4, 1024), ((0, 100, 8),)) == (1108, 1)
    assert aligned((3, 5, 7), ()) == (35, 7, 1)
    assert aligned((3, 5, 7), ((1, 4, 0), (0, 32, 1))) == (65, 8, 1)
    assert aligned((4, 8), ((0, 8, 0),)) == (8, 1)
    assert aligned((4, 3), ((1, 2, 0),)) == (6, 2)


@needs_compiler
def test_an_aligned_buffer_computes_the_same() -> None:
    s = samples.schedule("gemm", samples.cpu())
    s.storage_align("acc", 0, 16, 3)
    assert buffer(s, "acc").strides == (19, 1)
    samples.check_native(s)


@needs_compiler
@pytest.mark.parametrize(
    ("layout", "extents"),
    [("[i, j] -> [j, i]", (7, 5)), ("[i, j] -> [j // 4, i, j % 4]", (2, 5, 4)),
     ("[i, j] -> [i * 7 + j]", (35,)), ("[i, j] -> [6 - j, i]", (7, 5))],
)  # fmt: skip
def test_another_layout_computes_the_same(layout: str, extents: tuple[int, ...]) -> None:
    s = samples.schedule("gemm", samples.cpu())
    s.transform_layout("acc", layout)
    assert buffer(s, "acc").extents == extents
    samples.check_native(s)


def test_the_callers_arrays_stay_as_they_are() -> None:
    s = samples.schedule("gemm", samples.cpu())
    state = s.resolved.with_storage(Storage("a", aligns=((0, 16, 0),)))
    assert code(lambda: lower_nest(state, s.homes, samples.cpu())) == "H510"


def test_workers_must_see_what_they_touch() -> None:
    s = samples.schedule("gemm", samples.cpu())
    s.parallel("m")
    state = s.resolved.with_storage(Storage("acc", memory="stack"))
    assert code(lambda: lower_nest(state, s.homes, samples.cpu())) == "H512"
    nowhere = s.resolved.with_storage(Storage("acc", memory="nowhere"))
    assert code(lambda: lower_nest(nowhere, s.homes, samples.cpu())) == "H512"


def test_memory_of_a_block_does_not_outlive_its_launch() -> None:
    s = samples.schedule("gemm", samples.gpu())
    s.bind("m", "threadIdx.x")
    state = s.resolved.with_storage(Storage("acc", memory="shared"))
    assert code(lambda: lower_nest(state, s.homes, samples.gpu())) == "H512"


def test_a_stack_has_an_end() -> None:
    s = samples.schedule("gemm", samples.cpu(), M=512, N=512)
    state = s.resolved.with_storage(Storage("acc", memory="stack"))
    with pytest.raises(HwgenError) as caught:
        lower_nest(state, s.homes, samples.cpu())
    assert caught.value.code == "H513"
    assert "acc 1048576 bytes" in str(caught.value)
    assert "262144 bytes" in str(caught.value)


def shared(name: str, elements: int, **more: int) -> Array:
    made = Array(name, name, "int32", "intermediate", "shared", (elements,), (1,))
    return replace(made, bank=more.get("bank"), address_bytes=more.get("address"))


def addresses(chip: HardwareSpec, *scopes: tuple[Array, ...]) -> dict[str, int | None]:
    """Each scope's buffers are inside one another, scopes follow one another."""
    body: list[Allocate] = []
    found: dict[str, Array] = {}
    for scope in scopes:
        inner: tuple[Allocate, ...] = ()
        for made in reversed(scope):
            inner = (Allocate(made.name, inner),)
            found[made.name] = made
        body += inner
    planned = plan(tuple(body), found, chip)
    return {n: b.address_bytes for n, b in planned.items()}


def test_buffers_that_never_meet_share_bytes() -> None:
    found = addresses(
        samples.gpu(), (shared("a", 5), shared("b", 3)), (shared("c", 2), shared("d", 9))
    )
    assert found == {"a": 0, "b": 32, "c": 0, "d": 16}


def test_an_address_set_by_hand_holds_and_others_go_around() -> None:
    found = addresses(samples.gpu(), (shared("a", 20), shared("b", 4, address=16)))
    assert found == {"a": 32, "b": 16}


def test_addresses_that_cannot_be() -> None:
    twice = (shared("a", 4, address=0), shared("b", 4, address=0))
    assert code(lambda: addresses(samples.gpu(), twice)) == "H514"
    assert code(lambda: addresses(samples.gpu(), (shared("a", 4, address=6),))) == "H514"
    assert code(lambda: addresses(samples.gpu(), (shared("a", 4, address=32, bank=4),))) == "H514"
    heap = replace(shared("a", 4, address=0), memory="heap")
    assert code(lambda: addresses(samples.cpu(), (heap,))) == "H514"


def test_too_much_for_a_pool() -> None:
    assert code(lambda: addresses(samples.gpu(), (shared("a", 12_289),))) == "H513"
    assert addresses(samples.gpu(), (shared("a", 12_288),)) == {"a": 0}


def test_banks() -> None:
    # Thirty-two banks of four bytes; addresses are multiples of sixteen.
    found = addresses(samples.gpu(), (shared("a", 4), shared("b", 4, bank=8)))
    assert found == {"a": 0, "b": 32}
    assert code(lambda: addresses(samples.gpu(), (shared("a", 4, bank=3),))) == "H515"
    heap = replace(shared("a", 4, bank=0), memory="heap")
    assert code(lambda: addresses(samples.cpu(), (heap,))) == "H515"
