"""What a call costs the host besides issuing: bytes moved to pack, pad, copy and unpack tensors."""

from __future__ import annotations

from math import prod

from hwgen.codegen.program import Program
from hwgen.codegen.storages import Image
from hwgen.spec.expression import DTYPES
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Tensor, Workload


def packing_bytes(program: Program, workload: Workload, hardware: HardwareSpec) -> int:
    """Bytes that the host reads and writes in one call, constants that may be packed once included.

    An image that is not in place is made on the host, or read there: its tensor and the image move
    once. Where the chip does not reach it there, it is copied to the chip's memory, or from it, and
    moves twice more. Of a temporary the host writes at most its fill, which is not counted.
    """
    tensors = program.tensors(workload)
    moved = (i for i in program.images if not i.in_place and i.role != "temporary")
    return sum(_bytes(image, tensors[image.tensor], hardware) for image in moved)


def _bytes(image: Image, tensor: Tensor, hardware: HardwareSpec) -> int:
    times = 1 if hardware.reaches(image.memory) else 3
    return prod(tensor.shape) * DTYPES[tensor.dtype] + times * image.bytes
