"""Random chips whose memories address vectors and matrices: one step of an address is one entry.

Every number, name and form is invented: multiply-accumulate over lanes of any extent, operations on
what was accumulated, in place or not, and transfers; shared out among one to four units, each
behind hardware loops of its own, some of them programs of micro-operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwgen.verify.natural.draws import Pick, Spec
from tests.fuzz.chips.calls import call_text
from tests.fuzz.chips.features import draw_features

TYPES = (("int8", "int32"), ("int8", "int32"), ("float32", "float32"), ("int16", "int32"))
"""Data types of factors and of what is accumulated."""
LANES = (4, 1, 2, 8, 16, 3, 5)
PARTS = ("load", "weights", "compute", "vector", "store")
UNITS = (
    ("load", "load", "compute", "compute", "store"),
    ("mover", "mover", "core", "core", "mover"),
    ("core", "core", "core", "core", "core"),
    ("mover", "mover", "core", "vector", "mover"),
    ("left", "right", "core", "core", "store"),
    ("core", "right", "core", "core", "store"),
)
"""Which unit plays each part."""
REACHES = ("0..255", "0..15", "0..7", "0..1", "1..64", "0..5", "1..3", "0..2047")
"""Strides that a loop's field holds; the last of them odd."""
SETS: tuple[list[int] | str, ...] = ([0, 1, 2, 4, 8, 16, 32, 64], "0..64 step 4", [0, 1, 3, 9])
"""Strides of which a field holds some only."""
EXTENTS = ("1..64", "1..16383", "1..16", "1..5", "1..3", "1..2", "1")


@dataclass(frozen=True, slots=True)
class _Form:
    """What stays the same over one chip. `rows`, `columns`, `depth`: lanes of the multiplication,
    `rows` 0 where entries have none; `in_place`: operations overwrite their first operand;
    `split`: the right factor is `columns` entries, each loaded by itself or all at once."""

    pick: Pick
    narrow: str
    wide: str
    rows: int
    columns: int
    depth: int
    units: dict[str, str]
    in_place: bool
    split: bool

    @property
    def result(self) -> str:
        """The index of an accumulated entry."""
        return "b, o" if self.rows else "o"

    def lanes(self, *names: str) -> Spec:
        """Iterators of these names, as far as the chip has them."""
        extents = {"b": self.rows, "o": self.columns, "i": self.depth}
        return {n: extents[n] for n in names if extents[n]}


def entry_chip(pick: Pick) -> Spec:
    """A chip as plain data; its memories are large, its calls take any address."""
    narrow, wide = pick(TYPES)
    form = _Form(
        pick, narrow, wide,
        rows=pick((0, 1, 2, 4)), columns=pick(LANES), depth=pick(LANES),
        units=dict(zip(PARTS, pick(UNITS), strict=True)), in_place=pick((True, False)),
        split=pick.chance(4),
    )  # fmt: skip
    intrinsics = _transfers(form) | _products(form) | _operations(form)
    units = dict.fromkeys(i["unit"] for i in intrinsics.values())
    rows = [form.rows] if form.rows else []
    spec: Spec = {
        "hwgen": 1,
        "name": "drawn",
        "memories": {
            "main": {"kind": "offchip", "bus": "bus"},
            "left": _memory(form.narrow, [*rows, form.depth]),
            "right": _memory(form.narrow, [*([] if form.split else [form.columns]), form.depth]),
            "sums": _memory(form.wide, [*rows, form.columns]),
        },
        "buses": {
            "bus": {
                "beat_bytes": 8,
                "burst": {"beats": 16, "boundary_bytes": 128},
                "read": {"latency_cycles": 20, "in_flight_bursts": 4},
                "write": {"latency_cycles": 10, "in_flight_bursts": pick((1, 2))},
            }
        },
        "units": {unit: {} for unit in units},
        "synchronization": every_edge([*units]),
        "intrinsics": intrinsics,
        "code": code(),
    }
    if pick.chance(4):
        spec["fetch"] = {
            "bus": "bus", "first_cycles": pick((30, 1)), "group_calls": pick((8, 1, 3)),
            "group_cycles": pick((40, 1)), "call_bytes": 16,
        }  # fmt: skip
    if pick.chance(3):
        _micro_kernels(spec, pick)
    draw_features(spec, pick)
    return spec


def code() -> Spec:
    """C text around the calls of a drawn chip."""
    return {
        "prologue": "begin();\n",
        "epilogue": "finish();\n",
        "allocate": "{{ buffer }} = reserve({{ bytes }});",
        "free": "release({{ buffer }});",
        "to_device": "upload({{ buffer }}, {{ host }}, {{ bytes }});",
        "from_device": "download({{ host }}, {{ buffer }}, {{ bytes }});",
    }


def _memory(dtype: str, entry: list[int]) -> Spec:
    width = {"int8": 1, "int16": 2, "int32": 4, "float32": 4}[dtype]
    size = " * ".join(map(str, (1024, width, *entry)))
    return {"kind": "scratchpad", "dtype": dtype, "entry": entry, "size": size}


def every_edge(units: Sequence[str]) -> Spec:
    """Tokens between any two units, where there are two."""
    if len(units) == 1:
        return {"kind": "none"}
    return {
        "kind": "tokens",
        "edges": [[a, b] for a in units for b in units if a != b],
        "push": "push_{{ source.name }}_{{ target.name }}();",
        "pop": "pop_{{ source.name }}_{{ target.name }}();",
        "nop_cycles": 1,
    }


def _transfers(form: _Form) -> Spec:
    """To each memory from off the chip, and back from the sums."""
    b_o, cast = ("b", "o"), "" if form.narrow == form.wide else form.narrow
    right = ("i",) if form.split and form.pick.chance(2) else ("o", "i")
    parts = (
        ("load_left", "load", ("b", "i"), "left", form.narrow),
        ("load_right", "weights", right, "right", form.narrow),
        *([] if form.pick.chance(10) else [("load_sums", "vector", b_o, "sums", form.wide)]),
    )
    result: Spec = {}
    for name, part, lanes, memory, dtype in parts:
        iterators = form.lanes(*lanes)
        index = ", ".join(iterators)
        operands = {"dst": {"memory": memory}, "src": {"memory": "main", "dtype": dtype}}
        text = f"dst[{index}] = src[{index}]"
        result[name] = _transfer(form, name, part, iterators, text, operands, "src")
    index = form.result
    stored = f"{cast}(src[{index}])" if cast else f"src[{index}]"
    operands = {"dst": {"memory": "main", "dtype": form.narrow}, "src": {"memory": "sums"}}
    lanes = form.lanes(*b_o)
    text = f"dst[{index}] = {stored}"
    result["store"] = _transfer(form, "store", "store", lanes, text, operands, "dst")
    if cast and form.pick.chance(2):
        operands = {"dst": {"memory": "main", "dtype": form.wide}, "src": {"memory": "sums"}}
        text = f"dst[{index}] = src[{index}]"
        result["store_wide"] = _transfer(form, "store_wide", "store", lanes, text, operands, "dst")
    return result


def _transfer(
    form: _Form, name: str, part: str, iterators: Spec, semantics: str, operands: Spec, far: str
) -> Spec:
    """`far`: the operand off the chip, whose rows may be apart."""
    pick, near = form.pick, "dst" if far == "src" else "src"
    block = form.split and operands[near]["memory"] == "right" and "o" in iterators
    step = form.columns if block else 1
    apart = pick(("0..65535", "1..256", "0..7", "1..3"))
    loops: Spec = {"x": {"extent": pick(("1..65535", "1..64", "1..5")), "strides": {near: step}}}
    loops["x"]["strides"][far] = pick((1, apart))
    if not pick.chance(3):
        within = pick(("dense", "0..255", "1..7"))
        outer: Spec = {"extent": pick(("1..65535", "1..16", "1..3")), "strides": {near: within}}
        outer["strides"][far] = apart
        loops = {"y": outer, **loops}
    cycles = pick(("4 + transfer", "1 + transfer", "iterations + transfer"))
    return _intrinsic(name, form.units[part], iterators, semantics, operands, loops, cycles)


def _products(form: _Form) -> Spec:
    """The multiplication, of which some saturate at every step, and what sets a sum to zero."""
    left = "b, i" if form.rows else "i"
    operands: Spec = {"dst": {"memory": "sums"}, "x": {"memory": "left"}, "w": {"memory": "right"}}
    text = f"dst[{form.result}] += x[{left}] * w[o, i]"
    if form.wide == "int32" and form.pick.chance(6):
        most = form.pick((127, 1000, 32767))
        text = (
            f"dst[{form.result}] = clip(dst[{form.result}] + x[{left}] * w[o, i], -{most}, {most})"
        )
    lanes, fewer = form.lanes("b", "o", "i"), form.lanes("b", "o")
    target: Spec = {"dst": {"memory": "sums"}}
    return {
        "multiply": _computed(form, "multiply", "compute", lanes, text, operands),
        "zero": _computed(form, "zero", "compute", fewer, f"dst[{form.result}] = 0", target),
    }


def _operations(form: _Form) -> Spec:
    """What is computed with sums; some chips lack some of it."""
    at = f"[{form.result}]"
    binary = {
        "add": "{x} + {y}",
        "max": "max({x}, {y})",
        "min": "min({x}, {y})",
        "sub": "{x} - {y}",
    }
    constant = {"add_imm": "{x} + imm", "max_imm": "max({x}, imm)", "min_imm": "min({x}, imm)"}
    if form.wide == "int32":
        binary |= {"shift": "{x} >> {y}", "times": "{x} * {y}"}
        constant |= {"shift_imm": "{x} >> imm"}
    else:
        binary |= {"times": "{x} * {y}"}
        constant |= {"times_imm": "{x} * imm"}
    result: Spec = {}
    for name, text in (*binary.items(), *constant.items()):
        if form.pick.chance(10):
            continue
        # Some operations in place name the entry that they read a second time.
        twice = form.in_place and form.pick.chance(3)
        x = "dst" if form.in_place and not twice else "x"
        value = text.format(x=f"{x}{at}", y=f"y{at}")
        names = ["dst", *(["x"] if x == "x" else []), *(["y"] if name in binary else [])]
        operands: Spec = {n: {"memory": "sums"} for n in names}
        if twice:
            operands["x"]["same_as"] = "dst"
        lanes = form.lanes("b", "o")
        made = _computed(form, name, "vector", lanes, f"dst{at} = {value}", operands)
        if name in constant:
            made["immediates"] = {"imm": _immediate(form, name)}
            made["emit"] = call_text(name, made)
        result[name] = made
    return result


def _immediate(form: _Form, name: str) -> Spec:
    if form.wide == "float32":
        return {"dtype": "float32"}
    small = name.startswith("shift")
    return {
        "dtype": "int32",
        "range": form.pick(("0..31", "1..8") if small else ("-32768..32767", "-128..127")),
    }


def _computed(
    form: _Form, name: str, part: str, iterators: Spec, semantics: str, operands: Spec
) -> Spec:
    """On the chip: one to three loops, each moving every operand within one reach."""
    pick = form.pick
    loops: Spec = {}
    for level in range(pick((2, 1, 3))):
        strides: Spec = dict.fromkeys(operands, pick(REACHES))
        if pick.chance(6):
            strides = dict.fromkeys(operands, pick(SETS))
        if level and pick.chance(8):
            strides[pick(list(operands))] = pick((1, 0, 3))
        loops[f"l{level}"] = {"extent": pick(EXTENTS), "strides": strides}
    cycles = pick(
        ("iterations + 7", "1 + iterations", "2*iterations + 3", "4 + ceil(iterations / 3)")
    )
    made = _intrinsic(name, form.units[part], iterators, semantics, operands, loops, cycles)
    if name not in ("multiply", "zero") and pick.chance(3):
        made["result_latency_iterations"] = pick((2, 1, 3, 4))
    return made


def _intrinsic(
    name: str, unit: str, iterators: Spec, semantics: str, operands: Spec, loops: Spec, cycles: str
) -> Spec:
    made: Spec = {
        "unit": unit, "iterators": iterators, "semantics": semantics, "operands": operands,
        "loops": loops, "cycles": cycles,
    }  # fmt: skip
    return made | {"emit": call_text(name, made)}


def _micro_kernels(spec: Spec, pick: Pick) -> None:
    """The computing unit's calls become programs of micro-operations, on one bus or on another."""
    bus = "bus"
    if pick.chance(2):
        bus = "side"
        spec["buses"]["side"] = {**spec["buses"]["bus"]}
    spec["micro_kernels"] = {
        "program": {
            "capacity_operations": pick((2048, 256, 64, 16)),
            "rewrite_distance": pick((1, 2, 3)),
            "max_variants": pick((99, 16, 4, 2, 1)),
            "operation_bytes": 4,
            "bus": bus,
            "load": {"name": "load_program", "cycles": "4 + transfer"},
            "define": "static int {{ name }}[{{ bases | length }}];\n",
        }
    }
    for name, made in spec["intrinsics"].items():
        if "main" not in [o["memory"] for o in made["operands"].values()]:
            made["micro_kernel"] = {"kind": "program"}
            made["emit"] = call_text(name, made)
