"""Races, deadlocks, leftover and redundant tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.whole import simulate_timing
from hwgen.codegen.nodes import Call, If, Loop, Node, Pop, Push, calls
from hwgen.codegen.program import KernelLoop, MicroKernelDef, Program
from hwgen.errors import HwgenError
from hwgen.model.sync_check import check_synchronisation
from hwgen.spec.expression import Binary, Const, Expr, Name
from hwgen.spec.hardware import HardwareSpec
from tests.redundancy import RedundantTokens, redundant
from tests.samples import chip, load_bound_gemm, tiled_gemm_requant
from tests.unit.timing.nests import gemm_nest, image, operand, sizes

GOOD = [
    load_bound_gemm(),
    tiled_gemm_requant(256, 256, 256),
    gemm_nest((3, 3, 4)),
    gemm_nest((2, 5, 7), (5, 3, 3), slots=3, bias=False),
]


def edit(
    nodes: tuple[Node, ...], target: Node, change: Callable[[Node], tuple[Node, ...]]
) -> tuple[Node, ...]:
    """The program with every statement equal to `target` changed."""
    result: list[Node] = []
    for node in nodes:
        if node == target:
            result += change(node)
            continue
        match node:
            case Loop():
                result.append(replace(node, body=edit(node.body, target, change)))
            case If():
                result.append(
                    replace(
                        node,
                        then=edit(node.then, target, change),
                        otherwise=edit(node.otherwise, target, change),
                    )
                )
            case _:
                result.append(node)
    return tuple(result)


def without(program: Program, *nodes: Node) -> Program:
    for node in nodes:
        program = replace(program, body=edit(program.body, node, lambda _: ()))
    return program


def error(program: Program) -> HwgenError:
    with pytest.raises(HwgenError) as caught:
        check_synchronisation(program, chip())
    return caught.value


@pytest.mark.parametrize("program", GOOD, ids=range(len(GOOD)))
def test_good_programs_pass_and_need_every_token(program: Program) -> None:
    result = check_synchronisation(program, chip())
    assert result.complete
    assert result.checked == result.total > 0
    assert redundant(program, chip()) == ()


EDGES = [("load", "compute"), ("compute", "load"), ("compute", "store"), ("store", "compute")]


@pytest.mark.parametrize(("source", "target"), EDGES)
def test_a_dropped_push_is_a_deadlock(source: str, target: str) -> None:
    found = error(without(gemm_nest((3, 3, 4)), Push(source, target)))
    assert found.code == "H761"
    assert target in found.diagnostic.message
    assert f"{source} -> {target}" in found.diagnostic.found


@pytest.mark.parametrize(("source", "target"), EDGES)
def test_a_dropped_pop_leaves_tokens(source: str, target: str) -> None:
    found = error(without(gemm_nest((3, 3, 4)), Pop(source, target)))
    assert found.code == "H762"
    assert f"{source} -> {target}" in found.diagnostic.message


@pytest.mark.parametrize(
    ("source", "target", "buffers"),
    [
        ("load", "compute", ("a_local", "b_local")),
        ("compute", "load", ("a_local", "b_local")),
        ("compute", "store", ("c_local",)),
        ("store", "compute", ("c_local",)),
    ],
)
def test_a_dropped_pair_is_a_race(source: str, target: str, buffers: tuple[str, ...]) -> None:
    found = error(without(gemm_nest((3, 3, 4)), Push(source, target), Pop(source, target)))
    assert found.code == "H760"
    assert f"no order {source} -> {target}" in found.diagnostic.found
    assert found.diagnostic.field in buffers
    assert "m=" in found.diagnostic.message
    assert "entries" in found.diagnostic.found


def test_a_surplus_push_is_left_over() -> None:
    program = gemm_nest((3, 3, 4))
    found = error(replace(program, body=(*program.body, Push("store", "compute"))))
    assert found.code == "H762"
    assert "1 token store -> compute" in found.diagnostic.message


def test_a_push_on_the_wrong_edge_is_a_deadlock() -> None:
    program = gemm_nest((3, 3, 4))
    swapped = edit(program.body, Push("compute", "store"), lambda _: (Push("compute", "load"),))
    assert error(replace(program, body=swapped)).code == "H761"


def test_a_circular_wait_is_a_deadlock() -> None:
    program = gemm_nest((1, 1, 1))
    body = (Pop("load", "compute"), Pop("compute", "load"), *program.body)
    found = error(replace(program, body=(*body, Push("load", "compute"), Push("compute", "load"))))
    assert found.code == "H761"


def test_a_pop_that_a_full_queue_keeps_from_its_push_is_a_deadlock() -> None:
    reset = MicroKernelDef("k", "reset", (KernelLoop(1, (0,)),), (), ((0,),), ())
    call = Call(0, "reset", "compute", (), (), (), "k", Const(0))
    images = (image("a", "int8", (16,), (1, 16)),)
    for count, code in ((500, ""), (600, "H761")):
        loop = Loop("t", Const(0), Const(count), (call,))
        body = (Pop("load", "compute"), loop, Push("load", "compute"))
        program = Program("p", "vta", "w", ("a",), (), images, (), (reset,), body)
        if code:
            found = error(program)
            assert found.code == code
            assert "queue of compute is full" in found.diagnostic.found
            with pytest.raises(HwgenError, match=code):
                simulate_timing(program, chip())
        else:
            assert check_synchronisation(program, chip()).complete
            assert simulate_timing(program, chip()).cycles > 0


def test_an_edge_that_the_chip_lacks_is_refused() -> None:
    program = gemm_nest((3, 3, 4))
    found = error(replace(program, body=(*program.body, Push("load", "store"))))
    assert found.code == "H763"
    assert "load -> compute" in found.diagnostic.allowed


def test_a_chip_without_completion_refuses_a_pop_that_no_call_follows() -> None:
    bare = replace(chip(), completion=None)
    program = gemm_nest((1, 1, 1))
    body = (*program.body, Push("compute", "load"), Pop("compute", "load"))
    with pytest.raises(HwgenError, match="H764"):
        check_synchronisation(replace(program, body=body), bare)


def test_too_few_slots_are_a_race() -> None:
    good = gemm_nest((3, 3, 4))
    wide = gemm_nest((3, 3, 4), slots=3)
    # Tokens of three slots, addresses of two.
    single = replace(good, body=wide.body)
    kernels = tuple(
        replace(k, bases=tuple(tuple(b % 64 for b in base) for base in k.bases))
        for k in wide.kernels
    )
    assert error(replace(single, kernels=kernels)).code == "H760"


def test_unneeded_tokens_are_named() -> None:
    program = gemm_nest((2, 2, 3))
    pair = (Push("store", "compute"), Pop("store", "compute"))
    found = redundant(replace(program, body=(*pair, *program.body)), chip())
    assert found == (RedundantTokens("store", "compute", (0,), (1,), 1),)


def test_tokens_that_only_a_longer_wait_could_replace_are_needed() -> None:
    """Without the first push and the last pop every conflict stays ordered, as each load waits for
    the latest multiplication: the two slots of `x` would serve nothing."""

    def step(turn: Expr) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        slot = Binary("%", turn, Const(2))
        filled = (operand("dst", "x", slot, 1, 1), operand("src", "a", 0, 1, 1))
        load = Call(0, "load_inp", "load", filled, sizes(1, 1))
        used = Call(1, "gemm", "compute", (), (), (), "k", Binary("*", slot, Const(3)))
        return (load, Push("load", "compute")), (Pop("load", "compute"), used)

    t = Name("t")
    (give, take), (last, final) = step(t), step(Const(6))
    push, pop = Push("compute", "load"), Pop("compute", "load")
    loop = Loop("t", Const(0), Const(6), (
        If(Binary(">=", t, Const(2)), (pop,)), *give, *take,
        If(Binary("==", t, Const(0)), (push,), (If(Binary("<=", t, Const(4)), (push,)),)),
    ))  # fmt: skip
    program = replace(_program([]), body=(loop, pop, *last, *final))
    assert redundant(program, chip()) == ()
    late = replace(program, body=(loop, push, pop, pop, *last, *final))
    assert redundant(late, chip())


def test_long_programs_are_checked_where_they_differ() -> None:
    result = check_synchronisation(gemm_nest((64, 64, 64), tail_rows=3), chip())
    assert result.complete
    assert result.checked == result.total == 64 * 64 * (64 * 3 + 3)


def test_a_race_in_the_last_iteration_of_a_long_program_is_found() -> None:
    program = gemm_nest((40, 40, 40))
    late = Call(
        9, "load_inp", "load", (operand("dst", "a_local", 0, 4, 1), operand("src", "a", 0, 4, 1)),
        sizes(1, 4),
    )  # fmt: skip
    assert error(replace(program, body=(*program.body, late))).code == "H760"


# Random streams against all pairs of a transitive closure.

Action = tuple[str, int, int]
_ACTIONS = st.one_of(
    st.tuples(st.just("load"), st.integers(0, 3), st.integers(1, 2)),
    st.tuples(st.just("gemm"), st.integers(0, 3), st.integers(0, 2)),
    st.tuples(st.just("store"), st.integers(0, 2), st.just(1)),
    st.tuples(st.just("push"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("pop"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("pair"), st.integers(0, 3), st.just(0)),
)
_BASES = tuple((acc, inp, 0) for inp in range(4) for acc in range(3))


def _program(actions: list[Action]) -> Program:
    body: list[Node] = []
    for site, (kind, a, b) in enumerate(actions):
        source, target = EDGES[a % 4]
        match kind:
            case "load":
                operands = (operand("dst", "x", a, b, 1), operand("src", "a", 0, b, 1))
                body.append(Call(site, "load_inp", "load", operands, sizes(1, b)))
            case "gemm":
                index = Const(a * 3 + b)
                body.append(Call(site, "gemm", "compute", (), (), (), "k", index))
            case "store":
                operands = (operand("dst", "c", 0, 1, 1), operand("src", "y", a, 1, 1))
                body.append(Call(site, "store_out", "store", operands, sizes(1, b)))
            case "push":
                body.append(Push(source, target))
            case "pop":
                body.append(Pop(source, target))
            case _:
                body += [Push(source, target), Pop(source, target)]
    kernel = MicroKernelDef("k", "gemm", (KernelLoop(1, (0, 0, 0)),), (), _BASES, ())
    images = (image("a", "int8", (16,), (1, 16)), image("c", "int8", (16,), (1, 16)))
    return Program("p", "vta", "w", ("a",), ("c",), images, (), (kernel,), tuple(body))


def _verdict(program: Program) -> str:
    """The code that the checker must give, by brute force; "" where there is no error."""
    units: dict[str, list[int]] = {"load": [], "compute": [], "store": []}
    waiting: dict[str, list[tuple[str, str]]] = {unit: [] for unit in units}
    touches: list[set[tuple[str, int, bool]]] = []
    before: list[tuple[int, int]] = []
    pushes: dict[tuple[str, str], list[int]] = {edge: [] for edge in EDGES}
    pops: dict[tuple[str, str], list[int]] = {edge: [] for edge in EDGES}

    def operation(unit: str, touched: set[tuple[str, int, bool]]) -> int:
        number = len(touches)
        touches.append(touched)
        if units[unit]:
            before.append((units[unit][-1], number))
        units[unit].append(number)
        for edge in waiting[unit]:
            pops[edge].append(number)
        waiting[unit] = []
        return number

    def push(source: str, target: str) -> None:
        # An operation of its own orders no more than the call it may be attached to.
        pushes[(source, target)].append(operation(source, set()))

    for node in program.body:
        match node:
            case Push(source, target):
                push(source, target)
            case Pop(source, target):
                if (source, target) in waiting[target]:
                    operation(target, set())
                waiting[target].append((source, target))
            case Call(_, "load_inp", unit, (dst, _), (_, extent)):
                assert isinstance(dst.address, Const)
                assert isinstance(extent, Const)
                first, count = int(dst.address.value), int(extent.value)
                operation(unit, {("inp", first + i, True) for i in range(count)})
            case Call(_, "store_out", unit, (_, src), _):
                assert isinstance(src.address, Const)
                operation(unit, {("acc", int(src.address.value), False)})
            case Call(_, _, unit, variant=Const(variant)):
                acc, inp, _ = _BASES[int(variant)]
                operation(unit, {("acc", acc, True), ("inp", inp, False)})
            case _:
                raise AssertionError(node)
    push("store", "compute")
    push("load", "compute")
    for source in ("store", "load"):
        if (source, "compute") in waiting["compute"]:
            operation("compute", set())
        waiting["compute"].append((source, "compute"))
    operation("compute", set())
    count = len(touches)
    reach = np.eye(count, dtype=np.bool_)
    for edge in EDGES:
        if len(pops[edge]) > len(pushes[edge]):
            return "H761"
        before += zip(pushes[edge], pops[edge], strict=False)
    for first, second in before:
        reach[first, second] = True
    for k in range(count):
        reach |= np.outer(reach[:, k], reach[k])
    if any(reach[i, j] and reach[j, i] for i, j in combinations(range(count), 2)):
        return "H761"
    if any(len(pushes[edge]) > len(pops[edge]) for edge in EDGES):
        return "H762"
    for i, j in combinations(range(count), 2):
        for memory, entry, writes in touches[i]:
            other = (memory, entry)
            conflicts = {(*other, True), *([(*other, False)] if writes else [])} & touches[j]
            if conflicts and not reach[i, j] and not reach[j, i]:
                return "H760"
    return ""


@settings(max_examples=200, deadline=None)
@given(st.lists(_ACTIONS, max_size=14))
def test_random_streams_agree_with_all_pairs(actions: list[Action]) -> None:
    program = _program(actions)
    expected = _verdict(program)
    try:
        check_synchronisation(program, chip())
        found = ""
    except HwgenError as caught:
        found = caught.code
    assert found == expected


@pytest.mark.parametrize("variant", [-1, 4, Name("t"), Binary("-", Name("t"), Const(1))])
@pytest.mark.parametrize("check", [check_synchronisation, simulate_timing])
def test_a_variant_that_does_not_exist_is_an_error(
    check: Callable[[Program, HardwareSpec], object], variant: Expr | int
) -> None:
    program = load_bound_gemm()
    reset = next(c for c in calls(program.body) if c.intrinsic == "reset")
    # Four variants, but the loop reaches 4 once it is a step longer.
    program = replace(
        program,
        body=tuple(
            replace(n, upper=Const(5)) if isinstance(n, Loop) and variant == Name("t") else n
            for n in program.body
        ),
    )
    chosen = Const(variant) if isinstance(variant, int) else variant
    body = edit(program.body, reset, lambda _: (replace(reset, variant=chosen),))
    with pytest.raises(HwgenError) as caught:
        check(replace(program, body=body), chip())
    assert caught.value.code == "H722"
