"""The C that hwgen emits for the chip, executed by the header: right, and on constant addresses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest

from hwgen.codegen.nodes import Call, calls
from hwgen.codegen.software_loops import written_out
from hwgen.codegen.storages import Buffer
from hwgen.model import functional
from hwgen.model.compiled import have_compiler
from hwgen.model.reference import run_reference
from hwgen.passes.kernel import Kernel
from hwgen.verify.data import first_difference
from tests.gemmini import emitted, emitted_text
from tests.gemmini.emitted import Case, Schedule, assert_agrees, case, chip, compiled
from tests.gemmini.emitted_text import Macro
from tests.sampling import WHOLE, some, tiered

needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")

SIZES = (1, 7, 17, 48, 70, 257)
TURNS = tuple(
    {name: SIZES[(n + shift) % len(SIZES)] for name, shift in (("M", 0), ("N", 2), ("K", 3))}
    for n in range(len(SIZES))
)
GEMMS = (
    *(case("gemm_scaled", LOW=-128 * (n % 2), **sizes) for n, sizes in enumerate(TURNS)),
    *(case("gemm_unbiased", LOW=-128 * (1 - n % 2), **sizes) for n, sizes in enumerate(TURNS)),
    *(case("gemm_full", **sizes) for sizes in TURNS[::2]),
    *(case("gemm_full_biased", **sizes) for sizes in TURNS[1::2]),
    case("gemm_full", M=70, N=1, K=7),
    case("gemm_full_biased", M=1, N=1, K=7),
    case("gemm_scaled", M=257, N=257, K=257, LOW=-128),
)
"""Every size in every place, with and without bias, ReLU and narrowing."""

CONVOLUTIONS = tuple(
    case("conv2d_scaled", H=h, W=w, C=c, O=o, S=s, LOW=low)
    for (h, w, c, o), s, low in (
        ((1, 1, 48, 17), 1, 0),
        ((7, 17, 7, 1), 1, -128),
        ((7, 17, 7, 1), 2, 0),
        ((17, 7, 70, 48), 1, -128),
        ((17, 7, 70, 48), 2, -128),
        ((48, 7, 17, 70), 1, 0),
        ((48, 7, 17, 70), 2, -128),
    )
)

THREE = (("m", 3), ("n", 3), ("k", 3))


def _tiled(workload: str, loads: tuple[int, int, int]) -> Case:
    """Three tiles in each loop; the loops around a's load and b's, and the slots of buffers."""
    a, b, slots = loads
    depths = (("acc_acc", 2), ("a_spad", a), ("b_spad", b))
    slot = tuple((name, slots if depth else 1) for name, depth in depths)
    sizes = (("M", 70), ("N", 100), ("K", 170))
    return Case(workload, sizes, Schedule(THREE, depths, slot))


LOADS = ((3, 3, 2), (1, 3, 3), (3, 0, 1), (2, 2, 2), (3, 2, 3))
TILED = (
    *(_tiled("gemm_scaled", loads) for loads in LOADS),
    *(_tiled("gemm_full", loads) for loads in LOADS[:2]),
)
"""Several tiles in every loop, the last of each shorter."""


SOME = some([*GEMMS, *CONVOLUTIONS, *TILED], 2)


@needs_compiler
@pytest.mark.parametrize("which", tiered(SOME, SOME[::4]), ids=str)
def test_kernel(which: Case) -> None:
    """Nothing but the header's rules and the reference: no code of the compiler's is shared."""
    c = compiled(which)
    found = assert_agrees(c)
    heap = [moved for name, moved in found.traffic.items() if name.startswith("heap")]
    # The images that are not in place are what is allocated last.
    staged = heap[len(heap) - sum(not i.in_place for i in c.program.images) :]
    placed = {i.tensor for i in c.program.images if i.in_place}
    images = [*staged, *(found.traffic[name] for name in placed)]
    shapes = {t.name: t.shape for t in c.workload.outputs}
    given = emitted.inputs(c.workload, 0)
    simulated = functional.run(c.program, chip(), given, shapes=shapes)
    for n, direction in enumerate(("read", "write")):
        bytes_moved = sum(moved[n] for moved in images)
        assert bytes_moved == simulated.traffic_bytes("dram", direction=direction)
    assert sum(map(sum, found.traffic.values())) == sum(map(sum, images))
    if which.schedule is not None:
        loops = {x.loop: x.count for x in c.tiling.loops}
        assert loops == dict(which.schedule.tiles)


@needs_compiler
def test_other_data() -> None:
    """A bias of all 32 bits too: the sum wraps."""
    for which in (GEMMS[4], GEMMS[8], CONVOLUTIONS[3]):
        for seed in (1, 2):
            assert_agrees(compiled(which), seed)


@pytest.mark.parametrize("which", [GEMMS[1], GEMMS[5], GEMMS[6], CONVOLUTIONS[1]], ids=str)
def test_sums_are_not_all_saturated(which: Case) -> None:
    c = compiled(which)
    for outputs in run_reference(c.workload, emitted.inputs(c.workload, 0)).values():
        low = dict(which.sizes)["LOW"]
        inside = np.greater(outputs, low) & np.less(outputs, 127)
        assert np.count_nonzero(inside) > outputs.size // 20


def _drop(pattern: str) -> Callable[[str], str]:
    return lambda text: re.sub(pattern, ";", text, count=1)


IN_PLACE = (
    case("gemm_scaled", M=256, N=256, K=256, LOW=-128),
    case("gemm_full", M=48, N=48, K=96),
    case("gemm_full_biased", M=7, N=16, K=32),
    case("gemm_scaled", M=7, N=17, K=48, LOW=0),
    case("gemm_scaled", M=17, N=48, K=7, LOW=0),
    case("gemm_scaled", M=17, N=7, K=7, LOW=0),
)
PARTLY_IN_PLACE: dict[Case, set[str]] = {
    case("conv2d_scaled", H=7, W=17, C=7, O=48, S=1): {"w", "y"},
    case("conv2d_scaled", H=7, W=17, C=48, O=47, S=1): {"w", "y"},
}


def _host_code(c: Kernel) -> str:
    return re.sub(r"/\*.*?\*/", "", c.source.c, flags=re.DOTALL)


@needs_compiler
@pytest.mark.parametrize("which", tiered(IN_PLACE, IN_PLACE[:1]), ids=str)
def test_plain_tensors_are_used_where_they_are(which: Case) -> None:
    """Whole blocks of 16 or not: the host allocates, copies and packs nothing. The header knows the
    caller's arrays to the byte, their inputs as read only."""
    c = compiled(which, WHOLE)
    text = _host_code(c)
    assert not re.search(r"\b(malloc|calloc|free|memcpy)\b|_(fill|unpack|pack|prepacked)", text)
    assert c.source.c.count(", in place\n") == len(c.program.images)
    signature = next(line for line in text.splitlines() if "_run(" in line)
    inputs = sum(i.role == "input" for i in c.program.images)
    assert signature.count("const void *") == inputs == signature.count("void *") - 1
    found = assert_agrees(c)
    assert not [name for name in found.traffic if name.startswith("heap")]


@needs_compiler
@pytest.mark.parametrize("which", PARTLY_IN_PLACE, ids=str)
def test_padded_tensors_are_packed(which: Case) -> None:
    """A convolution's border is added by the host; what has none stays."""
    c = compiled(which)
    placed = {p.name for p in (*c.source.inputs, *c.source.outputs) if p.in_place}
    assert placed == PARTLY_IN_PLACE[which]
    packed = {p.name for p in c.source.inputs if p.packed}
    assert packed == {t.name for t in c.workload.inputs if t.constant} - placed
    moved = assert_agrees(c).traffic
    touched = {name for name, amounts in moved.items() if any(amounts)}
    assert {name for name in touched if not name.startswith("heap")} == placed


@needs_compiler
def test_outputs_in_place_are_fenced() -> None:
    c = compiled(IN_PLACE[1])
    source = replace(c.source, c=c.source.c.replace("gemmini_fence();", ""))
    assert source.c != c.source.c
    found = emitted.execute_source(source, emitted.inputs(c.workload, 0))
    assert found.code == "FENCE_MISSING"


MUTATIONS: dict[str, tuple[Callable[[str], str], str]] = {
    "no fence": (_drop(r"gemmini_fence\(\);"), "FENCE_MISSING"),
    "lanes past the end": (
        lambda t: t.replace(", 16, 10, 16, ", ", 16, 16, 16, ").replace("ADDR, 10, ", "ADDR, 16, "),
        "POISON",
    ),
    "no config_ex": (_drop(r"gemmini_extended_config_ex\([^;]*;"), "CONFIG"),
    "no config_st": (_drop(r"gemmini_extended_config_st\([^;]*;"), "CONFIG"),
    "no config_ld of a register": (_drop(r"gemmini_extended4_config_ld\([^;]*1\);"), "CONFIG"),
    "no load": (_drop(r"gemmini_extended_mvin2\([^;]*;"), "POISON"),
    "sums that nothing begins": (lambda t: t.replace("0x80000000ull", "0xc0000000ull"), "POISON"),
    "weights kept too long": (
        lambda t: re.sub(
            r"preload\((?!GARB)[^,]*(.*)\n(.*)preloaded",
            r"preload(GARBAGE_ADDR\1\n\2accumulated",
            t,
        ),
        "POISON",
    ),
}


@needs_compiler
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_kernel_is_noticed(name: str) -> None:
    """The checks that the kernels above pass are there when a kernel is executed."""
    edit, code = MUTATIONS[name]
    c = compiled(_tiled("gemm_unbiased", (3, 3, 2)))
    head, tail = c.source.c.split("_run(", 1)
    source = replace(c.source, c=f"{head}_run({edit(tail)}")
    assert source.c != c.source.c
    inputs = emitted.inputs(c.workload, 0)
    found = emitted.execute_source(source, inputs)
    wrong = first_difference(found.outputs, run_reference(c.workload, inputs)) is not None
    assert found.code == code or (code == "POISON" and not found.code and wrong), found


# --- on-chip buffers have constant addresses, and nothing of them is on the host's heap ---


@dataclass(frozen=True, slots=True)
class Use:
    """Rows of an on-chip memory that one macro touches: `blocks` of `rows`, each `step` further."""

    operand: str
    memory: str
    address: str
    rows: int
    step: int = 1
    blocks: int = 1
    block_step: int = 0


_FLAGS = 0xE0000000
_ACCUMULATOR = 1 << 31


def _place(address: int) -> tuple[str, int]:
    return ("acc", address & ~_FLAGS) if address & _ACCUMULATOR else ("spad", address)


class _State:
    """What configurations say, as far as it moves addresses."""

    def __init__(self) -> None:
        self.block_step = [0, 0, 0]
        self.row_step = 1

    def uses(self, macro: Macro, values: dict[str, int]) -> Iterator[Use]:
        """The rows that a macro touches; a configuration touches none."""

        def number(position: int) -> int:
            found = emitted_text.expression(macro.arguments[position])
            return emitted_text.evaluate(found, values)

        name = macro.name.removeprefix("gemmini_extended_")
        address = macro.arguments
        match name:
            case "gemmini_extended4_config_ld":
                self.block_step[number(4)] = number(3)
            case "config_ex":
                self.row_step = number(3)
            case "mvin" | "mvin2" | "mvin3":
                register = int(name.removeprefix("mvin") or 1) - 1
                blocks, step = -(-number(2) // 16), self.block_step[register]
                yield Use("dst", "", address[1], number(3), 1, blocks, step)
            case "mvout":
                yield Use("src", "", address[1], number(3), 1, -(-number(2) // 16), 16)
            case "preload":
                if address[0] != "GARBAGE_ADDR":
                    yield Use("b", "spad", address[0], number(3))
                yield Use("c", "acc", address[1], number(5))
            case "compute_preloaded" | "compute_accumulated":
                assert address[1] == "GARBAGE_ADDR"
                yield Use("a", "spad", address[0], number(3), self.row_step)
            case _:
                assert name in ("config_st", "gemmini_flush", "gemmini_fence"), name


def _sites(c: Kernel, macros: list[Macro]) -> dict[int, Call]:
    """The call that each macro of the text stands for, by the macro's number."""
    found: dict[int, Call] = {}
    issued = [m for m in macros if re.search("mvin|mvout|preload|compute", m.name)]
    for call in calls(written_out(c.program, chip()).body):
        turns = 2 if call.intrinsic.startswith("matmul") else 1
        for macro in issued[:turns]:
            found[macro.number] = call
        del issued[:turns]
    assert not issued
    return found


def _slot_of(buffer: Buffer, row: int) -> int:
    assert buffer.holds(row), f"row {row} is not in {buffer.place}"
    return (row - buffer.base) // buffer.stride


S4 = (
    case("gemm_scaled", M=257, N=70, K=48),
    case("gemm_full", M=70, N=70, K=257),
    _tiled("gemm_scaled", (3, 2, 3)),
    case("gemm_scaled", M=64, N=256, K=256),
    case("conv2d_scaled", H=17, W=17, C=48, O=70, S=2),
    case("conv2d_scaled", H=7, W=17, C=48, O=48, S=1),
)


@pytest.mark.parametrize("which", tiered(S4, S4[::3]), ids=str)
def test_on_chip_addresses_are_planned(which: Case) -> None:
    """S4: every on-chip address is a constant or a plain function of loop variables, and in every
    iteration lies in one slot of the buffer that it is for."""
    c = compiled(which)
    body = emitted_text.kernel(c.source.c)
    sites = _sites(c, list(emitted_text.macros(body)))
    state = _State()
    seen: dict[str, set[int]] = {}
    for macro, values in emitted_text.executed(body, {}):
        for use in state.uses(macro, dict(values)):
            address = emitted_text.expression(use.address)
            assert emitted_text.is_address(address), use.address
            memory, first = _place(emitted_text.evaluate(address, values))
            assert memory == use.memory or not use.memory
            operand = next(o for o in sites[macro.number].operands if o.name == use.operand)
            buffer = c.program.buffer[operand.buffer]
            assert buffer.memory == memory
            rows = [
                first + b * use.block_step + r * use.step
                for b in range(use.blocks)
                for r in range(use.rows)
            ]
            assert min(rows) >= 0
            assert max(rows) < chip().memory[memory].capacity_entries
            assert len({_slot_of(buffer, row) for row in rows}) == 1
            seen.setdefault(buffer.name, set()).update(rows)
    assert seen.keys() == c.program.buffer.keys()
    # Buffers are alive together here: no row belongs to two of one memory.
    for one, other in product(c.program.buffers, c.program.buffers):
        if one.name < other.name and one.memory == other.memory:
            assert seen[one.name].isdisjoint(seen[other.name])


@pytest.mark.parametrize("which", S4, ids=str)
def test_nothing_on_chip_is_allocated(which: Case) -> None:
    """S4: the host allocates the images that are not in place, once each, and nothing else."""
    c = compiled(which)
    text = _host_code(c)
    assert "calloc" not in text
    assert "alloca" not in text.replace("malloc", "").replace("allocated", "")
    sizes = sorted(int(n) for n in re.findall(r"malloc\((\d+)\)", text))
    assert len(sizes) == text.count("malloc(")
    images = {image.tensor: image.bytes for image in c.program.images if not image.in_place}
    # The chip reads them where the host has them; those that are packed once are aligned.
    packed = {t.name for t in c.source.inputs if t.constant}
    copies = [-(-n // 64) * 64 if tensor in packed else n for tensor, n in images.items()]
    assert sizes == sorted(copies)
    for buffer in c.program.buffers:
        assert not re.search(rf"\w[\s*]+{buffer.name}\s*(\[|=|;)", text)
    assert not re.findall(r"^\s*(?:static )?\w+ \w+\[\d+\]", text, flags=re.MULTILINE)
