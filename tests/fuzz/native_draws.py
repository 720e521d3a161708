"""Random shapes of workloads for the units of this machine's own core."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from hwgen.spec.load import load_workload
from hwgen.spec.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
WORKLOADS = ROOT / "workloads"

EDGES = (1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49, 63, 64, 65, 96)
"""Extents around the lanes of registers, which are 4, 16 and 64."""

MOST_POINTS = 1 << 20
"""Iterations of a workload's largest statement, at most."""

Sizes = dict[str, int]
Types = dict[str, str]


@dataclass(frozen=True)
class Draw:
    """A workload's file with sizes and data types, for a chip."""

    chip: str
    file: Path
    sizes: Mapping[str, int]
    types: Mapping[str, str]

    def load(self) -> Workload:
        """The workload.

        Raises:
            HwgenError: as `load_workload`, where the sizes make no sense together.
        """
        return load_workload(self.file, self.sizes, self.types)

    def command(self) -> str:
        """What shows it."""
        words = ["hwgen", "generate", "--spec", self.chip, "--workload"]
        words.append(str(self.file.relative_to(ROOT)))
        for option, given in (("--set", self.sizes), ("--dtype", self.types)):
            for name, value in given.items():
                words += [option, f"{name}={value}"]
        return shlex.join(words)


def extent(random: Random, most: int = 96) -> int:
    """An extent: on an edge as often as not."""
    edges = [edge for edge in EDGES if edge <= most]
    return random.choice(edges) if random.random() < 0.5 else random.randint(1, most)


def _product(random: Random) -> Sizes:
    return {"M": extent(random, 40), "N": extent(random), "K": extent(random, 200)}


def _rows(random: Random) -> Sizes:
    return {"M": extent(random, 40), "N": extent(random, 200)}


def _image(random: Random) -> Sizes:
    window = random.choice((1, 1, 2, 3, 3, 5))
    sizes = {
        "H": extent(random, 20), "W": extent(random, 20), "C": extent(random, 40), "R": window,
        "S": random.choice((1, 1, 2, 3)), "P": random.randint(0, window - 1),
    }  # fmt: skip
    shortest = max(1, window - 2 * sizes["P"])
    return sizes | {name: max(sizes[name], shortest) for name in ("H", "W")}


def _convolution(random: Random) -> Sizes:
    return _image(random) | {"N": random.choice((1, 1, 2)), "O": extent(random, 70)}


def _depthwise(random: Random) -> Sizes:
    return _image(random) | {"N": random.choice((1, 1, 2)), "SHIFT": random.randint(0, 10)}


def _quantised(random: Random) -> Sizes:
    """Padding is TensorFlow's."""
    sizes = _image(random)
    del sizes["P"]
    zeros = {name: random.randint(-128, 127) for name in ("ZX", "ZY")}
    return sizes | zeros


def _left(random: Random) -> str:
    return random.choice(("uint8", "int8"))


Family = tuple[Path, Callable[[Random], Sizes], Callable[[Random], Types]]


def _no_types(_: Random) -> Types:
    return {}


def _bytes(random: Random) -> Types:
    return {"a": _left(random), "OUT": "int32"}


def _byte_images(random: Random) -> Types:
    return {"A": _left(random), "B": "int8", "ACC": "int32", "OUT": "int32"}


def _half_result(random: Random) -> str:
    return random.choice(("float32", "bfloat16"))


def _halves(random: Random) -> Types:
    return {"T": "bfloat16", "ACC": "float32", "OUT": _half_result(random)}


def _half_images(random: Random) -> Types:
    return {"A": "bfloat16", "B": "bfloat16", "ACC": "float32", "OUT": _half_result(random)}


def _singles(_: Random) -> Types:
    return {"T": "float32", "ACC": "float32", "OUT": "float32"}


def _single_images(_: Random) -> Types:
    return {"A": "float32", "B": "float32", "ACC": "float32", "OUT": "float32"}


def _requant(random: Random) -> Sizes:
    return _product(random) | {"SHIFT": random.randint(0, 14), "LOW": random.choice((-128, 0))}


def _fully(random: Random) -> Sizes:
    return _product(random) | {"SHIFT": -random.randint(0, 14), "ZY": random.randint(-128, 127)}


QUANTISED = WORKLOADS / "quantised"
GEMM, RELU = WORKLOADS / "gemm.yaml", WORKLOADS / "relu.yaml"
IMAGES = ROOT / "benchmarks" / "conv2d_types.yaml"

FAMILIES: Mapping[str, Mapping[str, Family]] = {
    "x86_vnni": {
        "product": (GEMM, _product, _bytes),
        "shifted product": (
            WORKLOADS / "gemm_requant.yaml", _requant, lambda random: {"a": _left(random)}
        ),
        "fully connected": (
            QUANTISED / "fully_connected.yaml", _fully, lambda random: {"x": _left(random)}
        ),
        "convolution": (IMAGES, _convolution, _byte_images),
        "requantised convolution": (
            QUANTISED / "conv2d.yaml", lambda r: _quantised(r) | {"O": extent(r, 70)}, _no_types
        ),
        "depthwise": (WORKLOADS / "depthwise_conv2d.yaml", _depthwise, _no_types),
        "requantised depthwise": (
            QUANTISED / "depthwise_conv2d.yaml", lambda r: _quantised(r) | {"D": 1}, _no_types
        ),
        "sum": (WORKLOADS / "add.yaml", _rows, _no_types),
    },
    "x86_bf16": {
        "product": (GEMM, _product, _halves),
        "convolution": (IMAGES, _convolution, _half_images),
        "relu": (RELU, _rows, lambda random: {"T": _half_result(random)}),
    },
    "x86_avx512": {
        "product": (GEMM, _product, _singles),
        "layer": (WORKLOADS / "linear_relu.yaml", _product, _no_types),
        "convolution": (IMAGES, _convolution, _single_images),
        "relu": (RELU, _rows, lambda _: {"T": "float32"}),
        "layernorm": (WORKLOADS / "layernorm.yaml", _rows, _no_types),
    },
}  # fmt: skip
"""Workloads of each chip by kind: file, sizes and data types."""


def points(workload: Workload) -> int:
    """Iterations of the largest statement."""
    most = 0
    for statement in workload.statements:
        count = 1
        for _, size in statement.loops:
            count *= size
        most = max(most, count)
    return most


def drawn(chip: str, seed: int) -> tuple[str, Draw]:
    """A kind and a workload, by the seed alone; large extents are halved until it is quick."""
    random = Random(f"{chip} {seed}")
    kind = random.choice([*FAMILIES[chip]])
    file, sizes_of, types_of = FAMILIES[chip][kind]
    sizes, types = sizes_of(random), types_of(random)
    while points(Draw(chip, file, sizes, types).load()) > MOST_POINTS:
        largest = max((n for n in "MNKHWCO" if n in sizes), key=lambda n: sizes[n])
        sizes[largest] //= 2
    return kind, Draw(chip, file, sizes, types)
