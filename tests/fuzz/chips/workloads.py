"""Random workloads of any form: accumulations, elementwise chains, views, odd indices.

Most are legal; a few must be refused with an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hwgen.verify.natural.draws import Choose, Pick, Spec

EXTENTS = (1, 2, 3, 5, 16, 17, 33)
INPUT_TYPES = ("int8",) * 24 + ("int32",) * 4 + ("uint8", "int16")
OUTPUT_TYPES = ("int8",) * 30 + ("int32", "int16")
KEPT_TYPES = ("int32",) * 20 + ("int8",)
KINDS = (
    ("add", "shift", "clip", "max", "min", "imm", "twice", "two") * 12
    + ("big", "mul", "sub", "neg", "left", "select", "cast", "scale")
)  # fmt: skip


@dataclass
class _Index:
    """One index: its text over loops and its greatest value."""

    text: str
    top: int


@dataclass
class _Builder:
    pick: Pick
    floats: bool
    dtype: dict[str, str] = field(default_factory=dict[str, str])
    shape: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    compute: list[tuple[str, dict[str, int]]] = field(
        default_factory=list[tuple[str, dict[str, int]]]
    )
    extents: dict[str, int] = field(default_factory=dict[str, int])
    free: list[str] = field(default_factory=list[str])
    fixed: set[str] = field(default_factory=set[str])
    rest: list[str] = field(default_factory=list[str])

    def tensor(self, base: str, dtype: str) -> str:
        name = f"{base}{sum(n.startswith(base) for n in self.dtype)}"
        self.dtype[name] = dtype
        return name

    def access(self, name: str, indices: Sequence[_Index]) -> str:
        """An access; the tensor grows to hold it."""
        tops = [i.top + 1 for i in indices]
        known = self.shape.setdefault(name, tops)
        self.shape[name] = [max(a, b) for a, b in zip(known, tops, strict=True)]
        return f"{name}[{', '.join(i.text for i in indices)}]"

    def index(self, loop: str) -> _Index:
        """A loop as an index: mostly plain, else strided, shifted, reversed."""
        last = self.extents[loop] - 1
        match self.pick(("plain",) * 8 + ("shift", "stride", "reverse", "both")):
            case "shift":
                return _Index(f"{loop} + 1", last + 1)
            case "stride":
                return _Index(f"2*{loop}", 2 * last)
            case "reverse":
                return _Index(f"{last} - {loop}", last)
            case "both":
                return _Index(f"2*{loop} + 1", 2 * last + 1)
            case _:
                return _Index(loop, last)

    def indices(self, loops: Sequence[str]) -> list[_Index]:
        """Indices over loops, some permuted, some windows of two loops, some constant."""
        order = list(loops)
        if self.pick.chance(4):
            order.reverse()
        result: list[_Index] = []
        while order:
            loop = order.pop(0)
            if order and self.pick.chance(8):
                other = order.pop(0)
                step = self.pick((1, 2))
                text = f"{step}*{loop} + {other}" if step > 1 else f"{loop} + {other}"
                top = step * (self.extents[loop] - 1) + self.extents[other] - 1
                result.append(_Index(text, top))
            else:
                result.append(self.index(loop))
        if not result or self.pick.chance(10):
            value = self.pick((0, 1))
            result.insert(0, _Index(str(value), value))
        return result

    def read(self, loops: Sequence[str], dtype: str = "") -> str:
        """An access to a new input, or to a known one."""
        same = [
            n
            for n in self.free
            if len(self.shape[n]) == len(loops) and dtype in ("", self.dtype[n])
        ]
        if same and self.pick.chance(4):
            return self.access(self.pick(same), [_Index(n, self.extents[n] - 1) for n in loops])
        name = self.tensor("x", "float32" if self.floats else dtype or self.pick(INPUT_TYPES))
        text = self.access(name, self.indices(loops))
        self.free.append(name)
        return text

    def subset(self, loops: Sequence[str]) -> list[str]:
        return [n for n in loops if not self.pick.chance(4)]

    # -- accumulations ----------------------------------------------------------------------

    def accumulation(self, spatial: Sequence[str], reduced: Sequence[str]) -> str:
        everything = [*spatial, *reduced]
        kind = self.pick(
            ("product",) * 12
            + ("sum",) * 4
            + ("computed",) * 2
            + ("max=", "min=", "square", "three")
        )
        op = kind if kind.endswith("=") else "+="
        dtype = "int8" if kind in ("product", "square", "three") else ""
        first = self.read(self.subset(everything), dtype)
        match kind:
            case "product":
                value = f"{first} * {self.read(self.subset(everything), dtype)}"
            case "square":
                value = f"{first} * {first}"
            case "three":
                value = f"{first} * {self.read(self.subset(spatial), dtype)} + {first}"
            case "computed":
                value = f"max({first}, {self.pick((0, -3))})"
            case _:
                value = first
        as_output = self.pick.chance(30)
        wide = "float32" if "float32" in self.types(value) else "int32"
        name = self.tensor("y" if as_output else "s", wide)
        target = self.access(
            name, [_Index(n, self.extents[n] - 1) for n in spatial] or [_Index("0", 0)]
        )
        self.statement(f"{target} {op} {value}", everything)
        return name

    def types(self, text: str) -> set[str]:
        return {t for n, t in self.dtype.items() if f"{n}[" in text}

    def statement(self, text: str, loops: Sequence[str]) -> None:
        used = [n for n in loops if self.mentions(text, n)]
        extents = {n: self.extents[n] for n in used}
        if self.pick.chance(4):
            extents = dict(reversed(extents.items()))
        self.compute.append((text, extents))

    @staticmethod
    def mentions(text: str, loop: str) -> bool:
        return re.search(rf"\b{loop}\b", text) is not None

    # -- elementwise ------------------------------------------------------------------------

    def is_read(self, name: str) -> bool:
        """Whether a statement reads a tensor, which is no output then."""
        return any(f"{name}[" in text.split("=", 1)[1] for text, _ in self.compute)

    def leaf(self, produced: Sequence[str], spatial: Sequence[str]) -> str:
        if produced and self.pick(range(3)) < 2:
            name = self.pick(produced)
            return self.at(name, spatial)
        return self.read(self.subset(spatial))

    def at(self, name: str, spatial: Sequence[str]) -> str:
        return f"{name}[{', '.join(spatial) or '0'}]"

    def value(self, produced: Sequence[str], spatial: Sequence[str], depth: int) -> str:
        if depth == 0 or self.pick.chance(6):
            return self.leaf(produced, spatial)
        inner = self.value(produced, spatial, depth - 1)
        kind = self.pick(KINDS)
        match kind:
            case "add" | "max" | "min" | "mul" | "sub":
                other = self.value(produced, spatial, self.pick((0, 0, depth - 1)))
                if self.pick.chance(2):
                    inner, other = other, inner
                symbol = {"add": "+", "mul": "*", "sub": "-"}.get(kind)
                return f"({inner} {symbol} {other})" if symbol else f"{kind}({inner}, {other})"
            case "shift":
                return f"({inner} >> {self.pick((1, 0, 7, 31))})"
            case "left":
                return f"({inner} << {self.pick((1, 3))})"
            case "clip":
                low, high = self.pick(((-128, 127), (0, 127), (-5, 5)) * 6 + ((0, 40000),))
                return f"clip({inner}, {low}, {high})"
            case "imm":
                return f"({inner} + {self.pick((1, -1, 0, 32767, -32768))})"
            case "big":
                return f"({inner} + {self.pick((40000, 32768, -40000, 1000000))})"
            case "scale":
                return f"({self.pick((2, 3, -1))} * {inner})"
            case "twice":
                return f"({inner} + {inner})"
            case "neg":
                return f"(-{inner})"
            case "cast":
                return f"{self.pick(('int32', 'int8', 'int16'))}({inner})"
            case "select":
                return f"select({inner} > 0, {inner}, 0)"
            case _:
                return f"max(min({inner}, 100), {self.leaf(produced, spatial)})"

    def elementwise(
        self, produced: list[str], spatial: Sequence[str], last: bool, depth: int
    ) -> str:
        value = self.value(produced, spatial, depth)
        for name in self.rest:
            if f"{name}[" not in value and self.pick(range(5)):
                value = f"({value} + {self.at(name, spatial)})"
        is_output = last or self.pick.chance(5)
        dtype = self.pick(OUTPUT_TYPES if is_output else KEPT_TYPES)
        if "float32" in self.types(value):
            dtype = "float32"
            text = value
        else:
            text = f"{dtype}({value})" if dtype != "int32" or self.pick.chance(4) else value
        name = self.tensor("y" if is_output else "t", dtype)
        target = self.access(
            name, [_Index(n, self.extents[n] - 1) for n in spatial] or [_Index("0", 0)]
        )
        self.statement(f"{target} = {text}", spatial)
        return name


def random_workload(choose: Choose) -> Spec:
    """A workload as plain data for `hwgen.spec.load.parse_workload`."""
    pick = Pick(choose)
    b = _Builder(pick, pick.chance(20))
    spatial = [("i", "j", "k", "l")[n] for n in range(pick((2, 1, 2, 3, 4)))]
    for name in spatial:
        b.extents[name] = pick(EXTENTS[: 7 if len(spatial) < 3 else 5])
    produced: list[str] = []
    if not pick.chance(3):
        reduced = [("r", "s")[n] for n in range(pick((1, 1, 2, 0)))]
        for name in reduced:
            b.extents[name] = pick(EXTENTS)
        produced.append(b.accumulation(spatial, reduced))
    count = pick((1, 1, 2, 3)) - (bool(produced) and produced[0][0] == "y" and pick.chance(2))
    for n in range(max(count, 0 if produced else 1)):
        b.rest = [t for t in produced if n == count - 1 and not b.is_read(t)]
        produced.append(b.elementwise(produced, spatial, n == count - 1, pick((1, 2, 3))))
    padded(b)
    order = list(b.dtype)
    if pick.chance(4):
        order.reverse()
    slack = {n: pick((0, 0, 0, 1)) if n.startswith("x") and n not in b.fixed else 0 for n in order}
    return {
        "name": "drawn",
        "tensors": {
            n: f"{b.dtype[n]}[{', '.join(str(e + slack[n]) for e in b.shape[n])}]" for n in order
        },
        "compute": [{"do": text, "loops": loops} for text, loops in b.compute],
    }


def padded(b: _Builder) -> None:
    """Put a zero-padded view in front of one input, sometimes."""
    inputs = [n for n in b.free if len(b.shape[n]) >= 2]
    if not inputs or not b.pick.chance(4):
        return
    name = b.pick(inputs)
    view = b.tensor("v", b.dtype[name])
    b.compute = [(text.replace(f"{name}[", f"{view}["), loops) for text, loops in b.compute]
    extents = b.shape[name]
    b.shape[view] = list(extents)
    pads = [b.pick((0, 1, 2)) for _ in extents]
    inner = [max(1, e - p - b.pick((0, 1))) for e, p in zip(extents, pads, strict=True)]
    b.shape[name] = inner
    loops = [f"d{n}" for n in range(len(extents))]
    guard = " and ".join(
        f"{d} >= {p} and {d} < {p + e}" for d, p, e in zip(loops, pads, inner, strict=True)
    )
    at = ", ".join(f"{d} - {p}" if p else d for d, p in zip(loops, pads, strict=True))
    text = f"{view}[{', '.join(loops)}] = select({guard}, {name}[{at}], {b.pick((0, 0, -128, 3))})"
    b.compute.insert(0, (text, dict(zip(loops, extents, strict=True))))
    b.fixed.add(name)
