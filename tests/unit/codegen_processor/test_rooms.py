"""Intermediates of a chain share room by live range: how much, how it is written, who checks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

import hwgen
from hwgen.codegen.nodes import Allocate, Code, Loop, Node, nodes
from hwgen.codegen.processor.emit import emit_nest
from hwgen.codegen.processor.lives import Life, fitted
from hwgen.codegen.processor.races import check, findings
from hwgen.codegen.storages import Array
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.model.reference import random_inputs, run_reference
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.examine import examine
from tests.fuzz.nest_runs import Kernel, run_kernels
from tests.planted.nests import IN_PLACE, nest_mutations
from tests.sampling import THOROUGH
from tests.unit.codegen_processor import samples

needs_compiler = pytest.mark.skipif(not have_compiler(), reason="no C compiler")
WIDTHS = (64, 200, 48, 160, 96, 128, 32, 256, 72, 144, 40)
BATCH = 8


def layers(batch: int = BATCH, dtype: str = "float32", number: int = 10) -> Workload:
    """Fully connected layers, each followed by a relu."""
    widths = WIDTHS[: number + 1]
    tensors = {"x": f"{dtype}[{batch}, {widths[0]}]"}
    compute: list[str] = []
    before = "x"
    for n, (depth, width) in enumerate(pairwise(widths), 1):
        after = "y" if n == len(widths) - 1 else f"h{n}"
        tensors |= {f"w{n}": f"{dtype}[{depth}, {width}]"}
        tensors |= dict.fromkeys((f"s{n}", after), f"{dtype}[{batch}, {width}]")
        compute += [
            f"s{n}[i, j] += {before}[i, k] * w{n}[k, j]",
            f"{after}[i, j] = max(s{n}[i, j], 0)",
        ]
        before = after
    return hwgen.workload("layers", tensors=tensors, compute=compute)


def chain(steps: int, dtype: str = "int32", length: int = 40) -> Workload:
    """Each stage reads two neighbours of the one before, so that none is written into another."""
    names = ["x", *(f"t{n}" for n in range(1, steps)), "y"]
    sizes = range(length + steps, length - 1, -1)
    return hwgen.workload(
        "chain",
        tensors={n: f"{dtype}[{size}]" for n, size in zip(names, sizes, strict=True)},
        compute=[f"{b}[i] = {a}[i] + {a}[i + 1]" for a, b in pairwise(names)],
    )


def taken(program: Code, memory: str) -> int:
    """Bytes of a memory's allocations, all of them together."""
    own = (b for b in program.arrays if b.memory == memory)
    return sum(-(-b.bytes // 64) * 64 for b in own if not b.within)


def apart(program: Code, memory: str) -> int:
    """Bytes with an allocation for each buffer."""
    own = (b for b in program.arrays if b.memory == memory and b.tensor)
    return sum(-(-b.bytes // 64) * 64 for b in own)


@pytest.mark.parametrize("auto", [False, pytest.param(True, marks=THOROUGH)])
def test_ten_layers_take_what_is_live_at_once(auto: bool) -> None:
    """Sums that stay whole are live with the activation before them, and with that after them."""
    program = compile_nest(layers(), samples.cpu(), auto=auto).program.codes[0]
    rows = [BATCH * 4 * w for w in WIDTHS[1:-1]]
    last = BATCH * 4 * WIDTHS[-1]
    whole = max(*map(sum, pairwise((*rows, last))), 2 * max(rows))
    most = max(map(sum, pairwise(rows))) if auto else whole
    assert taken(program, "heap") <= most + 64
    assert apart(program, "heap") > (3 if auto else 4) * most


@needs_compiler
@pytest.mark.parametrize("auto", [False, pytest.param(True, marks=THOROUGH)])
def test_one_allocation_for_ten_layers(auto: bool) -> None:
    made = compile_nest(layers(3, "int32"), samples.cpu(), auto=auto)
    assert made.source.c.count("aligned_alloc(") == 1
    assert made.source.c.count("free(heap_workspace);") == 1
    inputs = random_inputs(made.workload, 3)
    kernel = Kernel(
        made.workload,
        made.program.codes[0],
        made.source,
        inputs,
        run_reference(made.workload, inputs),
    )
    assert run_kernels([kernel], samples.cpu()) == [""]
    floats = compile_nest(layers(3), samples.cpu(), auto=auto)
    assert examine(floats, random_inputs(floats.workload, 3), "c").ran_c


def test_functions_say_that_buffers_of_one_allocation_do_not_overlap() -> None:
    text = compile_nest(layers(), samples.cpu(), auto=False).source.c
    head = "static void layers_cpu_generic_s2(const float *restrict h1, const float *restrict w2, "
    assert f"{head}float *restrict s2)\n" in text
    assert "\n  layers_cpu_generic_s2(h1, w2, s2);\n" in text
    # The first sums read the caller's array, which no pointer of ours reaches.
    assert "layers_cpu_generic_s1(" not in text


def test_a_single_buffer_has_an_allocation_of_its_own() -> None:
    text = compile_nest(chain(2), samples.cpu(), auto=False).source.c
    assert "int32_t *t1 = (int32_t *)aligned_alloc(64, 192);" in text


# Wherever the buffers are


def in_rows(hardware: HardwareSpec, memory: str, kind: str = "") -> Schedule:
    """A chain computed row by row: each iteration of a loop has buffers of its own."""
    found = ["x", *(f"t{n}" for n in range(1, 6)), "y"]
    workload = hwgen.workload(
        "rows",
        tensors={n: f"int32[6, {30 - 2 * k}]" for k, n in enumerate(found)},
        compute=[f"{b}[r, i] = {a}[r, i] + {a}[r, i + 1]" for a, b in pairwise(found)],
    )
    s = Schedule(workload, hardware)
    row = s.loops("y")[0]
    for name in reversed(found[1:-1]):
        s.compute_at(name, row)
        if memory:
            s.set_scope(name, memory)
    if kind:
        s.parallel(row)
    return s


@needs_compiler
def test_a_chain_in_a_serial_loop_is_allocated_once() -> None:
    s = in_rows(samples.cpu(), "")
    program = samples.program(s)
    assert findings(program, samples.cpu()) == []
    assert taken(program, "heap") == 2 * 128
    text = samples.check_native(s).c.partition("\nvoid ")[2]
    assert text.index("aligned_alloc(") < text.index("for (int64_t")


@needs_compiler
def test_iterations_that_run_at_once_have_rooms_of_their_own() -> None:
    s = in_rows(samples.cpu(), "", "parallel")
    program = samples.program(s)
    assert findings(program, samples.cpu()) == []
    assert taken(program, "heap") == 2 * 128
    text = samples.check_native(s).c.partition("\nvoid ")[2]
    assert text.index("#pragma omp parallel") < text.index("aligned_alloc(")


@needs_compiler
@pytest.mark.parametrize("kind", ["", "parallel"])
def test_declared_arrays_of_one_type_share_one(kind: str) -> None:
    s = in_rows(samples.cpu(), "stack", kind)
    program = samples.program(s)
    assert taken(program, "stack") == 2 * 128
    assert findings(program, samples.cpu()) == []
    text = samples.check_native(s).c
    assert "_Alignas(64) int32_t own_stack_workspace[54];" in text
    assert "int32_t *t2 = stack_workspace + 32;" in text


def test_declared_arrays_of_other_types_do_not() -> None:
    workload = hwgen.workload(
        "types",
        tensors={"x": "int8[1, 9]", "a": "int16[1, 8]", "b": "int32[1, 7]", "c": "int64[1, 6]",
                 "y": "int64[1, 5]"},
        compute=["a[r, i] = int16(x[r, i] + x[r, i + 1])", "b[r, i] = a[r, i] + a[r, i + 1]",
                 "c[r, i] = b[r, i] + b[r, i + 1]", "y[r, i] = c[r, i] + c[r, i + 1]"],
    )  # fmt: skip
    s = Schedule(workload, samples.cpu())
    for name in "abc":
        s.set_scope(name, "stack")
    assert not any(b.within for b in samples.program(s).arrays)


@THOROUGH
def test_launches_share_what_lives_between_them() -> None:
    few = layers(3, number=8)
    program = compile_nest(few, samples.gpu()).program.codes[0]
    assert taken(program, "scratch") < 0.4 * apart(program, "scratch")
    source = emit_nest(program, samples.gpu(), few)
    assert source.c.count("cudaMalloc((void **)&scratch_workspace, ") == 1


@needs_compiler
def test_launches_that_share_compute_the_same() -> None:
    s = Schedule(chain(5), samples.gpu())
    for stage in ("t1", "t2", "t3", "t4", "y"):
        block, thread = s.split(s.loops(stage)[0], 8)
        s.bind(block, "blockIdx.x")
        s.bind(thread, "threadIdx.x")
    program = samples.program(s)
    assert sum(1 for b in program.arrays if b.within) == 4
    assert findings(program, samples.gpu()) == []
    samples.check_blocks(s)


@needs_compiler
def test_a_blocks_memory_is_shared_by_live_range() -> None:
    s = in_rows(samples.gpu(), "shared")
    s.bind(s.loops("y")[0], "blockIdx.x")
    for stage in ("t1", "t2", "t3", "t4", "t5", "y"):
        s.bind(s.loops(stage)[-1], "threadIdx.x")
    program = samples.program(s)
    assert max(b.bytes + (b.address_bytes or 0) for b in program.arrays if b.memory) <= 2 * 112
    assert findings(program, samples.gpu()) == []
    samples.check_blocks(s)


def test_places_are_the_least() -> None:
    def life(first: int, last: int) -> Life:
        return Life(first, last, (0,), 0)

    live = {"a": life(1, 4), "b": life(3, 6), "c": life(5, 9), "d": life(2, 9)}
    sizes = {"a": 100, "b": 60, "c": 90, "d": 8}

    def sixteenth(_: str, least: int) -> int:
        return -(-least // 16) * 16

    found = fitted(("acbd", "adbc"), sizes, live, sixteenth)
    assert found == {"a": 0, "c": 0, "b": 112, "d": 176}
    assert fitted(("abd",), sizes, live, sixteenth, {"c": 8}) == {
        "c": 8,
        "a": 0,
        "b": 112,
        "d": 176,
    }


def test_one_array_of_the_kernel_is_no_place_for_iterations_that_run_at_once() -> None:
    chip = load_hardware(samples.ROOT / "tests" / "specs" / "cpu_small_calls.yaml")
    program = samples.program(in_rows(chip, "pooled"))
    assert max(b.address_bytes or 0 for b in program.arrays) < 2 * 112
    machine = chip.machine
    loops = (*machine.loops, samples.cpu().machine.loop["parallel"])
    several = replace(chip, processor=replace(machine, loops=loops))
    with pytest.raises(HwgenError) as raised:
        samples.program(in_rows(several, "pooled", "parallel"))
    assert raised.value.code == "H512"
    assert "(parallel), and pooled is one array" in raised.value.diagnostic.found


# The check


def test_a_buffer_in_the_place_of_one_that_lives_is_found() -> None:
    """Large and never run whole: the check reads the program."""
    program = compile_nest(layers(), samples.cpu(), auto=False).program.codes[0]
    order = range(1, len(WIDTHS))
    live_together = [(f"s{n}", f"h{n}") for n in order[:-1]]
    live_together += [(f"h{n}", f"s{n + 1}") for n in order[:-1]]
    where = {b.name: b.address_bytes for b in program.arrays}
    changed = {m: p for m, p in nest_mutations(program) if m.startswith(IN_PLACE)}
    for a, b in live_together:
        for one, other in ((a, b), (b, a)):
            wrong = changed[f"{IN_PLACE} {one} at {where[other]}"]
            assert refused(wrong), (one, other)


def refused(program: Code) -> bool:
    try:
        check(program, samples.cpu(), 50)
    except HwgenError as error:
        return error.code == "H757"
    return False


def hoisted(body: tuple[Node, ...], room: str) -> tuple[Node, ...]:
    """Without the scope of a room."""

    def without(node: Node) -> Iterator[Node]:
        match node:
            case Allocate(name, inside) if name == room:
                yield from (x for n in inside for x in without(n))
            case Allocate() | Loop():
                yield replace(node, body=tuple(x for n in node.body for x in without(n)))
            case _:
                yield node

    return (Allocate(room, tuple(x for n in body for x in without(n))),)


def test_one_room_for_iterations_that_run_at_once_is_found() -> None:
    program = samples.program(in_rows(samples.cpu(), "", "parallel"))
    room = next(b.name for b in program.arrays if not b.tensor)
    wrong = replace(program, body=hoisted(program.body, room))
    assert any("run at once" in f for f in findings(wrong, samples.cpu()))
    serial = samples.program(in_rows(samples.cpu(), ""))
    assert findings(replace(serial, body=hoisted(serial.body, room)), samples.cpu()) == []


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("t2", {"address_bytes": 4}, "t2 is not aligned"),
        ("t2", {"address_bytes": 1 << 20}, "t2 is not inside of heap_workspace"),
        ("heap_workspace", {"memory": "stack"}, "t1 cannot be in heap_workspace"),
    ],
)
def test_a_place_that_cannot_be_is_found(name: str, change: dict[str, int], message: str) -> None:
    program = samples.program(Schedule(chain(4), samples.cpu()))
    wrong = [replace(b, **change) if b.name == name else b for b in program.arrays]
    assert message in findings(replace(program, arrays=tuple(wrong)), samples.cpu())


def test_a_room_that_is_not_there_is_found() -> None:
    program = samples.program(Schedule(chain(4), samples.cpu()))
    (room,) = program.body
    assert isinstance(room, Allocate)
    found = findings(replace(program, body=room.body), samples.cpu())
    assert "t1 is in heap_workspace, which is not there" in found


def test_what_is_read_after_another_wrote_there_is_found() -> None:
    """Run step by step too: elements are known by who wrote them."""
    program = samples.program(Schedule(chain(4), samples.cpu()))

    places = {"t1": 0, "t2": 64}

    def moved(b: Array) -> Array:
        return replace(b, address_bytes=places.get(b.name, b.address_bytes))

    wrong = replace(program, arrays=tuple(map(moved, program.arrays)))
    found = findings(wrong, samples.cpu())
    assert "t1 is read where nothing was written" in found
    assert "t1 and t2 have one place and are used at once" in found
    assert "t1 is used after t2 took its place" in found
    assert sum(isinstance(n, Allocate) for n in nodes(program.body)) == 4
