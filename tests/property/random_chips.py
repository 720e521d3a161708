"""Random chips as plain data: shipped ones with smaller memories, other loops, units and limits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from hwgen.spec.source import read_document
from tests.property.random_sync import synchronise_otherwise
from tests.property.random_workloads import Pick

ROOT = Path(__file__).parents[2]
Spec = dict[str, Any]
SHIPPED = tuple(
    cast(Spec, read_document(ROOT / path).data)
    for path in ("hw_specs/vta.yaml", "tests/specs/two_stage.yaml")
)


def bare(spec: Spec) -> Spec:
    """Without what changes would contradict: the C text of calls and the ranges of addresses."""
    for intrinsic in spec["intrinsics"].values():
        intrinsic["emit"] = "call();"
        for operand in intrinsic["operands"].values():
            if spec["memories"][operand["memory"]]["kind"] == "scratchpad":
                operand.pop("address", None)
    return spec


def random_chip(choose: Callable[[Sequence[object]], object]) -> Spec:
    """A chip as plain data for `hwgen.spec.load.parse_hardware`; some are refused there."""
    pick = Pick(choose)
    spec = copy.deepcopy(pick((SHIPPED[0], SHIPPED[0], SHIPPED[1])))
    changes = (_memories, _lanes, _loops, _micro_kernels, _units, _buses, _intrinsics, _latency)
    for change in changes:
        if pick.chance(3):
            change(spec, pick)
    if pick.chance(2):
        synchronise_otherwise(spec, pick)
    return bare(spec)


def _memories(spec: Spec, pick: Pick) -> None:
    """A few entries only, in one memory or in several."""
    for memory in spec["memories"].values():
        if memory["kind"] == "scratchpad" and pick.chance(2):
            lanes = " * ".join(f"({e})" for e in memory["entry"])
            width = {"int8": 1, "int32": 4, "float32": 4}[memory["dtype"]]
            memory["size"] = f"{pick((64, 16, 8, 6, 4, 3, 2, 1))} * {width} * {lanes}"


def _lanes(spec: Spec, pick: Pick) -> None:
    for name, options in (
        ("BATCH", (1, 2, 4)), ("BLOCK_IN", (16, 8, 4, 2, 1)), ("BLOCK_OUT", (16, 8, 4, 2, 1)),
        ("LANES", (4, 2, 1, 8)), ("DEPTH", (8, 4, 1)),
    ):  # fmt: skip
        if name in spec["parameters"]:
            known = spec["parameters"][name]
            value = pick(options)
            spec["parameters"][name] = (
                known | {"value": value} if isinstance(known, dict) else value
            )


def _loops(spec: Spec, pick: Pick) -> None:
    """One to three loops with narrower fields, in one intrinsic or in several."""
    for intrinsic in spec["intrinsics"].values():
        if not intrinsic.get("loops") or not pick.chance(2):
            continue
        innermost = list(intrinsic["loops"].values())[-1]
        operands = list(intrinsic["operands"])
        reach = pick(("0..2047", "0..7", "0..1", "0..15", "1..64"))
        loops: Spec = {}
        for level in range(pick((1, 2, 3)) - 1):
            strides = dict.fromkeys(operands, reach)
            if pick.chance(3):
                strides[pick(operands)] = "dense"
            loops[f"l{level}"] = {"extent": f"1..{pick((16383, 16, 4, 3, 2))}", "strides": strides}
        loops["inner"] = innermost | {"extent": f"1..{pick((16383, 16, 4, 3, 2))}"}
        intrinsic["loops"] = loops
        intrinsic["cycles"] = str(intrinsic["cycles"])


def _micro_kernels(spec: Spec, pick: Pick) -> None:
    for micro in spec.get("micro_kernels", {}).values():
        micro["capacity_operations"] = pick((2048, 256, 64, 16, 8))
        micro["max_variants"] = pick((99, 16, 4, 2, 1))
        micro["rewrite_distance"] = pick((3, 2, 1))
    if pick.chance(4):
        spec.pop("micro_kernels", None)
        for intrinsic in spec["intrinsics"].values():
            intrinsic.pop("micro_kernel", None)
        for bus in spec["buses"].values():
            bus["priority"] = [n for n in bus["priority"] if n in {*spec["intrinsics"], "fetch"}]


def _units(spec: Spec, pick: Pick) -> None:
    """Everything on one unit without synchronisation, or other queues between the units."""
    kind = pick(("one", "queues", "edge"))
    if kind == "one":
        unit = pick(list(spec["units"]))
        spec["units"] = {unit: spec["units"][unit]}
        for intrinsic in spec["intrinsics"].values():
            intrinsic["unit"] = unit
        spec["synchronization"] = {"kind": "none"}
        return
    if kind == "edge":
        edges = spec["synchronization"]["edges"]
        edges.remove(pick(edges))
        spec["synchronization"].pop("completion", None)
        return
    for unit in spec["units"].values():
        unit["queue_entries"] = pick((0, 512, 16, 8))


def _buses(spec: Spec, pick: Pick) -> None:
    for bus in spec["buses"].values():
        bus["beat_bytes"] = pick((8, 1, 4, 32))
        bus["burst"] = {"beats": pick((16, 1, 4)), "boundary_bytes": pick((128, 32, 4096))}
        for channel in (bus["read"], bus["write"]):
            channel["in_flight_bursts"] = pick((1, 2, 16))
            channel["latency_cycles"] = pick((20, 0, 1, 300))
    if "fetch" in spec and pick.chance(2):
        del spec["fetch"]
        for bus in spec["buses"].values():
            bus["priority"] = [n for n in bus["priority"] if n != "fetch"]


def _intrinsics(spec: Spec, pick: Pick) -> None:
    """One intrinsic less."""
    lost = pick(list(spec["intrinsics"]))
    del spec["intrinsics"][lost]
    for bus in spec["buses"].values():
        bus["priority"] = [n for n in bus["priority"] if n != lost]
    for intrinsic in spec["intrinsics"].values():
        for operand in intrinsic["operands"].values():
            if lost in operand.get("written_by", []):
                operand["written_by"] = [n for n in operand["written_by"] if n != lost]


def _latency(spec: Spec, pick: Pick) -> None:
    for intrinsic in spec["intrinsics"].values():
        if len(intrinsic["operands"]) > 1 or "result_latency_iterations" in intrinsic:
            intrinsic["result_latency_iterations"] = pick((0, 1, 2, 3, 4))


_GEMM: Spec = {
    "sizes": {"M": 1, "N": 1, "K": 1},
    "tensors": {"a": "{T}[M, K]", "b": "{T}[N, K]", "s": "{W}[M, N]", "y": "{T}[M, N]"},
    "compute": ["s[m, n] += a[m, k] * b[n, k]", "y[m, n] = {C}(s[m, n])"],
}
_BIASED: Spec = _GEMM | {
    "tensors": _GEMM["tensors"] | {"c": "{W}[N]"},
    "compute": [_GEMM["compute"][0], "y[m, n] = {C}(max(s[m, n] + c[n], 0))"],
}
_ADD: Spec = {
    "sizes": {"M": 1, "N": 1},
    "tensors": {"a": "{T}[M, N]", "b": "{T}[M, N]", "y": "{T}[M, N]"},
    "compute": ["y[m, n] = {C}(a[m, n] + b[m, n])"],
}
_BROADCAST: Spec = _ADD | {
    "tensors": {"a": "{T}[M, N]", "b": "{T}[N]", "y": "{T}[M, N]"},
    "compute": ["y[m, n] = {C}(max(b[n], a[m, n]) + b[n])"],
}
_CONVOLUTION: Spec = {
    "sizes": {"M": 1, "N": 1, "K": 1},
    "tensors": {
        "x": "{T}[K, M + 2]", "w": "{T}[N, K, 3]", "p": "{T}[K, M + 4]", "s": "{W}[N, M + 2]",
        "y": "{T}[N, M + 2]",
    },
    "compute": [
        "p[k, h] = select(h >= 1 and h < M + 3, x[k, h - 1], 0)",
        "s[n, i] += p[k, i + r] * w[n, k, r]",
        "y[n, i] = {C}(s[n, i])",
    ],
}  # fmt: skip
_ROWS: Spec = {
    "sizes": {"M": 1, "K": 1},
    "tensors": {"a": "{T}[M, K]", "s": "{W}[M]", "y": "{T}[M]"},
    "compute": ["s[m] += max(a[m, k], 0)", "y[m] = {C}(s[m])"],
}


def workload_for(spec: Spec, choose: Callable[[Sequence[object]], object]) -> Spec:
    """A workload in the chip's data types."""
    pick = Pick(choose)
    base = pick((_GEMM, _BIASED, _ADD, _BROADCAST, _CONVOLUTION, _ROWS))
    floats = any(m.get("dtype") == "float32" for m in spec["memories"].values())
    types = (
        {"{T}": "float32", "{W}": "float32", "{C}": ""}
        if floats
        else {"{T}": "int8", "{W}": "int32", "{C}": "int8"}
    )

    def typed(text: str) -> str:
        for mark, dtype in types.items():
            text = text.replace(mark, dtype)
        return text

    return {
        "name": "fuzz",
        "sizes": {n: pick((1, 2, 5, 16, 17, 40, 70)) for n in base["sizes"]},
        "tensors": {n: typed(t) for n, t in base["tensors"].items()},
        "compute": [typed(c) for c in base["compute"]],
    }
