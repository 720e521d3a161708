"""Networks of which some stages share loops and others run before them."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import pytest

from hwgen.errors import HwgenError
from hwgen.model.columns import off_chip_traffic
from hwgen.passes import network as networks
from hwgen.passes.kernel import Kernel
from hwgen.passes.network import _Network, in_parts
from hwgen.passes.parts import CompileUnits
from hwgen.passes.phase import DEFAULTS
from hwgen.passes.scripting import compile_script
from hwgen.passes.spilling import ALL_KEPT, Choice, Refused, cheapest
from hwgen.passes.start import Start
from hwgen.pipeline import compile_kernel, compile_workload
from hwgen.polyhedral.phases import split_phases
from hwgen.spec.load import load_hardware, parse_workload
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import THOROUGH

NPU = load_hardware(Path(__file__).resolve().parents[2] / "hw_specs" / "npu_shared_buffer.yaml")


def scores(rows: int = 384) -> Workload:
    """Rows of scores with keys that a product makes first, of which no block needs but all."""
    tensors = {"x": f"float32[{rows}, 32]", "w": "float32[32, 32]", "k": f"float32[{rows}, 32]"}
    tensors |= {"s": f"float32[{rows}, {rows}]", "r": f"float32[{rows}, {rows}]"}
    tensors |= {"v": f"float32[{rows}, 32]", "y": f"float32[{rows}, 32]"}
    compute = ["k[j, d] += x[j, e] * w[e, d]", "s[i, j] += x[i, d] * k[j, d]"]
    compute += ["r[i, j] = max(s[i, j], 0)", "y[i, d] += r[i, j] * v[j, d]"]
    return parse_workload({"name": "scores", "tensors": tensors, "compute": compute})


def keys_and_values(rows: int = 384) -> Workload:
    """Rows of scores of which keys and values are products of one input."""
    wide = f"float32[{rows}, 32]"
    tensors = dict.fromkeys(("x", "k", "v", "y"), wide) | dict.fromkeys(
        ("p", "q"), "float32[32, 32]"
    )
    tensors |= dict.fromkeys(("s", "r"), f"float32[{rows}, {rows}]")
    compute = ["k[j, d] += x[j, e] * p[e, d]", "v[j, d] += x[j, e] * q[e, d]"]
    compute += ["s[i, j] += x[i, d] * k[j, d]", "r[i, j] = max(s[i, j], 0)"]
    compute += ["y[i, d] += r[i, j] * v[j, d]"]
    return parse_workload({"name": "rows", "tensors": tensors, "compute": compute})


@cache
def compiled() -> Kernel:
    found = compile_workload(scores(), NPU)
    assert not found.parts
    return found


@THOROUGH
def test_what_is_large_stays_on_the_chip_and_what_all_blocks_need_is_computed_once() -> None:
    found = compiled()
    moved = off_chip_traffic(found.program, NPU, found.workload)
    assert {m.tensor for m in moved} == {"x", "w", "k", "v", "y"}
    assert {m.tensor: m.stored for m in moved}["k"] == 384 * 32 * 4
    assert found.cycles < 0.6 * compile_kernel(scores(), NPU).cycles


@THOROUGH
def test_the_parts_are_one_schedule() -> None:
    """Names that a part gave what the whole has under another name are of no account."""
    found = compiled()
    again = compile_script(scores(), NPU, found.script)
    assert again.source.c == found.source.c
    assert found.script.count("s.cache_read('x', 'local', readers=") == 2
    examine(found, draw_inputs(scores(), 1))


def network(workload: Workload) -> _Network:
    units = CompileUnits(partial(compile_kernel, hardware=NPU))
    return _Network(workload, NPU, units, DEFAULTS)


def test_parts_begin_behind_what_all_blocks_need() -> None:
    whole = scores()
    groups = tuple(tuple(p.workload.statements) for p in split_phases(whole))
    named = [[s.target.tensor for s in g] for g in groups]
    assert named == [["k"], ["s", "r"], ["y"]]
    assert network(whole)._inside(groups) == groups[1:]


@THOROUGH
def test_parts_that_load_the_same_are_joined() -> None:
    """Keys and values of one input, which all blocks of what follows need."""
    whole = keys_and_values()
    found = network(whole).parts()
    named = [[[s.target.tensor for s in g] for g in groups] for groups, _ in found]
    assert named[0] == [["k"], ["v"]]
    made = found[0][1]
    loads = {m.tensor: m.loaded for m in off_chip_traffic(made.program, NPU, made.workload)}
    assert loads["x"] == 384 * 32 * 4


@pytest.mark.parametrize(
    ("crossing", "valleys"),
    [
        ([4, 8, 8, 4, 4, 6], [1, 4, 5]),
        ([8, 4], [2]),
        ([4, 8], [1]),
        ([4, 4], [1, 2]),
        ([3, 5, 9, 5, 3], [1, 5]),
        ([], []),
    ],
)
def test_phases_are_cut_where_less_crosses(
    crossing: list[int], valleys: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crosses(_: _Network, __: object, count: int) -> int:
        return crossing[count - 1]

    monkeypatch.setattr(_Network, "_crossing", crosses)
    groups = tuple(() for _ in range(len(crossing) + 1))
    assert network(scores())._valleys(groups) == valleys


def test_without_shared_loops_there_are_no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What units refuse of a phase gives no kernel of parts, and no error: others are tried."""

    def refuse(workload: Workload) -> Kernel:
        raise HwgenError("H405", "", location=workload.location)

    def none(*_: object) -> None:
        pass

    monkeypatch.setattr(networks, "fused", none)
    assert in_parts(Start(scores(), NPU), CompileUnits(refuse), DEFAULTS) is None


# What phases one after the other let go


def test_long_networks_let_go_what_they_must_and_no_more() -> None:
    """Of twenty tensors between phases, those that are too large in pairs."""
    count = 20
    rows = [64 * (1 + n % 3) for n in range(count + 1)]
    tensors = {f"t{n}": f"float32[{rows[n]}, 16]" for n in range(count + 1)}
    tensors |= {f"w{n}": f"float32[{rows[n + 1]}, {rows[n]}]" for n in range(count)}
    compute = [f"t{n + 1}[i, j] += w{n}[i, k] * t{n}[k, j]" for n in range(count)]
    whole = parse_workload({"name": "chain", "tensors": tensors, "compute": compute})
    phases = split_phases(whole)
    tries: list[Choice] = []

    def attempt(choice: Choice) -> int | Refused:
        tries.append(choice)
        for number in range(1, count - 1):
            held = tuple(t for t in (f"t{number}", f"t{number + 1}") if t not in choice.spilled)
            if sum(rows[int(t[1:])] for t in held) > 192:
                return Refused(HwgenError("H405", "no room"), number, held)
        return sum(rows[int(t[1:])] for t in choice.spilled)

    found = cheapest(whole, phases, ALL_KEPT, attempt, lambda n: (n,))
    # A large one of three, or as much in smaller ones.
    assert found == 6 * 192
    assert len(tries) < 100
