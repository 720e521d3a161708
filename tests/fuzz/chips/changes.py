"""Random changes of any chip with units: other loops, units and limits, an intrinsic less."""

from __future__ import annotations

import re

from hwgen.verify.natural.draws import Pick, Spec
from tests.fuzz.chips.features import (
    draw_features,
    keep_fields,
    rename_in_cycles,
    without_priorities,
)
from tests.fuzz.chips.sync import synchronise_otherwise

EXTENTS = (16383, 16, 4, 3, 2, 1)
REACHES = ("0..2047", "0..7", "0..1", "0..15", "1..64", "1..3")


def change_parameters(spec: Spec, pick: Pick) -> None:
    """Parameters of the chip, within their ranges, else smaller."""
    parameters: Spec = spec.get("parameters", {})
    for name in parameters:
        known: Spec = parameters[name] if isinstance(parameters[name], dict) else {}
        value = known.get("value", parameters[name])
        if not isinstance(value, int) or not pick.chance(2):
            continue
        wanted = pick((value // 2, 1, value // 4, 2 * value, value - 1))
        limits = re.fullmatch(r"(\d+)\.\.(\d+)", str(known.get("range", "")))
        low, high = (int(limits[1]), int(limits[2])) if limits else (1, max(value, 1))
        chosen = max(low, min(wanted, high))
        parameters[name] = {**known, "value": chosen} if known else chosen


def change_loops(spec: Spec, pick: Pick) -> None:
    """One to three loops with narrower fields, in one intrinsic or in several."""
    for intrinsic in spec["intrinsics"].values():
        if not intrinsic.get("loops") or not pick.chance(3):
            continue
        *outer, kept = intrinsic["loops"]
        innermost = intrinsic["loops"][kept]
        held = intrinsic.get("stationary", {}).get("operand")
        reach = pick(REACHES)
        loops: Spec = {}
        for level in range(pick((1, 2, 3)) - 1):
            strides: Spec = dict.fromkeys((o for o in intrinsic["operands"] if o != held), reach)
            if pick.chance(3):
                strides[pick(list(strides))] = pick(("dense", 1, 3))
            loops[f"l{level}"] = {"extent": f"1..{pick(EXTENTS)}", "strides": strides}
        loops[kept] = innermost | {"extent": f"1..{pick(EXTENTS)}"}
        intrinsic["loops"] = loops
        rename_in_cycles(intrinsic, set(outer), kept)
        keep_fields(intrinsic, pick)


def change_runs(spec: Spec, pick: Pick) -> None:
    """More or fewer C loops around calls, or none; other times of stationary operands; fewer
    registers."""
    for intrinsic in spec["intrinsics"].values():
        if "software_loops" in intrinsic and pick.chance(3):
            intrinsic["software_loops"] = pick((8, 12, 3, 2, 1, 0))
            if not intrinsic["software_loops"]:
                intrinsic.pop("stationary", None)
        if "stationary" in intrinsic and pick.chance(3):
            times = ((16, False), (1, True), (0, True), (100, False))
            cycles, overlaps = pick(times)
            new = {"cycles": cycles, "overlaps": overlaps}
            intrinsic["stationary"] = intrinsic["stationary"] | new
    for state in spec.get("configurations", {}).values():
        if "registers" in state and pick.chance(3):
            state["registers"] = state["registers"][: pick((1, 2))]


def change_micro_kernels(spec: Spec, pick: Pick) -> None:
    """Little room for micro-operations, or none of them."""
    for micro in spec.get("micro_kernels", {}).values():
        micro["capacity_operations"] = pick((2048, 256, 64, 16, 8))
        micro["max_variants"] = pick((99, 16, 4, 2, 1))
        micro["rewrite_distance"] = pick((3, 2, 1))
    if "micro_kernels" in spec and pick.chance(4):
        del spec["micro_kernels"]
        for intrinsic in spec["intrinsics"].values():
            intrinsic.pop("micro_kernel", None)
        without_priorities(spec)


def change_units(spec: Spec, pick: Pick) -> None:
    """Everything on one unit, one queue less between the units, or other queues before them."""
    kind = pick(("one", "queues", "edge"))
    edges = spec["synchronization"].get("edges")
    if kind == "one":
        unit = pick(list(spec["units"]))
        spec["units"] = {unit: spec["units"][unit]}
        users = (*spec["intrinsics"].values(), *spec.get("configurations", {}).values())
        for user in users:
            user["unit"] = unit
        spec["synchronization"] = {"kind": "none"}
    elif kind == "edge" and edges:
        edges.remove(pick(edges))
        spec["synchronization"].pop("completion", None)
    else:
        for unit in spec["units"].values():
            unit["queue_entries"] = pick((0, 512, 16, 8, 1))


def change_intrinsics(spec: Spec, pick: Pick) -> None:
    """One intrinsic less."""
    lost = pick(list(spec["intrinsics"]))
    del spec["intrinsics"][lost]
    without_priorities(spec)
    for intrinsic in spec["intrinsics"].values():
        for operand in intrinsic["operands"].values():
            if lost in operand.get("written_by", []):
                operand["written_by"] = [n for n in operand["written_by"] if n != lost]


def change_latency(spec: Spec, pick: Pick) -> None:
    """How long a result must not be touched."""
    for intrinsic in spec["intrinsics"].values():
        if len(intrinsic["operands"]) > 1 or "result_latency_iterations" in intrinsic:
            intrinsic["result_latency_iterations"] = pick((0, 1, 2, 3, 4))


CHANGES = (
    change_parameters, change_loops, change_runs, change_micro_kernels, change_units,
    change_intrinsics, change_latency, draw_features,
)  # fmt: skip


def change_chip(spec: Spec, pick: Pick) -> None:
    """Some of all that can be changed."""
    for change in CHANGES:
        if pick.chance(3):
            change(spec, pick)
    if pick.chance(2):
        synchronise_otherwise(spec, pick)
