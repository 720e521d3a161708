"""Bytes that the host moves for one call."""

from __future__ import annotations

from dataclasses import replace

from tests.gemmini.emitted import case, compiled
from tests.packing import packing_bytes


def test_what_is_in_place_costs_nothing() -> None:
    c = compiled(case("gemm_unbiased", M=64, N=64, K=64))
    assert all(image.in_place for image in c.program.images)
    assert packing_bytes(c.program, c.workload, c.hardware) == 0


def test_a_padded_image_is_read_and_written() -> None:
    """The input is read, 16 x 16 pixels are written; where the chip does not take the host's
    pointers, these are read and written once more."""
    c = compiled(case("conv2d_scaled", H=14, W=14, C=64, O=64))
    (image,) = [image for image in c.program.images if not image.in_place]
    assert image.bytes == 16 * 16 * 64
    assert packing_bytes(c.program, c.workload, c.hardware) == 14 * 14 * 64 + image.bytes
    handles = replace(c.hardware, code=replace(c.hardware.code, handle_type="device_t"))
    assert packing_bytes(c.program, c.workload, handles) == 14 * 14 * 64 + 3 * image.bytes
