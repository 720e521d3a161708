"""Random chips whose memories address single elements: a matrix unit beside a vector unit.

Both see a shared memory that a DMA engine fills; what changes from draw to draw is who runs what,
how large memories are, how far loops and strides reach, and which operations there are.
"""

from __future__ import annotations

import copy

from hwgen.verify.natural.draws import Pick, Spec
from tests.fuzz.chips.entries import code, every_edge
from tests.fuzz.chips.features import draw_features
from tests.fuzz.chips.sync import synchronise_otherwise

BUILDING = ("load", "store", "zero")
"""Intrinsics that no chip can do without."""
UNARY = {
    "relu": "max(x[], 0)", "exp": "exp(x[])", "rsqrt": "rsqrt(x[])", "add_imm": "x[] + imm",
    "mul_imm": "x[] * imm",
}  # fmt: skip
BINARY = {"add": "x[] + y[]", "sub": "x[] - y[]", "mul": "x[] * y[]", "div": "x[] / y[]"}
WHOLE = "0..65535"


def element_chip(pick: Pick) -> Spec:
    """A chip as plain data, in float32; few are refused when they are read."""
    spec = _base(pick((16, 1, 2, 4, 8)))
    elements = pick((65536, 4096, 1024, 512, 256, 128))
    spec["memories"]["shared"]["size"] = f"{elements} * 4"
    for change in (_units, _memory, _loops, _strides, _fewer, _latency):
        if pick.chance(3):
            change(spec, pick)
    draw_features(spec, pick)
    return spec


def _base(lanes: int) -> Spec:
    """The chip before anything changes; tiles of the multiplication are `lanes` cubed."""
    intrinsics: Spec = {
        "load": _moved("shared", "main"),
        "store": _moved("main", "shared"),
        "matmul": _called(
            "matrix", "acc[] += a[] * b[]", ("acc", "a", "b"),
            {"i": ("acc", "a"), "j": ("acc", "b"), "k": ("a", "b")}, f"1..{lanes}",
            "4 + max(i, k)",
        ),
    }  # fmt: skip
    for name, value in {"zero": "0", "lowest": "-inf"}.items():
        intrinsics[name] = _vector(f"dst[] = {value}", ("dst",), lanes)
    for name, value in BINARY.items():
        intrinsics[name] = _vector(f"dst[] = {value}", ("dst", "x", "y"), lanes)
    for name, value in UNARY.items():
        intrinsics[name] = _vector(f"dst[] = {value}", ("dst", "x"), lanes)
        if "imm" in value:
            intrinsics[name]["immediates"] = {"imm": {"dtype": "float32"}}
    for name, op in {"row_sum": "+=", "row_max": "max="}.items():
        intrinsics[name] = made = _vector(f"dst[] {op} x[]", ("dst", "x"), lanes)
        made["loops"]["c"]["strides"]["dst"] = 0
    units = ("dma", "matrix", "vector")
    return {
        "hwgen": 1,
        "name": "drawn",
        "memories": {
            "main": {"kind": "offchip", "bus": "bus"},
            "shared": {"kind": "scratchpad", "dtype": "float32", "size": "65536 * 4"},
        },
        "buses": {
            "bus": {
                "beat_bytes": 16,
                "burst": {"beats": 16, "boundary_bytes": 4096},
                "read": {"latency_cycles": 40, "in_flight_bursts": 8},
                "write": {"latency_cycles": 10, "in_flight_bursts": 4},
            }
        },
        "units": {unit: {} for unit in units},
        "synchronization": every_edge(units),
        "intrinsics": intrinsics,
        "code": code(),
    }


def _moved(into: str, out_of: str) -> Spec:
    operands: Spec = {"dst": {"memory": into}, "src": {"memory": out_of}}
    far = "dst" if into == "main" else "src"
    operands[far]["dtype"] = "float32"
    rows = dict.fromkeys(operands, WHOLE) | {far: "0..16777215"}
    loops = {
        "r": {"extent": "1..4096", "strides": rows},
        "c": {"extent": "1..65535", "strides": {"dst": 1, "src": 1}},
    }
    return {
        "unit": "dma", "semantics": "dst[] = src[]", "operands": operands, "loops": loops,
        "cycles": "8 + transfer",
    }  # fmt: skip


def _vector(semantics: str, operands: tuple[str, ...], lanes: int) -> Spec:
    loops = {"r": operands, "c": operands}
    made = _called("vector", semantics, operands, loops, "", f"4 + ceil(iterations / {lanes})")
    for name, extent in {"r": "1..4096", "c": "1..65535"}.items():
        made["loops"][name]["extent"] = extent
    return made


def _called(
    unit: str, semantics: str, operands: tuple[str, ...], loops: dict[str, tuple[str, ...]],
    extent: str, cycles: str,
) -> Spec:  # fmt: skip
    """`loops`: which operands each of them moves, anywhere."""
    return {
        "unit": unit,
        "semantics": semantics,
        "operands": {n: {"memory": "shared"} for n in operands},
        "loops": {
            name: {"extent": extent, "strides": dict.fromkeys(moved, WHOLE)}
            for name, moved in loops.items()
        },
        "cycles": cycles,
    }


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
    spec["memories"]["tile"] = spec["memories"]["shared"] | {"size": f"{pick((4096, 256, 64))} * 4"}
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
