"""Tensors between layers that stay in the chip's layout: what stores one and what loads it agree on
its image, so the host neither unpacks nor packs it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hwgen.codegen.storages import Image
from hwgen.model.images import held
from hwgen.network.graph import Graph

if TYPE_CHECKING:
    from hwgen.network.steps import Step


def kept_images(graph: Graph, steps: Sequence[Step], buffer: Mapping[str, str]) -> dict[str, Image]:
    """By value, the image in which it stays between the layer that stores it and all that load it.

    Layers that share a kernel keep the same of its tensors, or none.
    """
    ends = {buffer[name] for name in (*graph.inputs, *graph.outputs)}
    users: defaultdict[str, list[tuple[Step, str]]] = defaultdict(list)
    for step in steps:
        for own, tensor in (step.layer.output, *((o, t) for o, t in step.layer.inputs)):
            users[buffer[tensor]].append((step, own))
    found = {v: s.kernel.images[own] for v, ((s, own), *_) in users.items()
             if v not in ends and _agree(users[v])}  # fmt: skip
    while True:
        other = {(s.kernel.name, own) for v, uses in users.items() if v not in found
                 for s, own in uses}  # fmt: skip
        left = {v: image for v, image in found.items()
                if not any((s.kernel.name, own) in other for s, own in users[v])}  # fmt: skip
        if len(left) == len(found):
            return found
        found = left


def _agree(uses: Sequence[tuple[Step, str]]) -> bool:
    """Whether all kernels have one image of a value: the same elements at the same places, and 0
    outside of the tensor."""
    if len(uses) < 2 or any(own not in s.kernel.images for s, own in uses):
        return False
    images = [(s.kernel.images[own], s.kernel.workload.tensor[own]) for s, own in uses]
    sizes = {(image.bytes, image.dtype) for image, _ in images}
    if len(sizes) > 1:
        return False
    first, *others = (held(image, tensor.shape) for image, tensor in images)
    zero = bool(np.all(first >= 0)) or all(image.fill == 0 for image, _ in images)
    return zero and all(np.array_equal(first, other) for other in others)
