"""What one run may hold: kernels of any size compile, but a run keeps every element in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from hwgen.codegen.names import ranged
from hwgen.codegen.nodes import Assign, Body, Call, CombineAcrossThreads, IntrinsicCall
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Array, Image
from hwgen.errors import HwgenError
from hwgen.spec.workload import Workload

MAX_ELEMENTS = 1 << 27
"""Of all tensors of a run together, and of all their images: some 2 GiB with int8, up to 8 GiB
where the rounding of float sums is bounded. The same on every machine."""

MAX_ITERATIONS = 1 << 24
"""Of the loops of a kernel, beside `USEFUL` for each point of the workload: tiles larger than a
loop, and padding, run iterations that compute nothing, and a run goes through all of them."""
USEFUL = 64


def check_tensors(workload: Workload, resized: Callable[[str, int], Workload]) -> None:
    """Refuse to run a workload whose tensors are too large; `resized` gives it with one size set.

    Raises:
        HwgenError: H792, with the largest value of its largest size that can be run.
    """
    if _elements(workload) <= MAX_ELEMENTS:
        return
    largest = max(workload.tensors, key=lambda t: prod(t.shape))
    shape = ", ".join(f"{extent:,}" for extent in largest.shape)
    raise HwgenError(
        "H792",
        f"{workload.name} is too large to be run",
        location=workload.location,
        found=f"{_elements(workload):,} elements of all tensors, {prod(largest.shape):,} of them "
        f"in {largest.name}[{shape}]",
        allowed=f"at most {MAX_ELEMENTS:,} elements",
        repair=_repair(workload, resized),
    )


def check_room(workload: Workload, program: Program) -> None:
    """Refuse to run a kernel that is too large.

    Raises:
        HwgenError: H792, as `check_images`, `check_iterations` and `check_buffers`.
    """
    check_images(workload, program.images)
    check_iterations(workload, program.body)
    for code in program.codes:
        check_buffers(workload, code.arrays)
        check_iterations(workload, code.body)


def check_iterations(workload: Workload, body: Body) -> None:
    """Refuse to run a kernel whose loops have too many iterations for what they compute.

    Raises:
        HwgenError: H792.
    """
    points = sum(prod(e for _, e in s.loops) for s in workload.statements)
    allowed = MAX_ITERATIONS + USEFUL * points
    for node, ranges in ranged(body, {}):
        if not isinstance(node, Assign | Call | CombineAcrossThreads | IntrinsicCall):
            continue
        count = prod(high - low + 1 for low, high in ranges.values())
        if isinstance(node, IntrinsicCall):
            count *= prod(e for _, e in node.loops)
        if count > allowed:
            raise HwgenError(
                "H792",
                f"{workload.name} is too large to be run",
                location=workload.location,
                found=f"{count:,} iterations of the loops {', '.join(ranges)}; the workload's "
                f"statements have {points:,}",
                allowed=f"at most {allowed:,} iterations",
                repair="tiles no larger than their loops, and less padding",
            )


def check_images(workload: Workload, images: Sequence[Image]) -> None:
    """Refuse to run a kernel whose tensors become too large off chip, padded to whole entries.

    Raises:
        HwgenError: H792.
    """
    elements = {i.tensor: i.entries * prod(i.lanes) for i in images}
    if sum(elements.values()) <= MAX_ELEMENTS:
        return
    largest = max(elements, key=lambda name: elements[name])
    raise HwgenError(
        "H792",
        f"{workload.name} is too large to be run",
        location=workload.location,
        found=f"{sum(elements.values()):,} elements off chip with padding, "
        f"{elements[largest]:,} of them for {largest}",
        allowed=f"at most {MAX_ELEMENTS:,} elements",
        repair="smaller sizes, with --set",
    )


def check_buffers(workload: Workload, buffers: Sequence[Array]) -> None:
    """Refuse to run a processor's kernel whose buffers become too large as they are laid out.

    Raises:
        HwgenError: H792.
    """
    buffers = [b for b in buffers if b.tensor]
    total = sum(b.elements for b in buffers)
    if total <= MAX_ELEMENTS:
        return
    largest = max(buffers, key=lambda b: b.elements)
    raise HwgenError(
        "H792",
        f"{workload.name} is too large to be run",
        location=workload.location,
        found=f"{total:,} elements of all buffers, {largest.elements:,} of them for {largest.name}",
        allowed=f"at most {MAX_ELEMENTS:,} elements",
        repair=f"a layout of {largest.name} with smaller steps, or smaller sizes, with --set",
    )


def _elements(workload: Workload) -> int:
    return sum(prod(t.shape) for t in workload.tensors)


def _repair(workload: Workload, resized: Callable[[str, int], Workload]) -> str:
    name, value = max(workload.sizes, key=lambda size: size[1], default=("", 0))

    def fits(smaller: int) -> bool:
        try:
            return _elements(resized(name, smaller)) <= MAX_ELEMENTS
        except HwgenError:
            return False

    good, bad = 0, value
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    if good:
        return f"a smaller size, as --set {name}={good}"
    return "smaller sizes, with --set" if workload.sizes else "smaller tensors"
