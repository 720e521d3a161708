"""Images in place: the chip reads and writes the caller's own arrays there, so they must be those
arrays, byte for byte. Shares no code with what decides it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from hwgen.codegen.nodes import calls
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Image
from hwgen.spec.affine import affine
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Tensor, Workload


def in_place_problems(
    program: Program, hardware: HardwareSpec, workload: Workload | None
) -> Iterator[tuple[str, str, str]]:
    """What is wrong, where, and what is allowed, for every image in place that must not be."""
    images = [image for image in program.images if image.in_place]
    if images and not hardware.code.handles_are_pointers:
        yield (
            "an image is in place where calls take no pointers",
            f"{images[0].name}, with handles of type {hardware.code.handle_type.strip()}",
            "a handle_type that is a pointer",
        )
    shared = {m.name for m in hardware.memories if m.shared}
    for image in images:
        if image.role == "temporary":
            yield (
                "an image between two phases is in place",
                f"{image.name}, of {image.tensor}",
                "inputs and outputs: the caller has no array of another tensor",
            )
        for memory in sorted(_memories(image, program, hardware) - shared):
            yield (
                "an image is in place in memory of the chip's own",
                f"{image.name} in {memory}",
                ", ".join(sorted(shared)) or "no memory is shared with the host",
            )
        tensor = program.tensors(workload).get(image.tensor) if workload is not None else None
        if tensor is not None and (found := _difference(image, tensor)):
            yield (
                "an image in place is not its tensor",
                f"{image.name}: {found}",
                f"{tensor.dtype}{list(tensor.shape)} in row-major order, and nothing else",
            )


def _memories(image: Image, program: Program, hardware: HardwareSpec) -> set[str]:
    """The memories that calls expect an image in."""
    return {
        rule.memory
        for call in calls(program.body)
        for operand, rule in zip(
            call.operands, hardware.intrinsic[call.intrinsic].operands, strict=True
        )
        if operand.buffer == image.name
    }


def _difference(image: Image, tensor: Tensor) -> str:
    """How the image's bytes differ from the tensor's; empty where they are the same."""
    whole = image.outer + image.lanes
    if image.dtype != tensor.dtype:
        return f"its elements are {image.dtype}"
    if prod(whole) != prod(tensor.shape):
        return f"it has {prod(whole)} elements, not {prod(tensor.shape)}"
    # The element's number in the tensor as a function of the position: it must be the position's.
    start = 0
    steps = [0] * len(whole)
    for index, size in zip(image.index, tensor.shape, strict=True):
        form = affine(index)
        if form is None:
            return f"index {index} is not affine"
        low, high = form.interval({f"p{axis}": extent for axis, extent in enumerate(whole)})
        if low < 0 or high >= size:
            return f"index {index} takes values from {low} to {high}, of {size}"
        start = start * size + form.constant
        steps = [size * step for step in steps]
        for name, factor in form.terms:
            steps[int(name[1:])] += factor
    if start:
        return f"it begins with element {start}"
    expected = 1
    for axis in reversed(range(len(whole))):
        if whole[axis] > 1 and steps[axis] != expected:
            return f"p{axis} steps over {steps[axis]} elements, not {expected}"
        expected *= whole[axis]
    return ""
