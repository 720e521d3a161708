"""Loops that move a tensor between its row-major form and the chip's image of it."""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign, prod

from hwgen.codegen.c_constants import element_text, integer
from hwgen.codegen.c_expr import Helpers, IndexText, fits_int32, fold
from hwgen.codegen.c_names import C_TYPES, comment, indent
from hwgen.codegen.c_value import ValueText
from hwgen.codegen.host_plan import HostPlan
from hwgen.codegen.layout import dense
from hwgen.codegen.storages import Image
from hwgen.spec.expression import DTYPES, Binary, Const, Expr, Name, names, substitute
from hwgen.spec.intervals import Interval, interval
from hwgen.spec.processor import Instructions
from hwgen.spec.workload import Tensor


def packing(plan: HostPlan, helpers: Helpers) -> list[str]:
    """One static function per image that the kernel's function packs or unpacks:
    `NAME_fill_IMAGE` for inputs, `NAME_unpack_IMAGE` for outputs, and `NAME_clear_IMAGE` for those
    outputs that the caller has as images."""
    elsewhere = (*plan.packed_tensors, *plan.supplied) if plan.workspace else ()
    lines = packing_of(plan, helpers, [t for t in plan.tensors if t not in elsewhere])
    tensors = {t.name: t for t in plan.outputs}
    for image in plan.program.images:
        if clears(plan, image):
            made = _Packing(plan, image, tensors[image.tensor], helpers, clears=True)
            lines += [*made.function(), ""]
    return lines


def clears(plan: HostPlan, image: Image) -> bool:
    """Whether the host clears what lies outside of the tensor in an image that its caller has."""
    tensor = next((t for t in plan.outputs if t.name == image.tensor), None)
    if tensor is None or image.role != "output" or image.tensor not in plan.kept:
        return False
    return _Packing(plan, image, tensor, Helpers(plan.name, {}), clears=True).guarded


def packing_of(plan: HostPlan, helpers: Helpers, tensors: Sequence[Tensor]) -> list[str]:
    """The same functions for some of the tensors."""
    lines: list[str] = []
    for image in plan.staged:
        tensor = next((t for t in tensors if t.name == image.tensor), None)
        if tensor is not None and image.role != "temporary":
            lines += [*_Packing(plan, image, tensor, helpers).function(), ""]
    return lines


def narrow(plan: HostPlan) -> bool:
    """Whether 32 bits hold every offset that packing computes."""
    tensors = {t.name: t for t in plan.tensors}
    return all(
        _Packing(plan, image, tensors[image.tensor], Helpers(plan.name, {})).narrow
        for image in plan.staged
        if image.tensor in tensors
    )


def packing_instructions(plan: HostPlan, costs: Instructions) -> dict[str, float]:
    """What all of these functions retire, by the tensor."""
    tensors = {t.name: t for t in plan.tensors}
    found: dict[str, float] = {}
    for image in plan.staged:
        if image.tensor in tensors and image.role != "temporary":
            made = _Packing(plan, image, tensors[image.tensor], Helpers(plan.name, {}))
            before = found.get(image.tensor, 0.0)
            found[image.tensor] = before + made.instructions(costs)
    return found


class _Packing:
    """The loop nest over one image's positions. `clears`: it leaves the elements as they are, and
    puts 0 outside of the tensor."""

    def __init__(
        self,
        plan: HostPlan,
        image: Image,
        tensor: Tensor,
        helpers: Helpers,
        *,
        clears: bool = False,
    ) -> None:
        self.plan, self.image, self.tensor, self.clears = plan, image, tensor, clears
        extents = image.outer + image.lanes or (1,)
        # Unit loops vanish; the innermost remains so that there always is a loop.
        kept = [d for d, n in enumerate(extents) if n > 1] or [len(extents) - 1]
        gone = {f"p{d}": Const(0) for d in range(len(extents)) if d not in kept}
        self.variables = [f"p{d}" for d in kept]
        self.extents = [extents[d] for d in kept]
        self.index = [fold(substitute(e, gone)) for e in image.index]
        self.ranges: dict[str, Interval] = {
            v: (0, n - 1) for v, n in zip(self.variables, self.extents, strict=True)
        }
        self.text = IndexText(helpers, {v: v for v in self.variables}, self.ranges)
        self.values = ValueText(helpers, lambda _: ("", ""), {})
        self.shape = list(tensor.shape)

    @property
    def strides(self) -> list[int]:
        return [prod(self.shape[d + 1 :]) for d in range(len(self.shape))]

    @property
    def packs(self) -> bool:
        return self.clears or self.image.role == "input"

    def function(self) -> list[str]:
        self._join()
        image, tensor = self.image, self.tensor
        shape = "".join(f"[{n}]" for n in image.outer + image.lanes)
        at = ", ".join(str(fold(e)) for e in image.index).replace("+ -", "- ")
        of = "".join(f"[{n}]" for n in tensor.shape)
        positions = ", ".join(f"p{d}" for d in range(len(image.outer + image.lanes)))
        element, image_element = C_TYPES[tensor.dtype], C_TYPES[image.dtype]
        name = self.plan.name
        verb = "clear" if self.clears else "fill" if self.packs else "unpack"
        pad = f"; {image.fill} outside" if self.packs and self.guarded else ""
        what = f"{image.name}{shape} at ({positions}) holds {tensor.name}{of} at ({at}){pad}."
        if image.supplied is not None:
            where = f"{image.name}{shape} at ({positions})"
            what = f"{where} holds {image.supplied} where ({at}) is inside of {of}{pad}."
        if self.clears or image.supplied is not None:
            arguments = f"{image_element} *to"
        elif self.packs:
            arguments = f"const {element} *from, {image_element} *to"
        else:
            arguments = f"const {image_element} *from, {element} *to"
        return [
            f"/* {comment(what)} */",
            f"static void {name}_{verb}_{self.plan.identifiers[image.name]}({arguments})",
            "{",
            *indent(self._level(0)),
            "}",
        ]

    def _join(self) -> None:
        """Take the two innermost loops as one for as long as the inner one runs through whole rows
        of the tensor and the outer one from row to row: then all that is inside is one block."""
        while min(len(self.variables), len(self.index)) > 1 and self.image.supplied is None:
            *others, rows, row = self.index
            outer, inner = self.variables[-2:]
            start = fold(substitute(rows, {outer: Const(0)}))
            alone = not any({outer, inner}.intersection(names(e)) for e in others)
            whole = row == Name(inner) and self.extents[-1] == self.shape[-1]
            if not (
                whole and alone and _coefficient(rows, outer) == 1 and isinstance(start, Const)
            ):
                return
            if start.value < 0 and not self.packs:
                return
            width = self.shape.pop()
            self.variables.pop()
            self.extents[-2:] = [self.extents[-2] * width]
            self.shape[-1] *= width
            joined = Binary("+", Name(outer), Const(int(start.value) * width))
            self.index = [*others, fold(joined)]
            self.ranges[outer] = (0, self.extents[-1] - 1)

    def missing_entry(self) -> list[str]:
        """`NAME_missing_IMAGE(writer)` over every position inside the tensor."""
        conditions = [c for k in range(len(self.index)) for c in self._conditions(k)]
        outer = len(self.image.outer)
        strides = [prod(self.image.outer[d + 1 :]) for d in range(outer)]
        entry: Expr = Const(0)
        for d, stride in enumerate(strides):
            if f"p{d}" in self.variables:
                entry = fold(Binary("+", entry, Binary("*", Name(f"p{d}"), Const(stride))))
        at = self.text(entry)
        missing = " && ".join([*conditions, f"!writer[{at}]"])
        # Without guards, one lane speaks for its entry.
        depth = [
            (v, n)
            for v, n in zip(self.variables, self.extents, strict=True)
            if conditions or int(v[1:]) < outer
        ]
        body = [f"if ({missing})", f"  return {at};"]
        for variable, extent in reversed(depth):
            head = f"for (int64_t {variable} = 0; {variable} < {integer(extent)}; ++{variable})"
            body = [f"{head} {{", *indent(body), "}"]
        return [
            f"static int64_t {missing_entry_name(self.plan, self.image)}"
            "(const unsigned char *writer)",
            "{",
            *indent([*body, "return -1;"]),
            "}",
        ]

    @property
    def guarded(self) -> bool:
        """Whether some position may lie outside of the tensor."""
        return any(self._conditions(k) for k in range(len(self.index)))

    def _conditions(self, k: int) -> list[str]:
        """C conditions under which index `k` lies inside the tensor, where that is not certain."""
        low, high = interval(self.index[k], self.ranges)
        text = self.text(self.index[k])
        conditions: list[str] = []
        if low < 0:
            conditions.append(f"{text} >= 0")
        if high >= self.shape[k]:
            conditions.append(f"{text} < {self.shape[k]}")
        return conditions

    def _depth(self, k: int) -> int:
        """The loop at which index `k` is known; -1 before all loops."""
        used = names(self.index[k])
        return max((d for d, v in enumerate(self.variables) if v in used), default=-1)

    def _level(self, depth: int) -> list[str]:
        variable, extent = self.variables[depth], self.extents[depth]
        if depth == len(self.variables) - 1:
            return self._innermost(variable, extent)
        here = (-1, 0) if depth == 0 else (depth,)
        conditions = [
            c for k in range(len(self.index)) if self._depth(k) in here for c in self._conditions(k)
        ]
        pointer = "to" if self.packs else "from"
        skipped = prod(self.extents[depth + 1 :])
        body: list[str] = []
        if conditions:
            fill = self._fill(0, skipped) if self.packs else []
            body += [
                f"if (!({' && '.join(conditions)})) {{",
                *indent([*fill, f"{pointer} += {skipped};", "continue;"]),
                "}",
            ]
        body += self._level(depth + 1)
        return [
            f"{self._for(variable, integer(extent))} {{",
            *indent(body),
            "}",
        ]

    def _fill(self, first: int, count: int) -> list[str]:
        """Put what stands outside of the tensor into some of the elements that come next."""
        if not count:
            return []
        if self.image.fill == 0 and copysign(1, self.image.fill) > 0:
            target = f"to + {first}" if first else "to"
            return [f"memset({target}, 0, {count} * sizeof *to);"]
        loop = self._for("i", str(first + count), str(first))
        return [loop, f"  to[i] = {self._constant(self.image.fill)};"]

    def _for(self, variable: str, stop: str, start: str = "0") -> str:
        return f"for ({self.plan.index} {variable} = {start}; {variable} < {stop}; ++{variable})"

    def _constant(self, value: int | float) -> str:
        """A number as an element of the image."""
        return element_text(value, self.image.dtype)

    def _moved(self, element: str) -> str:
        """An element as the other side holds it."""
        dtypes = self.tensor.dtype, self.image.dtype
        return self.values.converted(element, *(dtypes if self.packs else reversed(dtypes)))

    def _offset(self, variable: str = "", at: int = 0) -> str:
        """Element offset in the tensor, where a variable has a value."""
        return self.text(self._element(variable, at))

    def _element(self, variable: str = "", at: int = 0) -> Expr:
        total: Expr = Const(0)
        for expr, stride in zip(self.index, self.strides, strict=True):
            part = fold(substitute(expr, {variable: Const(at)} if variable else {}))
            total = fold(Binary("+", total, Binary("*", part, Const(stride))))
        return total

    @property
    def narrow(self) -> bool:
        """Whether every index, offset and count fits 32 bits."""
        elements = max(prod(self.extents), prod(self.tensor.shape))
        whole = (*self.index, self._element())
        return elements < 1 << 31 and all(fits_int32(e, self.ranges) for e in whole)

    def _innermost(self, variable: str, extent: int) -> list[str]:
        last = len(self.variables) - 1
        here = (last, -1) if last == 0 else (last,)
        inside = [k for k in range(len(self.index)) if self._depth(k) in here]
        conditions = [c for k in inside for c in self._conditions(k)]
        advance = f"{'to' if self.packs else 'from'} += {extent};"
        moving = [k for k in inside if variable in names(self.index[k])]
        own = self.image.supplied
        copied = own is None and moving == [len(self.index) - 1]
        if copied and self._steps_by_one(moving[0], variable):
            lines = self._contiguous(variable, extent, conditions)
            if lines:
                return [*lines, advance]
        guard = " && ".join(conditions)
        head = self._for(variable, integer(extent))
        if self.clears:
            cleared = [head, f"  if (!({guard}))", f"    to[{variable}] = 0;"]
            return [*(cleared if guard else []), advance]
        if self.packs:
            read = f"from[{self._offset()}]"
            value = self._moved(read) if own is None else self._constant(own)
            if guard:
                value = f"{guard} ? {value} : {self._constant(self.image.fill)}"
            return [head, f"  to[{variable}] = {value};", advance]
        copy = f"to[{self._offset()}] = {self._moved(f'from[{variable}]')};"
        return [head, *([f"  if ({guard})", f"    {copy}"] if guard else [f"  {copy}"]), advance]

    def _steps_by_one(self, k: int, variable: str) -> bool:
        """Whether index `k` is something independent of `variable`, plus `variable`."""
        return _coefficient(self.index[k], variable) == 1

    def _contiguous(self, variable: str, extent: int, conditions: Sequence[str]) -> list[str]:
        """A block copy, where at most the end of the run can lie outside the tensor, or it is known
        what does."""
        k = len(self.index) - 1
        low, _ = interval(self.index[k], self.ranges)
        base = self._offset(variable)
        if not conditions:
            return self._copy(base, str(extent))
        alone = len(self.variables) == 1 and any(self._conditions(j) for j in range(k))
        first = fold(substitute(self.index[k], {variable: Const(0)}))
        size = self.shape[k]
        if self.packs and isinstance(first, Const) and len(conditions) == len(self._conditions(k)):
            return self._between(-int(first.value), variable, extent)
        if low < 0 or alone:
            return []
        start = self.text(first)
        lines = [
            f"{self.plan.index} n = {size} - ({start});",
            f"n = n < 0 ? 0 : n > {extent} ? {extent} : n;",
            *self._copy(base, "n"),
        ]
        if self.packs:
            lines += [
                self._for("i", str(extent), "n"),
                f"  to[i] = {self._constant(self.image.fill)};",
            ]
        return lines

    def _between(self, before: int, variable: str, extent: int) -> list[str]:
        """A run of the tensor, and what stands before and after it in the image's."""
        before, begin = max(before, 0), max(-before, 0)
        count = max(0, min(extent - before, self.shape[-1] - begin))
        return [
            *self._fill(0, before),
            *self._copy(self._offset(variable, before), str(count), before),
            *self._fill(before + count, extent - before - count),
        ]

    def _copy(self, base: str, count: str, begin: int = 0) -> list[str]:
        """Copy so many elements, to the image's from `begin` on."""
        if self.clears:
            return []
        element = C_TYPES[self.tensor.dtype]
        to = f"to + {begin}" if begin else "to"
        source, target = (f"from[{base}]", to) if self.packs else ("from", f"to[{base}]")
        if self.image.dtype != self.tensor.dtype:
            at = f"from[{base} + i]" if self.packs else "from[i]"
            place = f"{begin} + i" if begin else "i"
            to = f"to[{place}]" if self.packs else f"to[{base} + i]"
            return [self._for("i", count), f"  {to} = {self._moved(at)};"]
        if count.isdigit():
            first, second = (target, f"&{source}") if self.packs else (f"&{target}", "from")
            return [f"memcpy({first}, {second}, {int(count)} * sizeof({element}));"]
        first, second = ("to", f"from + ({base})") if self.packs else (f"to + ({base})", "from")
        return [
            "if (n > 0)",
            f"  memcpy({first}, {second}, (size_t)n * sizeof({element}));",
        ]

    def instructions(self, costs: Instructions) -> float:
        """What the function retires: rows are copied or filled at once, elements moved singly."""
        self._join()
        last, total, times = len(self.variables) - 1, costs.block, 1.0
        step = costs.branch + 2 * costs.address
        for depth, extent in enumerate(self.extents[:-1]):
            times *= extent
            found = [k for k in range(len(self.index)) if max(self._depth(k), 0) == depth]
            total += times * (step + costs.operation * sum(len(self._conditions(k)) for k in found))
            part = prod(self._inside(k) for k in found)
            if self.packs:
                outside = prod(self.extents[depth + 1 :])
                total += times * (1 - part) * self._filled(outside, costs)
            times *= part
        variable, extent, k = self.variables[-1], self.extents[-1], len(self.index) - 1
        inside = [i for i in range(len(self.index)) if self._depth(i) in (last, last and -1)]
        guards = [c for i in inside for c in self._conditions(i)]
        moving = [i for i in inside if variable in names(self.index[i])]
        own = self.image.supplied is not None
        rows = moving == [k] and self._steps_by_one(k, variable) and not own
        if rows and (not guards or self._contiguous(variable, extent, guards)):
            count = extent * self._inside(k)
            more = self._filled(extent - count, costs) if self.packs else 0.0
            return total + times * (self._copied(count, costs) + more)
        guarded = costs.operation * (len(guards) + (bool(guards) and not own))
        return total + times * extent * (step + costs.memory * (2 - own) + guarded)

    def _filled(self, count: float, costs: Instructions) -> float:
        """Instructions to set so many elements in a row: `memset`, but of few."""
        element = DTYPES[self.image.dtype]
        if element > 1 and self.image.fill:
            return count * (costs.branch + costs.address + costs.memory)
        return costs.rows(count * element, costs.filled_byte)

    def _copied(self, count: float, costs: Instructions) -> float:
        """Instructions to copy so many elements in a row."""
        if self.image.dtype != self.tensor.dtype:
            return count * (costs.branch + 2 * costs.address + 2 * costs.memory)
        return costs.rows(count * DTYPES[self.tensor.dtype], costs.copied_byte)

    def _inside(self, k: int) -> float:
        """The part of what index `k` takes that lies inside the tensor."""
        low, high = interval(self.index[k], self.ranges)
        return (min(high, self.shape[k] - 1) - max(low, 0) + 1) / (high - low + 1)


def _coefficient(expr: Expr, variable: str) -> int | None:
    """The factor of `variable` in an expression affine in it; None where it is not affine."""
    if variable not in names(expr):
        return 0
    match expr:
        case Name():
            return 1
        case Binary("+" | "-" as op, left, right):
            a, b = _coefficient(left, variable), _coefficient(right, variable)
            if a is None or b is None:
                return None
            return a + b if op == "+" else a - b
        case Binary("*", Const(int(factor)), other) | Binary("*", other, Const(int(factor))):
            inner = _coefficient(other, variable)
            return None if inner is None else factor * inner
        case _:
            return None


def pads(image: Image) -> bool:
    """Whether a temporary image has entries that are wholly outside its tensor."""
    return image.role == "temporary" and any(_beyond(image))


def _beyond(image: Image) -> list[bool]:
    """Of each dimension, whether some entry begins past its end."""
    ranges: dict[str, Interval] = {f"p{d}": (0, n - 1) for d, n in enumerate(image.outer)}
    ends = [interval(index, ranges)[1] for index in _first_lanes(image)]
    return [high >= extent for high, extent in zip(ends, image.shape, strict=True)]


def _first_lanes(image: Image) -> list[Expr]:
    """The tensor index of each entry's first lane."""
    lanes = {f"p{len(image.outer) + n}": Const(0) for n in range(len(image.lanes))}
    return [fold(substitute(index, lanes)) for index in image.index]


def pad_name(plan: HostPlan, image: Image) -> str:
    return f"{plan.name}_pad_{plan.identifiers[image.name]}"


def padding(plan: HostPlan, image: Image, helpers: Helpers) -> list[str]:
    """A C function that puts zero into all entries outside the tensor, and marks their writer."""
    if not pads(image):
        return []
    variables = {f"p{d}": f"p{d}" for d in range(len(image.outer))}
    ranges: dict[str, Interval] = {f"p{d}": (0, n - 1) for d, n in enumerate(image.outer)}
    text = IndexText(helpers, variables, ranges)
    ends = zip(_first_lanes(image), image.shape, _beyond(image), strict=True)
    past = " || ".join(f"{text(index)} >= {extent}" for index, extent, some in ends if some)
    steps = dense(image.outer)
    at = text(_entry(steps))
    lanes = prod(image.lanes)
    body = [
        f"if ({past}) {{",
        f"  memset(to + {lanes} * ({at}), 0, {lanes} * sizeof *to);",
        f"  writer[{at}] = mark;",
        "}",
    ]
    for d, extent in reversed(list(enumerate(image.outer))):
        body = [f"for (int64_t p{d} = 0; p{d} < {integer(extent)}; ++p{d}) {{", *indent(body), "}"]
    shape = "".join(f"[{n}]" for n in image.outer + image.lanes)
    return [
        f"/* {comment(f'{image.name}{shape}: 0 in what no call stores, past the end.')} */",
        f"static void {pad_name(plan, image)}({C_TYPES[image.dtype]} *to, unsigned char *writer, "
        "unsigned char mark)",
        "{",
        *indent(body),
        "}",
        "",
    ]


def _entry(steps: Sequence[int]) -> Expr:
    """The entry at position `p0, p1, ...`."""
    total: Expr = Const(0)
    for d, step in enumerate(steps):
        total = fold(Binary("+", total, Binary("*", Name(f"p{d}"), Const(step))))
    return total


def missing_entry_name(plan: HostPlan, image: Image) -> str:
    return f"{plan.name}_missing_{plan.identifiers[image.name]}"


def missing_entry(plan: HostPlan, image: Image, helpers: Helpers) -> list[str]:
    """A C function: the first entry that holds an element and has no writer, or -1."""
    tensor = next(t for t in plan.tensors if t.name == image.tensor)
    return _Packing(plan, image, tensor, helpers).missing_entry()
