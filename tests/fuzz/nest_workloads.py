"""Random small workloads for schedules: sums of products, windows, padding, chains, several
outputs. What is drawn goes beyond what any one unit takes; the numbers stay exact in float32.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar

from hwgen.spec.expression import Access, Name, names, walk
from hwgen.spec.hardware import Intrinsic

EXTENTS = (4, 1, 2, 3, 5, 6, 7, 8, 9, 11, 13)
MAX_POINTS = 6000
"""Of one statement's domain."""
MAX_ELEMENTS = 2000
"""Of one tensor."""
REALS = ("float32", "float32", "float32", "float16", "bfloat16")
INTEGERS = ("int32", "int8", "int16", "uint8")

Data = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Draws:
    """Decisions. `choose(n)` gives one of `0 ..< n`; zero is the simplest."""

    choose: Callable[[int], int]

    def __call__(self, options: Sequence[T]) -> T:
        return options[self.choose(len(options))]

    def chance(self, one_in: int) -> bool:
        return self.choose(one_in) == one_in - 1

    def shuffled(self, items: Sequence[T]) -> list[T]:
        left = list(items)
        return [left.pop(self.choose(len(left))) for _ in items]


@dataclass(frozen=True, slots=True)
class _Loop:
    """An iterator of the statement that is being written."""

    name: str
    extent: int


@dataclass(slots=True)
class _Builder:
    """A workload while it is drawn. `real`: the type of its floats, where it has floats; sums are
    float32."""

    draws: Draws
    floats: bool
    real: str = "float32"
    dtype: dict[str, str] = field(default_factory=dict[str, str])
    shape: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    inputs: list[str] = field(default_factory=list[str])
    produced: list[str] = field(default_factory=list[str])
    compute: list[tuple[str, tuple[_Loop, ...]]] = field(
        default_factory=list[tuple[str, tuple[_Loop, ...]]]
    )

    # Tensors and accesses

    def tensor(self, letter: str, dtype: str, shape: Sequence[int]) -> str:
        name = f"{letter}{len(self.dtype)}"
        self.dtype[name], self.shape[name] = dtype, tuple(shape)
        return name

    def input(self, shape: Sequence[int], dtype: str = "") -> str:
        kind = self.real if self.floats else dtype or self.draws(("int8", "int32", "uint8"))
        name = self.tensor("x", kind, shape)
        self.inputs.append(name)
        return name

    def other(self, loops: Sequence[_Loop]) -> str:
        """An access to some tensor from inside loops."""
        if self.produced and self.draws.chance(2):
            found = self.known(self.draws(self.produced), loops)
            if found:
                return found
        if self.inputs and self.draws.chance(4):
            found = self.known(self.draws(self.inputs), loops)
            if found:
                return found
        used = [x for x in loops if not self.draws.chance(3)]
        while prod(x.extent for x in used) > MAX_ELEMENTS:
            used.pop()
        if self.draws.chance(3):
            used = self.draws.shuffled(used)
        slack = [self.draws((0, 0, 0, 0, 0, 2)) for _ in used]
        name = self.input([x.extent + s for x, s in zip(used, slack, strict=True)] or [1])
        indices = [
            f"{x.extent - 1} - {x.name}"
            if self.draws.chance(5)
            else _plus(x.name, self.draws(range(s + 1)))
            for x, s in zip(used, slack, strict=True)
        ]
        return f"{name}[{', '.join(indices) or '0'}]"

    def known(self, name: str, loops: Sequence[_Loop]) -> str:
        """An access to a given tensor, an index of which is any loop that fits, or a constant."""
        indices: list[str] = []
        free = list(loops)
        for extent in self.shape[name]:
            fitting = [x for x in free if x.extent <= extent]
            same = [x for x in fitting if x.extent == extent]
            if not fitting or self.draws.chance(9):
                indices.append(str(self.draws(range(extent))))
                continue
            loop = self.draws(same or fitting)
            free.remove(loop)
            room = extent - loop.extent
            if 2 * loop.extent - 1 <= extent and self.draws.chance(2):
                indices.append(f"2*{loop.name}")
            elif self.draws.chance(8):
                indices.append(f"{extent - 1} - {loop.name}")
            else:
                indices.append(_plus(loop.name, self.draws(range(room + 1))))
        return f"{name}[{', '.join(indices)}]"

    def source(self, least: int = 1) -> str:
        """A tensor to start a statement from, the newest that nobody read as a rule."""
        fits = [
            n
            for n in self.produced
            if len(self.shape[n]) <= 4 and all(e >= least for e in self.shape[n])
        ]
        if fits and not self.draws.chance(6):
            return fits[-1] if not self.draws.chance(3) else self.draws(fits)
        rank = self.draws((2, 1, 2, 3))
        shape = [max(least, self.draws(EXTENTS)) for _ in range(rank)]
        while prod(shape) > MAX_ELEMENTS // 4:
            shape[shape.index(max(shape))] //= 2
        return self.input([max(least, e) for e in shape])

    # Statements

    def emit(
        self, letter: str, dtype: str, target: Sequence[_Loop], op: str, value: str,
        loops: Sequence[_Loop],
    ) -> None:  # fmt: skip
        kept = list(target)
        if len(kept) > 1 and self.draws.chance(4):
            kept = self.draws.shuffled(kept)
        name = self.tensor(letter, dtype, [x.extent for x in kept] or [1])
        text = f"{name}[{', '.join(x.name for x in kept) or '0'}] {op} {value}"
        order = list(loops)
        if self.draws.chance(5):
            order = self.draws.shuffled(order)
        self.compute.append((text, tuple(order)))
        self.produced.append(name)

    def cast(self, value: str, narrow: bool = True) -> tuple[str, str]:
        """A value in a type, and that type."""
        if self.floats:
            return (value if self.real == "float32" else f"{self.real}({value})"), self.real
        dtype = self.draws(INTEGERS if narrow else ("int32",))
        return (value if dtype == "int32" else f"{dtype}({value})"), dtype

    def elementwise(self) -> None:
        source = self.source()
        loops = [_Loop("ijkl"[n], e) for n, e in enumerate(self.shape[source])]
        value = f"{source}[{', '.join(x.name for x in loops)}]"
        if self.draws.chance(6):
            loops.append(_Loop("n", self.draws((2, 3))))
        for _ in range(self.draws((1, 0, 1, 2))):
            value = self.operation(value, loops)
        text, dtype = self.cast(value)
        self.emit("t", dtype, [x for x in loops if x.extent > 0], "=", text, loops)

    def operation(self, value: str, loops: Sequence[_Loop]) -> str:
        kind = self.draws(("add", "scale", "max", "sub", "square", "select", "guard", "where"))
        match kind:
            case "add":
                return f"({value} + {self.other(loops)})"
            case "sub":
                return f"({self.other(loops)} - {value})"
            case "max":
                return f"{self.draws(('max', 'min'))}({value}, {self.draws((0, 1, -2))})"
            case "scale":
                return f"({value} * {self.draws((2, -1, 3))})"
            case "square":
                return f"({value} * {value})" if len(value) < 20 else f"(-{value})"
            case "select":
                return f"select({value} > 0, {value}, {self.other(loops)})"
            case "where":
                loop = self.draws(loops)
                return f"select({loop.name} < {self.draws((1, 2, loop.extent))}, {value}, 0)"
            case _:
                loop = self.draws(loops)
                return value if self.floats else f"({value} + {loop.name})"

    def window(self) -> None:
        """A sum over neighbours along one dimension."""
        source = self.source(3)
        shape = self.shape[source]
        axis = self.draws(range(len(shape)))
        reach = self.draws((3, 2))
        step = 2 if shape[axis] >= 5 and self.draws.chance(4) else 1
        loops = [
            _Loop("ijkl"[n], (e - reach) // step + 1 if n == axis else e)
            for n, e in enumerate(shape)
        ]
        reads: list[str] = []
        for c in range(reach):
            at = [x.name for x in loops]
            at[axis] = _plus(f"{step}*{at[axis]}" if step > 1 else at[axis], c)
            reads.append(f"{source}[{', '.join(at)}]")
        text, dtype = self.cast(" + ".join(reads))
        self.emit("t", dtype, loops, "=", text, loops)

    def padding(self) -> None:
        """A view with a rim of constants."""
        source = self.source()
        shape = self.shape[source]
        pads = [self.draws((1, 0, 2)) for _ in shape]
        wide = [e + 2 * p for e, p in zip(shape, pads, strict=True)]
        loops = [_Loop("ijkl"[n], e) for n, e in enumerate(wide)]
        if prod(x.extent for x in loops) > MAX_ELEMENTS:
            return self.elementwise()
        tests = [
            f"{x.name} >= {p} and {x.name} < {p + e}"
            for x, e, p in zip(loops, shape, pads, strict=True)
            if p
        ]
        at = ", ".join(_plus(x.name, -p) for x, p in zip(loops, pads, strict=True))
        value = f"{source}[{at}]"
        if tests:
            value = f"select({' and '.join(tests)}, {value}, {self.draws((0, 1))})"
        dtype = self.dtype[source]
        text = value if dtype in ("int32", "float32") else f"{dtype}({value})"
        return self.emit("p", dtype, loops, "=", text, loops)

    def reduction(self) -> None:
        """A fold over one to three loops, alone or of products, windows included."""
        source = self.source()
        at: list[str] = []
        loops: list[_Loop] = []
        folded: list[_Loop] = []
        for n, extent in enumerate(self.shape[source]):
            loop = _Loop("ijkl"[n], extent)
            kind = self.draws(("fold", "keep", "keep", "window" if extent >= 3 else "fold"))
            if kind == "window":
                reach = _Loop("rstu"[n], self.draws((2, 3)))
                loop = _Loop(loop.name, extent - reach.extent + 1)
                loops += [loop, reach]
                folded.append(reach)
                at.append(f"{loop.name} + {reach.name}")
                continue
            loops.append(loop)
            at.append(f"{extent - 1} - {loop.name}" if self.draws.chance(4) else loop.name)
            if kind == "fold":
                folded.append(loop)
        more = _Loop("n", self.draws(EXTENTS[:7]))
        points = prod(x.extent for x in loops)
        if points * more.extent <= MAX_POINTS and self.draws.chance(2):
            loops.insert(self.draws((0, len(loops))), more)
        kept = [x for x in loops if x not in folded]
        value = f"{source}[{', '.join(at)}]"
        op = self.draws(("+=", "+=", "+=", "max=", "min="))
        if more in loops or not self.draws.chance(3):
            value = (
                f"{value} * {self.carrying(more, loops) if more in loops else self.other(loops)}"
            )
        elif self.draws.chance(4):
            value = self.operation(value, loops)
        if self.draws.chance(12) and not self.floats and op != "+=":
            text, dtype = f"int8({value})", "int8"
        else:
            text, dtype = value, "float32" if self.floats else "int32"
        if prod(x.extent for x in kept) > MAX_ELEMENTS:
            return self.elementwise()
        if self.draws.chance(5):
            return self.in_order(dtype, kept, value, [*kept, *folded])
        return self.emit("s", dtype, kept, op, text, [*kept, *folded])

    def in_order(
        self, dtype: str, kept: Sequence[_Loop], value: str, loops: Sequence[_Loop]
    ) -> None:
        """A fold whose every value is made from the last one: nothing may be reordered."""
        at = ", ".join(x.name for x in kept) or "0"
        name = self.tensor("o", dtype, [x.extent for x in kept] or [1])
        element = f"{name}[{at}]"
        begin = self.draws(("0", "3", self.other(kept) if kept else "0"))
        if self.floats:
            made = f"max({element} + {value}, {self.draws((0, -3))})"
        else:
            made = self.draws(
                (f"clip({element} + {value}, -99, 77)", f"({element} >> 1) + {value}")
            )
            made, begin = f"{dtype}({made})", f"{dtype}({begin})"
        self.compute.append((f"{element} = {begin}", tuple(kept)))
        order = self.draws.shuffled(loops) if self.draws.chance(3) else list(loops)
        self.compute.append((f"{element} = {made}", tuple(order)))
        self.produced.append(name)

    def carrying(self, loop: _Loop, loops: Sequence[_Loop]) -> str:
        """An input that one loop and some others index."""
        used = [loop, *(x for x in loops if x != loop and self.draws.chance(2))]
        while prod(x.extent for x in used) > MAX_ELEMENTS:
            used.pop()
        used = self.draws.shuffled(used)
        name = self.input([x.extent for x in used], "int8")
        return f"{name}[{', '.join(x.name for x in used)}]"

    def matching(self, intrinsic: Intrinsic) -> None:
        """What an intrinsic computes, several times over."""
        rule = intrinsic.semantics[0]
        loops = [_Loop(n, e * self.draws((2, 1, 3, 1))) for n, e in intrinsic.iterators]
        extents = {x.name: x.extent for x in loops}
        outer = [_Loop("b", self.draws((2, 3)))] if self.draws.chance(2) else []
        value = str(rule.value)
        for access in dict.fromkeys(a for a in walk(rule.value) if isinstance(a, Access)):
            used = [n.name for n in access.indices if isinstance(n, Name)]
            more = [x for x in outer if not self.draws.chance(3)]
            dtype = intrinsic.operand(access.tensor).dtype
            shape = [x.extent for x in more] + [extents[n] for n in used]
            same = [
                n for n in self.produced if self.dtype[n] == dtype and self.shape[n] == (*shape,)
            ]
            known = bool(same) and self.draws.chance(2)
            name = self.draws(same) if known else self.tensor("x", dtype, shape)
            indices = ", ".join([*(x.name for x in more), *used])
            value = value.replace(str(access), f"{name}[{indices}]")
        kept = [x for x in loops if x.name in {n for i in rule.target.indices for n in names(i)}]
        dtype = intrinsic.operand(rule.target.tensor).dtype
        name = self.tensor("s", dtype, [x.extent for x in (*outer, *kept)])
        target = f"{name}[{', '.join(x.name for x in (*outer, *kept))}]"
        self.compute.append((f"{target} {rule.op} {value}", (*outer, *loops)))
        self.produced.append(name)

    def normal(self) -> None:
        """Rows less their largest element, and the sums of what is left."""
        source = self.source()
        shape = self.shape[source]
        if len(shape) < 2:
            return self.reduction()
        loops = [_Loop("ijkl"[n], e) for n, e in enumerate(shape)]
        rows = loops[:-1]
        at = ", ".join(x.name for x in loops)
        row = ", ".join(x.name for x in rows)
        kind = "float32" if self.floats else "int32"
        name = self.tensor("m", kind, [x.extent for x in rows])
        self.compute.append((f"{name}[{row}] max= {source}[{at}]", tuple(loops)))
        less = self.tensor("d", kind, shape)
        self.compute.append((f"{less}[{at}] = {source}[{at}] - {name}[{row}]", tuple(loops)))
        total = self.tensor("s", kind, [x.extent for x in rows])
        self.compute.append((f"{total}[{row}] += {less}[{at}]", tuple(loops)))
        last = self.tensor("y", kind, shape)
        self.compute.append((f"{last}[{at}] = {less}[{at}] * 2 + {total}[{row}]", tuple(loops)))
        self.produced += [name, less, total, last]
        return None


def _plus(text: str, constant: int) -> str:
    if constant == 0:
        return text
    return f"{text} + {constant}" if constant > 0 else f"{text} - {-constant}"


def random_nests(draws: Draws, name: str, intrinsics: Sequence[Intrinsic] = ()) -> Data:
    """A workload as plain data for `hwgen.spec.load.parse_workload`.

    `intrinsics`: some workloads are what these compute, on larger tiles.
    """
    b = _Builder(draws, draws.chance(2), draws(REALS))
    fitting = [x for x in intrinsics if x.written.dtype]
    if fitting and draws.chance(2):
        chosen = draws(fitting)
        b.floats = chosen.written.dtype == "float32"
        for _ in range(draws((1, 1, 2))):
            b.matching(chosen)
    for _ in range(draws((2, 1, 2, 3, 4)) - (2 if b.compute else 0)):
        kind = draws((b.reduction, b.elementwise, b.reduction, b.window, b.padding, b.elementwise))
        (b.normal if draws.chance(10) else kind)()
    used = " ".join(text for text, _ in b.compute)
    order = [n for n in b.dtype if f"{n}[" in used]
    return {
        "name": name,
        "tensors": {n: f"{b.dtype[n]}[{', '.join(map(str, b.shape[n]))}]" for n in order},
        "compute": [
            {"do": text, "loops": {x.name: x.extent for x in loops if _mentions(text, x.name)}}
            for text, loops in b.compute
        ],
    }


def _mentions(text: str, loop: str) -> bool:
    return re.search(rf"\b{loop}\b", text) is not None
