"""What a call costs the host besides issuing: bytes moved to pack, pad, copy and unpack tensors."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from hwgen.codegen.program import Program
from hwgen.codegen.storages import Image
from hwgen.spec.expression import DTYPES
from hwgen.spec.workload import Tensor, Workload


def packing_bytes(program: Program, workload: Workload) -> int:
    """Bytes that the host reads and writes in one call, constants that may be packed once included.

    An image that is not in place is made on the host and copied to the chip's memory, or the other
    way round: its tensor moves once, the image three times. Of a temporary the host writes at most
    its fill, which is not counted.
    """
    tensors = program.tensors(workload)
    return sum(_bytes(image, tensors) for image in program.images if not image.in_place)


def _bytes(image: Image, tensors: Mapping[str, Tensor]) -> int:
    if image.role == "temporary":
        return 0
    tensor = tensors[image.tensor]
    return prod(tensor.shape) * DTYPES[tensor.dtype] + 3 * image.bytes
