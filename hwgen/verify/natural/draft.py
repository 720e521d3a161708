"""A workload in the making: tensors, indices and operations as people write them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hwgen.spec.hardware import HardwareSpec
from hwgen.verify.natural.draws import Pick, Spec

EXTENTS = (16, 8, 5, 17, 24, 1, 3, 33)
SPATIAL = ("i", "j", "k", "l")
REDUCED = ("r", "s")


@dataclass(frozen=True, slots=True)
class Numbers:
    """Data types of one kind of workload: of inputs, of sums, and of outputs."""

    narrow: str
    wide: str
    out: str

    @property
    def floats(self) -> bool:
        return "float" in self.wide


_OF_PROCESSORS = (
    Numbers("float32", "float32", "float32"),
    Numbers("int8", "int32", "int8"),
    Numbers("float16", "float32", "float16"),
    Numbers("bfloat16", "float32", "bfloat16"),
    Numbers("float32", "float64", "float32"),
    Numbers("uint8", "int32", "uint8"),
    Numbers("int16", "int64", "int32"),
)


def numbers_of(hardware: HardwareSpec) -> tuple[Numbers, ...]:
    """The kinds of numbers that a chip computes with: what its units load, sum up and store."""
    if not hardware.units:
        return _OF_PROCESSORS
    carried: dict[str, list[str]] = {"read": [], "write": []}
    held: list[str] = []
    for operand in (o for i in hardware.intrinsics for o in i.operands):
        if hardware.is_offchip(operand.memory):
            carried["write" if operand.access == "write" else "read"].append(operand.dtype)
        else:
            held.append(operand.dtype)
    kinds: list[Numbers] = []
    for floats in (False, True):
        read, written, wide = (
            sorted((d for d in {*types} if ("float" in d) == floats), key=_width)
            for types in (carried["read"], carried["write"], held)
        )
        if read and written and wide:
            kinds.append(Numbers(read[0], wide[-1], written[0]))
    return tuple(kinds)


def _width(dtype: str) -> tuple[int, str]:
    digits = "".join(c for c in dtype if c.isdigit())
    return int(digits), dtype


@dataclass
class Draft:
    """A workload in the making. Tensors grow to hold what reads them."""

    pick: Pick
    numbers: Numbers
    extents: dict[str, int] = field(default_factory=dict[str, int])
    dtype: dict[str, str] = field(default_factory=dict[str, str])
    shape: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    compute: list[Spec] = field(default_factory=list[Spec])
    unusual: list[str] = field(default_factory=list[str])
    constants: set[str] = field(default_factory=set[str])

    def data(self, seed: int) -> Spec:
        tensors: Spec = {}
        for name, dtype in self.dtype.items():
            text = f"{dtype}{self.shape[name]}"
            constant = {"type": text, "constant": True}
            tensors[name] = constant if name in self.constants else text
        return {"name": f"natural_{seed}", "tensors": tensors, "compute": self.compute}

    def rarely(self, what: str, of: int = 8) -> bool:
        """True once in `of` times, and noted as unusual then."""
        if not self.pick.chance(of):
            return False
        self.unusual.append(what)
        return True

    def loops(self, names: Sequence[str], least: int = 1) -> list[str]:
        """The first few of the names, with extents."""
        chosen = list(names[: self.pick(range(least, len(names) + 1))])
        for name in chosen:
            self.extents.setdefault(name, self.pick(EXTENTS[: 8 if len(names) < 4 else 5]))
        return chosen

    def new(self, base: str, dtype: str) -> str:
        name = f"{base}{sum(n.startswith(base) for n in self.dtype)}"
        self.dtype[name] = dtype
        return name

    def index(self, loop: str) -> tuple[str, int]:
        """An index over a loop, mostly the loop itself, and its greatest value."""
        last = self.extents[loop] - 1
        if self.rarely("stride", 16):
            return f"2*{loop}", 2 * last
        if self.rarely("offset", 16):
            return f"{loop} + 1", last + 1
        if self.rarely("reversed", 32):
            return f"{last} - {loop}", last
        return loop, last

    def read(self, loops: Sequence[str], dtype: str = "", *, constant: bool = False) -> str:
        """An access to a new input over these loops; `constant`: the same in every call."""
        order = list(loops)
        if len(order) > 1 and self.rarely("transpose"):
            order.reverse()
        indices = [self.index(loop) for loop in order]
        if order and self.rarely("diagonal", 24):
            indices.append(indices[-1])
        name = self.new("x", dtype or self.numbers.narrow)
        if constant:
            self.constants.add(name)
        self.shape[name] = [top + 1 for _, top in indices] or [1]
        return f"{name}[{', '.join(text for text, _ in indices) or '0'}]"

    def write(self, base: str, dtype: str, loops: Sequence[str], op: str, value: str) -> str:
        """A statement with a new target; an access to it over the same loops."""
        name = self.new(base, dtype)
        self.shape[name] = [self.extents[n] for n in loops]
        target = f"{name}[{', '.join(loops)}]" if loops else name
        summed = [
            n for n in self.extents if n not in loops and re.search(rf"\b{n}\b", value, re.ASCII)
        ]
        extents = {n: self.extents[n] for n in (*loops, *summed)}
        self.compute.append({"do": f"{target} {op} {value}", "loops": extents})
        return target

    # What values are made of

    def widened(self, access: str) -> str:
        """An access to a narrow tensor as a term of a sum: floats are widened by a cast."""
        n = self.numbers
        return f"{n.wide}({access})" if n.floats and n.narrow != n.wide else access

    def factor(self, loops: Sequence[str], *, constant: bool = False) -> str:
        """A new input as a factor of a sum."""
        return self.widened(self.read(loops, constant=constant))

    def constant(self) -> str:
        return self.pick(("0.5", "2.0", "-1.5") if self.numbers.floats else ("2", "3", "-1"))

    def some(self, spatial: Sequence[str]) -> list[str]:
        """The loops of an operand: all, or of a broadcast one the last ones."""
        if len(spatial) > 1 and self.pick.chance(3):
            return list(spatial[1:])
        return list(spatial)

    def step(self, value: str, spatial: Sequence[str], dtype: str) -> str:
        """One more operation on a value of a type."""
        floats = "float" in dtype
        kinds = ("bias", "relu", "add", "clip", "scale", "minus", "max")
        kind = self.pick((*kinds, *(("divide", "exp") if floats else ("shift", "shift"))))
        if self.rarely("select", 10):
            return f"select({value} > 0, {value}, 0)"
        match kind:
            case "bias":
                return f"({value} + {self.read(spatial[-1:], dtype, constant=True)})"
            case "add":
                return f"({value} + {self.read(self.some(spatial), dtype)})"
            case "minus":
                return f"({value} - {self.read(self.some(spatial), dtype)})"
            case "max":
                return f"max({value}, {self.read(self.some(spatial), dtype)})"
            case "relu":
                return f"max({value}, 0)"
            case "clip":
                return f"clip({value}, {self.pick(('0, 6', '-100, 100', '0, 127'))})"
            case "scale":
                return f"({value} * {self.constant()})"
            case "shift":
                return f"({value} >> {self.pick((1, 4, 7))})"
            case "divide":
                return f"({value} / {self.constant()})"
            case _:
                return f"exp(min({value}, 0))"

    def steps(self, value: str, spatial: Sequence[str], dtype: str, most: int = 2) -> str:
        for _ in range(self.pick(range(most + 1))):
            value = self.step(value, spatial, dtype)
        return value

    def narrowed(self, value: str) -> str:
        """A sum as an output's value: saturated, or rounded after a scale, or just cut off."""
        n = self.numbers
        if n.wide == n.out:
            return value
        if n.floats:
            return f"{n.out}({value})"
        match self.pick(("shift", "round", "cast", "clip")):
            case "shift":
                return f"{n.out}(clip({value} >> {self.pick((4, 7))}, -128, 127))"
            case "round":
                return f"{n.out}(clip(round(float32({value}) * 0.0078125), -128, 127))"
            case "clip":
                return f"{n.out}(clip({value}, {self.pick(('-128, 127', '0, 127'))}))"
            case _:
                return f"{n.out}({value})"

    def output(self, value: str, spatial: Sequence[str], most: int = 2) -> str:
        """The last statements: some operations on a sum, and its narrowing; floats are narrowed
        first."""
        if self.numbers.floats and self.numbers.wide != self.numbers.out:
            out = self.numbers.out
            value = self.write("h", out, spatial, "=", self.narrowed(value))
            return self.write("y", out, spatial, "=", self.steps(value, spatial, out, most))
        return self.write(
            "y", self.numbers.out, spatial, "=",
            self.narrowed(self.steps(value, spatial, self.numbers.wide, most)),
        )  # fmt: skip
