"""Defects of images: wrong elements, and arrays of the caller's used as what they are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from random import Random

from hwgen.codegen.program import Program
from hwgen.codegen.storages import Image
from hwgen.spec.expression import Const, Name, add, substitute
from hwgen.spec.hardware import HardwareSpec
from tests.fuzz.edits import Edit, Mutation

IN_PLACE = "H743"


def image_mutations(hardware: HardwareSpec) -> tuple[Mutation, ...]:
    """Mutations of images; of those in place where the chip shares the host's memory."""
    general = (
        Mutation("wrong image index", _on_an_image(_shifted), ("H725", "H736", IN_PLACE, "H790")),
        Mutation("packed image in place", _on_an_image(_claimed), (IN_PLACE,)),
        Mutation("image of another type", _on_an_image(_retyped), ("H736",)),
    )
    places = [m.name for m in hardware.of_kind("offchip")]
    if len(places) > 1:
        moved = _on_an_image(partial(_elsewhere, places))
        general = (*general, Mutation("image in another memory", moved, ("H731",)))
    if not any(memory.shared for memory in hardware.memories):
        return general
    return (
        *general,
        Mutation("temporary image in place", _on_an_image(_without_array), (IN_PLACE,)),
        Mutation("padded image in place", _on_an_image(_padded), (IN_PLACE,)),
        Mutation("rearranged image in place", _on_an_image(_rearranged), (IN_PLACE,)),
    )


def _on_an_image(change: Callable[[Image], Image | None]) -> Edit:
    """A mutation of one of the images that `change` can change, chosen by the seed."""

    def mutate(program: Program, seed: int) -> Program | None:
        changed = [(at, change(image)) for at, image in enumerate(program.images)]
        places = [(at, image) for at, image in changed if image is not None]
        if not places:
            return None
        at, image = Random(seed).choice(places)
        images = (*program.images[:at], image, *program.images[at + 1 :])
        return replace(program, images=images)

    return mutate


def _shifted(image: Image) -> Image:
    return replace(image, index=(*image.index[:-1], add(image.index[-1], Const(1))))


def _retyped(image: Image) -> Image:
    return replace(image, tensor_dtype="int8" if image.tensor_dtype == "float64" else "float64")


def _claimed(image: Image) -> Image | None:
    return None if image.in_place else replace(image, in_place=True)


def _elsewhere(places: list[str], image: Image) -> Image:
    at = places.index(image.memory) if image.memory else 0
    return replace(image, memory=places[(at + 1) % len(places)])


def _without_array(image: Image) -> Image | None:
    """What is between two phases, as if the caller had it: however it is laid out."""
    return _claimed(image) if image.role == "temporary" else None


def _padded(image: Image) -> Image | None:
    """One position more at the end: outside the tensor, behind the caller's array."""
    if not image.in_place or not image.outer:
        return None
    return replace(image, outer=(image.outer[0] + 1, *image.outer[1:]))


def _rearranged(image: Image) -> Image | None:
    """Two neighbouring dimensions exchanged, as when columns stand where rows should."""
    whole = [*image.outer, *image.lanes]
    pairs = [n for n, (a, b) in enumerate(pairwise(whole)) if min(a, b) > 1]
    if not image.in_place or not pairs:
        return None
    at = pairs[0]
    whole[at], whole[at + 1] = whole[at + 1], whole[at]
    first, second = f"p{at}", f"p{at + 1}"
    swapped = {first: Name(second), second: Name(first)}
    return replace(
        image,
        outer=tuple(whole[: len(image.outer)]),
        lanes=tuple(whole[len(image.outer) :]),
        index=tuple(substitute(e, swapped) for e in image.index),
    )
