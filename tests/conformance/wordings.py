"""Computations in two wordings, as users write them: those of `wordings.yaml`, and those of a layer
that every chip with units has."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import yaml

import hwgen
from hwgen.model.numeric import Array
from hwgen.passes.kernel import Kernel
from hwgen.pipeline import compile_workload
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
Statements = tuple[str, ...]
Types = Mapping[str, str]
_NONE: Mapping[str, int] = MappingProxyType({})
_NO_TYPES: Types = MappingProxyType({})


@dataclass(frozen=True)
class Wording:
    """One of the two: the types of its tensors (`const` before those of constants), and extents of
    loops, outermost first."""

    chip: str
    tensors: tuple[tuple[str, str], ...]
    statements: Statements
    loops: tuple[tuple[str, int], ...] = ()

    @property
    def workload(self) -> Workload:
        text = " ".join(self.statements)
        used = {n: t for n, t in self.tensors if re.search(rf"\b{n}\[", text)}
        tensors = {
            n: {"type": t.removeprefix("const "), "constant": True} if "const" in t else t
            for n, t in used.items()
        }
        return hwgen.workload("wording", tensors=tensors, compute=[*map(self._do, self.statements)])

    def _do(self, statement: str) -> Any:
        named = {*re.findall(r"[a-z]\w*", statement)}
        loops = {n: e for n, e in self.loops if n in named}
        return {"do": statement, "loops": loops} if loops else statement

    @property
    def kernel(self) -> Kernel:
        return _compiled(self)


@cache
def _compiled(wording: Wording) -> Kernel:
    chip = load_hardware(ROOT / "hw_specs" / f"{wording.chip}.yaml")
    return compile_workload(wording.workload, chip)


@dataclass(frozen=True)
class Pair:
    """Two wordings of one computation. `given`: values of inputs. `hosted`: the host computes a
    part. `worse`: what one takes as a multiple of the other, where they differ, and why."""

    name: str
    one: Wording
    other: Wording
    given: Mapping[str, Array] = field(default_factory=dict[str, Array])
    hosted: bool = False
    worse: tuple[float, str] | None = None

    @property
    def ratio(self) -> float:
        """What the slower wording takes as a multiple of the faster one."""
        cycles = sorted(w.kernel.cycles for w in (self.one, self.other))
        return cycles[1] / cycles[0]


@dataclass(frozen=True)
class Layer:
    """A product of matrices and what ends it, as a chip has it: `{}` stands for the sum. `sums`:
    those in the type of their bias."""

    tensors: Types
    product: str
    ending: str
    sums: str = "acc[m, n]"

    @property
    def statements(self) -> Statements:
        return self.product, self.ended(f"({self.sums} + bias[n])")

    def ended(self, sums: str) -> str:
        return "y[m, n] = " + self.ending.format(sums)

    def pairs(self, chip: str) -> Iterator[Pair]:
        """Wordings that mean something on every chip."""
        types = {n: t.split("[")[0].removeprefix("const ") for n, t in self.tensors.items()}
        rows, columns, depth = 16, 32, 48
        left, right = self.product.split(" += ")[1].split(" * ")
        one, end = self.statements

        def pair(
            name: str, *other: str, more: Types = _NO_TYPES, loops: Mapping[str, int] = _NONE
        ) -> Pair:
            wordings = (
                _wording(chip, self.tensors, (one, end)),
                _wording(chip, {**self.tensors, **more}, other, loops),
            )
            return Pair(f"{name}, {chip}", *wordings)

        def shaped(rank: str) -> Types:
            ends = {"a": depth, "acc": columns, "y": columns}
            return {n: f"{types[n]}[{rank}, {e}]" for n, e in ends.items()}

        exchanged = f"acc[m, n] += {right} * {left}"
        yield pair("operands exchanged", exchanged, self.ended(f"(bias[n] + {self.sums})"))
        yield pair(
            "biased sum named",
            one,
            f"t[m, n] = {self.sums} + bias[n]",
            self.ended("t[m, n]"),
            more={"t": f"{types['bias']}[{rows}, {columns}]"},
        )
        copied = {"z": f"{types['y']}[{rows}, {columns}]"}
        yield pair(
            "result copied", one, end.replace("y[", "z[", 1), "y[m, n] = z[m, n]", more=copied
        )
        copied = {"d": f"{types['a']}[{rows}, {depth}]"}
        copy = "d[m, k] = a[m, k]"
        yield pair("input copied", copy, one.replace("a[m", "d[m"), end, more=copied)
        batch = (s.replace("[m,", "[o, m,") for s in (one, end))
        yield pair("batch of one", *batch, more=shaped(f"1, {rows}"))
        split = (s.replace("[m,", "[h, w,") for s in (one, end))
        yield pair("rows by two indices", *split, more=shaped(f"{rows // 8}, 8"))
        turned = {"k": depth, "n": columns, "m": rows}
        yield pair("loops in another order", one, end, loops=turned)


def _wording(
    chip: str, tensors: Types, statements: Sequence[str], loops: Mapping[str, int] = _NONE
) -> Wording:
    return Wording(chip, tuple(tensors.items()), tuple(statements), tuple(loops.items()))


def _pairs() -> Iterator[Pair]:
    text = (Path(__file__).parent / "wordings.yaml").read_text()
    table = cast("dict[str, Any]", yaml.safe_load(text))
    known = cast("dict[str, dict[str, Any]]", table["layers"])
    layers = {chip: Layer(**layer) for chip, layer in known.items()}
    worse = cast("dict[str, tuple[float, str]]", table["worse"])
    found = [pair for chip, layer in layers.items() for pair in layer.pairs(chip)]
    found += [
        _pair(p, layers, table["tensors"]) for p in cast("list[dict[str, Any]]", table["pairs"])
    ]
    assert {*worse} <= {p.name for p in found}
    for pair in found:
        yield replace(pair, worse=worse.get(pair.name))


def _pair(known: Mapping[str, Any], layers: Mapping[str, Layer], sets: Mapping[str, Types]) -> Pair:
    """A pair of the table."""
    chip, own = cast("str", known["chip"]), cast("str | Types", known["tensors"])
    tensors: Types = own if not isinstance(own, str) else sets.get(own, layers[chip].tensors)
    more, types = (cast("Types", known.get(n, {})) for n in ("more", "types"))
    loops = cast("Mapping[str, int]", known.get("loops", {}))
    # What is of the second wording alone has its type from there in both.
    first, second = {**tensors, **more, **tensors, **types}, {**tensors, **more, **types}
    given = cast("Mapping[str, str]", known.get("given", {}))
    return Pair(
        known["name"],
        _wording(chip, first, known["one"], loops),
        _wording(chip, second, known["other"], loops),
        {n: _VALUES[v] for n, v in given.items()},
        known.get("hosted", False),
    )


_VALUES: Mapping[str, Array] = {
    "eye": np.eye(16, dtype=np.int8),
    "zeros": np.zeros((32, 48), np.int8),
}
PAIRS = {pair.name: pair for pair in _pairs()}
