"""What `NAME_run` of a firmware kernel takes that a processor computes a part of.

Buffers of the chip's hold the workload's inputs and outputs as they do without a processor. What
the processor reads or writes of them are arrays. All that the two sides hand each other is packed
and unpacked inside, in the workspace.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwgen.codegen.host_plan import HostPlan
from hwgen.codegen.storages import Image
from hwgen.spec.workload import Tensor


@dataclass(frozen=True, slots=True)
class Exported:
    """`images`: those that there is a handle for, in order; `arrays`: the tensors that are arrays,
    in order. `inside`: the names of the images that it packs and unpacks itself; those of them that
    the chip's own memory holds have a handle too. `of_arrays`: images that are, byte for byte and
    where the chip reads them, arrays that the processor reads too: they have a handle only."""

    images: tuple[Image, ...]
    arrays: tuple[Tensor, ...]
    inside: frozenset[str]
    of_arrays: tuple[Image, ...]


def exported(plan: HostPlan) -> Exported | None:
    """Of a plan with a workspace and parts of a processor's; None for others."""
    if plan.workspace is None or not plan.program.codes:
        return None
    images = plan.program.images
    given = {t.name for t in plan.inputs}
    for tensor in plan.outputs:
        if (
            tensor.name not in plan.coded
            and len([i for i in images if i.tensor == tensor.name]) == 1
        ):
            given.add(tensor.name)
    inside = frozenset(i.name for i in images if i.tensor not in given)
    taken = tuple(i for i in images if i.name not in inside or i.name not in plan.resident)
    both: dict[str, Image] = {}
    coded = [t for t in plan.inputs + plan.outputs if t.name in plan.coded]
    for tensor in coded:
        for image in images:
            same = image.name in plan.direct and image.name in plan.resident
            if image.tensor == tensor.name and same and image.name not in inside:
                both.setdefault(tensor.name, image)
    arrays = tuple(t for t in coded if t.name not in both and not plan.compiled_in(t.name))
    handles = tuple(i for i in both.values() if not plan.compiled_in(i.tensor))
    return Exported(taken, arrays, inside, handles)
