"""Random chips whose memories address single elements, and workloads of several phases for them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from hwgen.spec.source import read_document
from tests.property.random_sync import synchronise_otherwise
from tests.property.random_workloads import Pick

ROOT = Path(__file__).parents[2]
Spec = dict[str, Any]
SHIPPED = cast(Spec, read_document(ROOT / "hw_specs" / "npu_shared_buffer.yaml").data)
BUILDING = ("load", "store", "zero")
"""Intrinsics that no chip can do without."""
EXTENTS = (4, 1, 2, 3, 5, 7, 9, 17)


def random_vector_chip(choose: Callable[[Sequence[object]], object]) -> Spec:
    """A chip as plain data for `hwgen.spec.load.parse_hardware`; few are refused there."""
    pick = Pick(choose)
    spec = copy.deepcopy(SHIPPED)
    spec["parameters"]["T"] = pick((16, 1, 2, 4, 8))
    local = spec["memories"]["local"]
    local["size"] = f"{pick((65536, 16384, 4096, 1024, 256, 64))} * 4"
    for change in (_units, _memory, _loops, _strides, _fewer, _latency, _buses):
        if pick.chance(3):
            change(spec, pick)
    if pick.chance(2):
        synchronise_otherwise(spec, pick)
    for intrinsic in spec["intrinsics"].values():
        intrinsic["emit"] = "call();"
    return spec


def _units(spec: Spec, pick: Pick) -> None:
    """The units joined to two or to one; all vector operations shared out among two."""
    form = pick(("two", "one", "shared"))
    into = {
        "two": {"dma": "dma", "matrix": "vector", "vector": "vector"},
        "one": dict.fromkeys(("dma", "matrix", "vector"), "vector"),
        "shared": {"dma": "dma", "matrix": "matrix", "vector": "vector"},
    }[form]
    for intrinsic in spec["intrinsics"].values():
        intrinsic["unit"] = into[intrinsic["unit"]]
        if form == "shared" and intrinsic["unit"] == "vector":
            intrinsic["unit"] = pick(("vector", "matrix"))
    spec["units"] = {name: spec["units"][name] for name in sorted(set(into.values()))}
    if form == "one":
        spec["synchronization"] = {"kind": "none"}
    elif form == "two":
        synchronise_otherwise(spec, pick)


def _memory(spec: Spec, pick: Pick) -> None:
    """A memory of its own for what is multiplied, which loads fill, and maybe moves."""
    spec["memories"]["tile"] = spec["memories"]["local"] | {"size": f"{pick((4096, 256, 64))} * 4"}
    intrinsics = spec["intrinsics"]
    operands = pick((("a", "b"), ("b",)))
    for name in operands:
        intrinsics["matmul"]["operands"][name]["memory"] = "tile"
    load = copy.deepcopy(intrinsics["load"])
    load["operands"]["dst"]["memory"] = "tile"
    intrinsics["load_tile"] = load
    if pick.chance(2):
        move = copy.deepcopy(intrinsics["relu"])
        move["semantics"] = "dst[] = x[]"
        move["operands"]["dst"]["memory"] = "tile"
        intrinsics["move"] = move
    del spec["buses"]["main"]["priority"]


def _loops(spec: Spec, pick: Pick) -> None:
    """Shorter loops; one outer loop more, or one less, of transfers and vector operations."""
    form = pick(("short", "more", "fewer"))
    for name, intrinsic in spec["intrinsics"].items():
        loops = intrinsic["loops"]
        intrinsic["loops"] = loops = copy.deepcopy(loops)
        if form == "short" and name != "matmul":
            for loop in loops.values():
                loop["extent"] = f"1..{pick((64, 16, 4, 3, 1))}"
        elif form == "more" and "r" in loops:
            intrinsic["loops"] = {"q": copy.deepcopy(loops["r"]), **loops}
        elif form == "fewer" and "r" in loops and pick.chance(2):
            del loops["r"]


def _strides(spec: Spec, pick: Pick) -> None:
    """Narrow strides of the vector operations' inner loops."""
    reach = pick(("0..1", "1", "0..64", "1..64"))
    for intrinsic in spec["intrinsics"].values():
        loops = intrinsic["loops"] = copy.deepcopy(intrinsic["loops"])
        if intrinsic["unit"] == "vector" and "c" in loops and pick.chance(2):
            for operand, stride in loops["c"]["strides"].items():
                if stride != 0:
                    loops["c"]["strides"][operand] = reach


def _fewer(spec: Spec, pick: Pick) -> None:
    """One or two intrinsics less."""
    for _ in range(pick((1, 2))):
        del spec["intrinsics"][pick([n for n in spec["intrinsics"] if n not in BUILDING])]


def _latency(spec: Spec, pick: Pick) -> None:
    for intrinsic in spec["intrinsics"].values():
        if intrinsic["unit"] != "dma":
            intrinsic["result_latency_iterations"] = pick((0, 1, 2, 4))


def _buses(spec: Spec, pick: Pick) -> None:
    bus = spec["buses"]["main"]
    bus["beat_bytes"] = pick((8, 4, 32))
    bus["burst"] = {"beats": pick((16, 1, 4)), "boundary_bytes": pick((128, 32, 4096))}
    for channel in (bus["read"], bus["write"]):
        channel["in_flight_bursts"] = pick((1, 2, 16))
        channel["latency_cycles"] = pick((20, 0, 1, 300))


@dataclass
class _Chain:
    """Statements so far; `rows` and `columns` are the extents of the tensors `grids`, which all
    have one shape until a product changes it."""

    pick: Pick
    tensors: dict[str, str] = field(default_factory=dict[str, str])
    compute: list[str] = field(default_factory=list[str])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    grids: list[str] = field(default_factory=list[str])
    columns: str = "N0"

    def size(self, base: str) -> str:
        name = f"{base}{sum(n.startswith(base) for n in self.sizes)}"
        self.sizes[name] = self.pick(EXTENTS)
        return name

    def tensor(self, base: str, *extents: str) -> str:
        name = f"{base}{sum(n.startswith(base) for n in self.tensors)}"
        self.tensors[name] = f"float32[{', '.join(extents)}]"
        return name

    @property
    def latest(self) -> str:
        return self.grids[-1]

    def some(self) -> str:
        """Mostly the latest grid, else an earlier one: it is then read by two statements."""
        return self.pick(self.grids) if self.pick.chance(3) else self.latest

    def row(self, op: str, value: str) -> str:
        name = self.tensor("r", "M0")
        self.compute.append(f"{name}[m] {op} {value}")
        return name

    def grid(self, value: str) -> str:
        name = self.tensor("g", "M0", self.columns)
        self.compute.append(f"{name}[m, n] = {value}")
        self.grids.append(name)
        return name

    # -- steps ------------------------------------------------------------------------------

    def product(self) -> None:
        columns, source = self.size("N"), self.some()
        turned = self.pick.chance(2)
        shape = (columns, self.columns) if turned else (self.columns, columns)
        name, weight = self.tensor("g", "M0", columns), self.tensor("w", *shape)
        at = "n, k" if turned else "k, n"
        self.compute.append(f"{name}[m, n] += {source}[m, k] * {weight}[{at}]")
        self.columns, self.grids = columns, [name]

    def softmax(self) -> None:
        source = self.some()
        top = self.row("max=", f"{source}[m, n]")
        e = self.grid(f"exp({source}[m, n] - {top}[m])")
        total = self.row("+=", f"{e}[m, n]")
        self.grid(f"{e}[m, n] / {total}[m]")

    def normalise(self) -> None:
        source = self.some()
        total = self.row("+=", f"{source}[m, n]")
        c = self.grid(f"{source}[m, n] - {total}[m] * (1.0 / {self.columns})")
        if self.pick.chance(2):
            squares = self.row("+=", f"{c}[m, n] * {c}[m, n]")
            scale = self.tensor("r", "M0")
            self.compute.append(f"{scale}[m] = rsqrt({squares}[m] * (1.0 / {self.columns}) + 0.5)")
            self.grid(f"{c}[m, n] * {scale}[m]")

    def reduced_twice(self) -> None:
        """The rows' result added or subtracted, which a later step may reduce again."""
        source = self.some()
        row = self.row(self.pick(("+=", "max=")), f"{source}[m, n]")
        self.grid(f"{self.some()}[m, n] {self.pick('+-*')} {row}[m]")

    def residual(self) -> None:
        self.grid(f"{self.latest}[m, n] + {self.pick(self.grids)}[m, n]")

    def elementwise(self) -> None:
        source, symbol = f"{self.some()}[m, n]", self.pick("+-*")
        match self.pick(("relu", "bias", "constant", "input", "twice", "column")):
            case "relu":
                self.grid(f"max({source}, 0)")
            case "bias":
                self.grid(f"max({source} + {self.tensor('b', self.columns)}[n], 0)")
            case "constant":
                self.grid(f"{source} {self.pick('+*')} {self.pick((0.5, -2.0, 3.0))}")
            case "input":
                self.grid(f"{source} {symbol} {self.tensor('x', 'M0', self.columns)}[m, n]")
            case "column":
                self.grid(f"{source} {symbol} {self.tensor('b', 'M0')}[m]")
            case _:
                self.grid(f"{source} {symbol} {source}")

    def column_sum(self) -> None:
        """The other direction: over the rows."""
        source = self.some()
        name = self.tensor("k", self.columns)
        self.compute.append(f"{name}[n] {self.pick(('+=', 'max='))} {source}[m, n]")
        self.grid(f"{source}[m, n] {self.pick('+-*')} {name}[n]")

    def gram(self) -> None:
        """Rows by rows, both factors on the chip; transposed in one of them."""
        name, source = self.tensor("g", "M0", "M0"), self.some()
        self.compute.append(f"{name}[m, n] += {self.latest}[m, k] * {source}[n, k]")
        self.columns, self.grids = "M0", [name]


def phased_workload(choose: Callable[[Sequence[object]], object]) -> Spec:
    """A workload in float32 of two to five steps, one to some ten statements."""
    pick = Pick(choose)
    chain = _Chain(pick)
    chain.size("M")
    chain.size("N")
    chain.grids = [chain.tensor("x", "M0", "N0")]
    steps = (
        *(_Chain.product, _Chain.product, _Chain.softmax, _Chain.normalise, _Chain.reduced_twice),
        *(_Chain.residual, _Chain.elementwise, _Chain.elementwise, _Chain.column_sum, _Chain.gram),
    )
    for _ in range(pick((2, 1, 2, 3))):
        pick(steps)(chain)
    if pick.chance(4):
        chain.row("+=", f"{chain.latest}[m, n]")
    return {
        "name": "fuzz", "sizes": chain.sizes, "tensors": chain.tensors, "compute": chain.compute
    }  # fmt: skip
