"""What the address fields of a kernel's calls come to hold, against what they can.

On the chip the allocation puts every buffer where all of its operands reach; an image lies whole in
off-chip memory from address 0 on, so that its end may be further than a field goes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import gcd

from hwgen.codegen.lower.sites import CallSite
from hwgen.codegen.storages import Image
from hwgen.codegen.touches import Address
from hwgen.errors import HwgenError
from hwgen.spec.affine import Affine
from hwgen.spec.hardware import Operand
from hwgen.spec.ranges import Range
from hwgen.spec.workload import Workload


def check_reach(workload: Workload, images: Collection[Image], sites: Sequence[CallSite]) -> None:
    """Hold the addresses of all operands off chip against their fields, and of all operands whose
    fields hold multiples alone.

    Raises:
        HwgenError: H616 where one does not fit its field.
    """
    by_name = {image.name: image for image in images}
    for site in sites:
        for k, operand in enumerate(site.operation.intrinsic.operands):
            image = by_name.get(site.addresses[k].buffer)
            if operand.address.step > 1:
                _check_multiples(site, k, operand)
            if image is None:
                continue
            found = reach(site, k)
            if found.minimum not in operand.address or found.maximum not in operand.address:
                reached = [
                    reach(other, k)
                    for other in sites
                    if other.operation.intrinsic.name == site.operation.intrinsic.name
                    and other.addresses[k].buffer == image.name
                ]
                raise _too_far(workload, site, operand, image, reached)


def _check_multiples(site: CallSite, k: int, operand: Operand) -> None:
    """Every call of a site begins at a multiple of what the field counts in."""
    step, address = operand.address.step, site.addresses[k]
    fixed, moving = address.offset.constant, list[tuple[str, int]]()
    for name, coefficient in address.offset.terms:
        low, high = site.spans[name]
        if high - low > 1:
            moving.append((name, coefficient))
        fixed += coefficient * low
    if address.turn is not None:
        moving.append((f"slots of {address.buffer}", address.slot_stride))
    wrong = [f"{way} in steps of {by}" for way, by in moving if by % step]
    wrong += [f"from entry {fixed} on"] if fixed % step else []
    if wrong:
        intrinsic = site.operation.intrinsic
        raise HwgenError(
            "H616",
            f"addresses of operand {operand.name} of {intrinsic.name} do not fit their field",
            location=intrinsic.location,
            field=f"intrinsics.{intrinsic.name}.operands.{operand.name}.address",
            found=f"{', '.join(wrong)}, in {address.buffer}",
            allowed=f"multiples of {step}",
            repair=f"tiles of which each covers a multiple of {step} entries",
        )


def reach(site: CallSite, operand: int) -> Range:
    """The least and the greatest address that an operand's field holds, in entries, exactly: over
    all calls of a site, also those that C loops repeat, and the operations of its micro-kernel."""
    low, high = _ends(site.addresses[operand], site.spans)
    repeated = site.absorbed.hardware[: site.operation.intrinsic.software_loops]
    for walk in (*repeated, *site.absorbed.sequence):
        way = walk.strides[operand] * (walk.extent - 1)
        low, high = low + min(0, way), high + max(0, way)
    return Range(low, high)


def _ends(address: Address, sizes: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """The least and the greatest value where each variable runs over its half-open interval.

    Per slot, the variables are independent of each other but for what they add to the turn: one
    after the other is added to the least and greatest offset of each slot that is reached so far.
    """
    turn = address.turn or Affine(())
    slots = address.slots if address.turn is not None else 1
    offset = address.offset
    ends = {turn.constant % slots: (offset.constant, offset.constant)}
    for name in sorted({*offset.names, *turn.names}):
        (first, end), step, move = sizes[name], offset.coefficient(name), turn.coefficient(name)
        period = slots // gcd(move, slots)
        reached: dict[int, tuple[int, int]] = {}
        for value in range(first, min(end, first + period)):
            last = value + (end - 1 - value) // period * period
            near, far = sorted((step * value, step * last))
            for slot, (low, high) in ends.items():
                to = (slot + move * value) % slots
                known = reached.get(to, (low + near, high + far))
                reached[to] = (min(known[0], low + near), max(known[1], high + far))
        ends = reached
    return (
        min(low + slot * address.slot_stride for slot, (low, _) in ends.items()),
        max(high + slot * address.slot_stride for slot, (_, high) in ends.items()),
    )


def _too_far(
    workload: Workload, site: CallSite, operand: Operand, image: Image, reached: Sequence[Range]
) -> HwgenError:
    intrinsic = site.operation.intrinsic
    found = Range(min(r.minimum for r in reached), max(r.maximum for r in reached))
    field, tensor = operand.address, workload.tensor.get(image.tensor)
    where = f" ({tensor.location})" if tensor is not None else ""
    if found.minimum < field.minimum:
        repair = "a field that begins at 0, where images begin"
    else:
        repair = (
            f"sizes with which {image.tensor} takes at most {intrinsic.stop(operand)} entries "
            f"instead of {image.entries}{where}, or a field up to {found.maximum}"
        )
    return HwgenError(
        "H616",
        f"addresses of operand {operand.name} of {intrinsic.name} do not fit their field",
        location=intrinsic.location,
        field=f"intrinsics.{intrinsic.name}.operands.{operand.name}.address",
        found=f"{found} in {image.name}, which holds {image.tensor}",
        allowed=str(field),
        repair=repair,
    )
