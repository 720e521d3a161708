"""A model as operators on tensors, free of the format that it was read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Literal

from hwgen.errors import HwgenError, Location
from hwgen.model.numeric import Array
from hwgen.spec.expression import DTYPES

Attribute = int | float | str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Quantisation:
    """A number is `scale * (stored - zero point)`. One scale and zero point for the tensor, or one
    for each index of `axis`."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0

    @property
    def per_channel(self) -> bool:
        """Whether the scales may differ along the axis."""
        return len(self.scales) > 1


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """An array of the model. `name`: unique in its graph; `number`: what the model's file calls it;
    `data`: the values of a constant."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    number: int
    quantisation: Quantisation | None = None
    data: Array | None = None

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * DTYPES[self.dtype]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Operator:
    """One step of the model. `kind`: a word of the operators' table; `inputs`: names of tensors, ""
    where an optional one is left out; `number`: its place in the model's file; `name`: where the
    format has one."""

    kind: str
    number: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} (operator {self.number}{self.name and f', {self.name}'})"


@dataclass(frozen=True, eq=False)
class Graph:
    """A model: operators in an order in which they can run. `format`: whose operators they are."""

    name: str
    file: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    format: Literal["tflite", "onnx"] = "tflite"

    @cached_property
    def tensor(self) -> Mapping[str, Tensor]:
        """Tensors by name."""
        return {t.name: t for t in self.tensors}

    @property
    def channels_last(self) -> bool:
        """Whether images have their channels behind their other dimensions, or after the batch."""
        return self.format == "tflite"

    def check(self) -> None:
        """Refuse a graph whose operators cannot run in their order.

        Raises:
            HwgenError: H801.
        """
        for said in self._mistakes():
            allowed = "operators that read inputs, constants and results of operators before"
            raise damaged(self.file, "the model does not hold together", said, allowed)

    def _mistakes(self) -> Iterator[str]:
        known = {t.name for t in self.tensors if t.data is not None} | set(self.inputs)
        for operator in self.operators:
            for name in operator.inputs:
                if name and name not in known:
                    yield f"{operator} reads {name} before anything writes it"
            for name in operator.outputs:
                if name in known:
                    yield f"{operator} writes {name}, which has a value already"
                known.add(name)
        for name in self.outputs:
            if name not in known:
                yield f"nothing writes the output {name}"
        if not self.outputs:
            yield "no outputs"


def damaged(
    file: Path | str, message: str, found: str, allowed: str, repair: str = "export the model again"
) -> HwgenError:
    """H801: a file that is no model, or not a whole one."""
    place = Location(str(file))
    return HwgenError("H801", message, location=place, found=found, allowed=allowed, repair=repair)
