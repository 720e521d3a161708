"""The independent timing rules, against the closed forms of single instructions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.shim.rtl_model import bursts, run_trace

L = 20


def step(kind: str, stage: int, **fields: Any) -> dict[str, Any]:
    """One instruction of a trace."""
    blank: dict[str, Any] = {
        "pop": [0, 0], "push": [0, 0], "memory": 2, "address": 4096, "entry_bytes": 16, "x": 0,
        "y": 0, "stride": 0, "pads": [0, 0, 0, 0], "iterations": 0, "operands": 1,
    }  # fmt: skip
    return {"kind": kind, "stage": stage, **blank, **fields}


FINISH = step("finish", 2)


def busy(stage: int, *steps: dict[str, Any], latency: int = L) -> int:
    return run_trace([*steps, FINISH], latency, L).busy_cycles[stage]


def first_call(calls: int) -> int:
    """The first call of a stream of at most eight: two beats are fetched for each."""
    return L + 18 - 2 * (8 - calls)


def test_finish_alone() -> None:
    # It takes 2; the kernel ends 2 later.
    assert run_trace([FINISH], L, L).total_cycles == first_call(1) + 2 + 2


@pytest.mark.parametrize("iterations", [1, 16, 1000])
def test_operations(iterations: int) -> None:
    finish = 2
    assert busy(2, step("gemm", 2, iterations=iterations)) == iterations + 7 + finish
    assert busy(2, step("alu", 2, iterations=iterations)) == iterations + 7 + finish
    two = step("alu", 2, iterations=iterations, operands=2)
    assert busy(2, two) == 2 * iterations + 7 + finish


@pytest.mark.parametrize("entries", [1, 8, 64, 1000])
def test_loads(entries: int) -> None:
    beats = entries * 2
    assert busy(1, step("load", 1, x=entries, y=1, stride=entries)) == 5 + L + beats


def test_micro_operation_load() -> None:
    load = step("load_uop", 2, memory=0, entry_bytes=4, x=64, y=1, stride=64)
    assert busy(2, load) == 4 + L + 32 + 2


def test_rows_have_bursts_of_their_own() -> None:
    # A row of 24 bytes from 112 on crosses a boundary.
    assert bursts(112, 24) == [16, 8]
    assert bursts(0, 300) == [128, 128, 44]
    rows = step("load", 1, x=1, y=40, stride=9)
    assert busy(1, rows) == 5 + L + 80


@pytest.mark.parametrize("latency", [20, 100, 400, 1000])
def test_sixteen_bursts_in_flight(latency: int) -> None:
    """5 + (G - 1)(L + b) + L + (bursts - 16 (G - 1)) b where latency cannot be hidden."""
    b, count = 16, 50
    groups = -(-count // 16)
    load = step("load", 1, x=count * 8, y=1, stride=count * 8)
    if latency + b > 16 * b:
        expected = 5 + (groups - 1) * (latency + b) + latency + (count - 16 * (groups - 1)) * b
    else:
        expected = 5 + latency + count * b
    assert busy(1, load, latency=latency) == expected


def test_stores_wait_for_each_burst() -> None:
    store = step("store", 3, memory=4, x=20, y=3, stride=20)
    # Rows of 320 bytes: 8, 8 and 4 entries, the second row begins 64 bytes into a line.
    rows = [bursts(4096 + y * 320, 320) for y in range(3)]
    expected = 1 + sum(3 * (part // 16) + L + 1 for row in rows for part in row)
    assert busy(3, store) == expected


def test_inp_load_goes_before_acc_load() -> None:
    """Beside an ACC load a load loses little; the ACC load gets the beats left over."""
    acc = step("load", 2, memory=3, entry_bytes=64, x=256, y=1, stride=256, address=1 << 16)
    inp = step("load", 1, x=1000, y=1, stride=1000)
    alone = busy(1, inp)
    both = run_trace([acc, inp, FINISH], L, L)
    # The bursts that the ACC load has in flight already come first.
    assert alone <= both.busy_cycles[1] <= alone + 16 * 16
    assert both.busy_cycles[2] >= 5 + L + 256 * 8 + 1000 * 2


def test_a_reader_requests_every_other_cycle() -> None:
    """Bursts of one beat: the beats of a load's 40 rows come two cycles apart. With L even the beat
    of the first would come with the eleventh request, which waits one cycle; so do two more."""
    rows = step("load", 1, memory=0, entry_bytes=4, x=1, y=40, stride=40)
    assert busy(1, rows) == 5 + L + 2 * 40 - 1 + 3
    assert busy(1, rows, latency=21) == 5 + 21 + 2 * 40 - 1


def test_tokens_order_stages() -> None:
    load = step("load", 1, x=64, y=1, stride=64, push=[0, 1])
    gemm = step("gemm", 2, iterations=100, pop=[1, 0])
    # Fetch, load, GEMM, FINISH, each as soon as the one before has ended.
    end = first_call(3) + (5 + L + 128) + 107 + 2
    assert run_trace([load, gemm, FINISH], L, L).total_cycles == end + 2


def test_deadlock_is_seen() -> None:
    with pytest.raises(AssertionError, match="deadlock"):
        run_trace([step("gemm", 2, iterations=1, pop=[1, 0]), FINISH])


def test_fetch_limits_short_calls() -> None:
    """Eight calls per L + 27 cycles."""
    calls = [step("nop", 2) for _ in range(800)]
    total = run_trace([*calls, FINISH], L, L).total_cycles
    assert total == pytest.approx(L + 18 + 100 * (L + 27), rel=0.01)


def test_measured_kernel() -> None:
    """1 x 256 x 256, one column block of the weights at a time and no double buffering, as it is
    written down straightforwardly: the RTL takes 9,632 cycles, its load unit is busy for 9,060."""
    uop = {"memory": 0, "entry_bytes": 4, "address": 0, "x": 1, "y": 1, "stride": 1}
    trace = [step("load_uop", 2, **uop), step("gemm", 2, iterations=16, push=[1, 0])]
    for k in range(16):
        inp = {"memory": 2, "entry_bytes": 16, "x": 1, "y": 1, "stride": 1}
        wgt = {"memory": 1, "entry_bytes": 256, "x": 1, "y": 16, "stride": 16}
        trace.append(step("load", 1, **inp, address=4096 + 16 * k, pop=[0, 1]))
        trace.append(step("load", 1, **wgt, address=8192 + 256 * k, push=[0, 1]))
        if k == 0:
            trace.append(step("load_uop", 2, **uop, pop=[1, 0]))
        pop, push = ([1, 0] if k else [0, 0]), ([1, 1] if k == 15 else [1, 0])
        trace.append(step("gemm", 2, iterations=16, pop=pop, push=push))
    out = {"memory": 4, "x": 16, "y": 1, "stride": 16}
    trace.append(step("store", 3, **out, pop=[1, 0], push=[1, 0]))
    trace.append(step("nop", 1, pop=[0, 1], push=[0, 1]))
    trace.append(step("nop", 2, pop=[1, 1]))
    timing = run_trace([*trace, FINISH], L, L)
    assert timing.total_cycles == pytest.approx(9632, rel=0.001)
    assert timing.busy_cycles[1] == pytest.approx(9060, rel=0.001)
