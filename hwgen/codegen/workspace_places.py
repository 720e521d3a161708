"""Where in a caller's workspace everything lies that a firmware kernel keeps there.

A moment is when a part of the kernel packs what it takes, runs, or unpacks what it leaves; two
things share bytes unless there is a moment at which both are held. The chip and its C model differ
in when images are packed, and what is held in either is held here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hwgen.codegen.emit_vendor import unstaged
from hwgen.codegen.exported import exported
from hwgen.codegen.host_plan import HostPlan
from hwgen.codegen.nodes import Code
from hwgen.codegen.packing import pads
from hwgen.codegen.processor.firmware import Room
from hwgen.codegen.program import Program
from hwgen.codegen.storages import Array, Image

_ZERO, _PACK, _RUN, _UNPACK = range(4)
"""Moments of a part. Zeros are written to an image and copied at once, so that nothing else that is
packed is held then."""
_MOMENTS = 4


@dataclass(frozen=True, slots=True)
class _Held:
    """Something in the workspace: where it begins, its bytes, and the moments when it is held."""

    offset: int
    bytes: int
    moments: frozenset[int]


def workspace_places(plan: HostPlan, rooms: Sequence[Room]) -> tuple[dict[str, int], int]:
    """Of each image and array in the workspace its offset, and the bytes of them all. `rooms`: what
    a processor's parts need from its start on while they run, in their order."""
    codes = [n for n, part in enumerate(plan.program.parts) if isinstance(part, Code)]
    placed = [
        _Held(0, room.bytes, frozenset({_MOMENTS * number + _RUN}))
        for number, room in zip(codes, rooms, strict=True)
    ]
    offsets: dict[str, int] = {}
    for one, moments in _held(plan):
        others = [p for p in placed if p.bytes and p.moments & moments]
        ends = sorted({0, *(plan.aligned(p.offset + p.bytes) for p in others)})
        offset = next(
            at
            for at in ends
            if all(at + one.bytes <= p.offset or p.offset + p.bytes <= at for p in others)
        )
        offsets[one.name] = offset
        placed.append(_Held(offset, one.bytes, moments))
    return offsets, max((p.offset + p.bytes for p in placed), default=0)


def _held(plan: HostPlan) -> Iterator[tuple[Image | Array, frozenset[int]]]:
    """What is in the workspace, with the moments when it is held."""
    packed = {t.name for t in plan.packed_tensors} | {c.tensor for c in plan.constants()}
    elsewhere = unstaged(plan)
    staged = [i for i in plan.staged if i.tensor not in packed and i.name not in elsewhere]
    for image in sorted(staged, key=lambda i: i.name in plan.resident):
        parts = [n for n, p in enumerate(plan.program.parts) if _runs_on(p, image)]
        yield image, _of_image(plan, image, parts)
    for array in plan.program.between:
        parts = [n for n, p in enumerate(plan.program.parts) if _touches(p, array)]
        yield array, _throughout(min(parts), max(parts))


def _of_image(plan: HostPlan, image: Image, parts: Sequence[int]) -> frozenset[int]:
    """When an image is held that some parts run on: where the chip reads the host's bytes, from the
    first to the last of them; else while they are copied. What the exported function leaves to its
    caller is packed before all parts and unpacked after them."""
    taken = exported(plan)
    outside = taken is not None and image.name not in taken.inside
    last = len(plan.program.parts) - 1
    if image.name in plan.resident or image.role == "temporary":
        ends = outside and image.role == "output"
        return _throughout(0 if outside else min(parts), last if ends else max(parts))
    output = image.role == "output"
    wanted = (_UNPACK,) if output else (_PACK, _RUN)
    wanted += (_ZERO,) if pads(image) else ()
    around = {last if output else 0} if outside else set[int]()
    moments = {_MOMENTS * n + m for n in parts for m in wanted}
    moments |= {_MOMENTS * n + (_UNPACK if output else _PACK) for n in around}
    return frozenset(moments | {_ZERO for _ in around if pads(image)})


def _throughout(first: int, last: int) -> frozenset[int]:
    """All moments of some parts."""
    return frozenset(range(_MOMENTS * first, _MOMENTS * (last + 1)))


def _runs_on(part: Program | Code, image: Image) -> bool:
    return isinstance(part, Program) and image.name in part.image


def _touches(part: Program | Code, array: Array) -> bool:
    """Whether a part reads or writes an array, or has an image of it that is packed or unpacked."""
    if isinstance(part, Code):
        return array.name in (*part.inputs, *part.outputs)
    return any(i.tensor == array.name for i in part.images)
