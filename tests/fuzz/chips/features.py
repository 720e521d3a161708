"""Random features of chips that run small instructions behind a host: issue by the host, C loops
around calls, operands that stay in a unit, state that calls depend on, and kinds of memory off the
chip."""

from __future__ import annotations

import copy
import re

from hwgen.verify.natural.draws import Pick, Spec
from tests.fuzz.chips.calls import rewrite_texts

NAME = re.compile(r"[A-Za-z_]\w*")
EXTENTS = ("1..16", "1..4", "1..8", "1..2", "1")


def draw_features(spec: Spec, pick: Pick) -> None:
    """Each with some probability, several together now and then; C text is written again."""
    for feature, percent in ODDS.items():
        if pick(range(100)) >= 100 - percent:
            feature(spec, pick)
    rewrite_texts(spec)


def written(intrinsic: Spec) -> set[str]:
    """The operands that an intrinsic writes."""
    semantics = intrinsic["semantics"]
    statements: list[str] = [semantics] if isinstance(semantics, str) else semantics
    return {NAME.findall(statement)[0] for statement in statements}


def rename_in_cycles(intrinsic: Spec, lost: set[str], kept: str) -> None:
    """The formula names a loop that there still is, or none."""
    intrinsic["cycles"] = NAME.sub(
        lambda name: (kept or "1") if name[0] in lost else name[0], str(intrinsic["cycles"])
    )


# Runs of calls


def _runs(spec: Spec, pick: Pick) -> None:
    """C loops around calls whose hardware loops are short, or as they were."""
    count = pick((6, 2, 1, 3, 12))
    short = pick((True, False))
    first = pick.chance(3)
    for name in list(spec["intrinsics"]):
        intrinsic = spec["intrinsics"][name]
        if "micro_kernel" in intrinsic or pick.chance(6):
            continue
        intrinsic["software_loops"] = count
        if short and intrinsic.get("loops"):
            _shorten(intrinsic, pick)
        product = "+=" in str(intrinsic["semantics"])
        read = [n for n in intrinsic["operands"] if n not in written(intrinsic)]
        if len(read) == 2 and (not pick.chance(8) if product else pick.chance(4)):
            _hold(intrinsic, pick(read[::-1]), pick)
        if first and len(read) == 2 and product and isinstance(intrinsic["semantics"], str):
            spec["intrinsics"][f"{name}_first"] = _setting(intrinsic)


def _shorten(intrinsic: Spec, pick: Pick) -> None:
    """The innermost hardware loop alone, of a few iterations, or every loop of a few."""
    loops = intrinsic["loops"] = copy.deepcopy(intrinsic["loops"])
    if pick.chance(4):
        for loop in loops.values():
            loop["extent"] = pick(EXTENTS)
        return
    kept = list(loops)[-1]
    intrinsic["loops"] = {kept: loops[kept] | {"extent": pick(EXTENTS)}}
    rename_in_cycles(intrinsic, set(loops) - {kept}, kept)
    keep_fields(intrinsic, pick)


def _hold(intrinsic: Spec, operand: str, pick: Pick) -> None:
    """One operand stays: loops that move it are dropped, or move it no more where all do."""
    loops = intrinsic["loops"] = copy.deepcopy(intrinsic.get("loops", {}))
    moving = [n for n, loop in loops.items() if str(loop["strides"].get(operand, 0)) != "0"]
    if len(moving) < len(loops):
        for name in moving:
            del loops[name]
        rename_in_cycles(intrinsic, set(moving), next(iter(loops)))
        keep_fields(intrinsic, pick)
    for loop in loops.values():
        loop["strides"].pop(operand, None)
    intrinsic["stationary"] = {"operand": operand, "cycles": pick((16, 4, 1, 0, 40))}


def _setting(intrinsic: Spec) -> Spec:
    """A sum that replaces what stood there: the first iteration of a longer one."""
    target = str(intrinsic["semantics"]).partition("+=")[0].strip()
    return copy.deepcopy(intrinsic) | {"semantics": [f"{target} = 0", intrinsic["semantics"]]}


# The host


def _host(spec: Spec, pick: Pick) -> None:
    """A host core issues calls, some of several instructions, into short queues."""
    spec["issue"] = {"cycles": pick((4, 1, 2, 20))}
    if spec.pop("fetch", None) is not None:
        without_priorities(spec)
    for unit in spec["units"].values():
        unit["queue_entries"] = pick((8, 16, 4, 2, 1, 0))
    if not pick.chance(3):
        for intrinsic in spec["intrinsics"].values():
            if pick.chance(2):
                intrinsic["instructions"] = pick((2, 3, 7))


# State


def _state(spec: Spec, pick: Pick) -> None:
    """Registers of one unit or of two that most of its calls depend on."""
    states: Spec = spec.setdefault("configurations", {})
    for _ in range(pick((1, 2, 3))):
        unit, name = pick(list(spec["units"])), f"state{len(states)}"
        count = pick((1, 2, 3, 0))
        fields = ["mode", "step", "rows"][: pick((1, 2, 3))]
        states[name] = given = {"unit": unit, "fields": fields, "cycles": pick((1, 0, 7))}
        if count:
            given["registers"] = [{"id": n, "word": f"w{n}"} for n in range(count)]
        for intrinsic in spec["intrinsics"].values():
            if intrinsic["unit"] == unit and not pick.chance(4):
                needed = {field: field_text(intrinsic, pick) for field in fields}
                intrinsic["configuration"] = {**intrinsic.get("configuration", {}), name: needed}


def field_text(intrinsic: Spec, pick: Pick) -> str:
    """What a call needs a field to hold: a number, or a word of the call's own."""
    words = list(intrinsic.get("immediates", {}))
    for loop, fields in intrinsic.get("loops", {}).items():
        words += [f"{loop}.extent", *(f"{loop}.stride.{o}" for o in fields.get("strides", {}))]
    if not words or pick.chance(3):
        return pick(("0", "1"))
    word = pick(words)
    # The last is compared as text: what templates know of extents and strides.
    return pick(
        (f"{{{{ {word} }}}}", f"4 * {{{{ {word} }}}}", f"{{{{ 1 if {word} != '1' else 0 }}}}")
    )


def keep_fields(intrinsic: Spec, pick: Pick) -> None:
    """Fields that name what the call has no more hold something else."""
    known = {*intrinsic["loops"]}
    states = copy.deepcopy(intrinsic.get("configuration", {}))
    for fields in states.values():
        for field, text in fields.items():
            loops = re.findall(r"([A-Za-z_]\w*)\.(?:extent|stride)\b", text)
            if not set(loops) <= known:
                fields[field] = field_text(intrinsic, pick)
    if states:
        intrinsic["configuration"] = states


# Memory off the chip


def _shared(spec: Spec, pick: Pick) -> None:
    """Memory that the host computes in too."""
    del pick
    for memory in spec["memories"].values():
        if memory["kind"] == "offchip":
            memory["shared"] = True
    # Results are then the caller's when the kernel returns: something has to wait for them.
    spec["code"].setdefault("epilogue", "finish();\n")


def _constants(spec: Spec, pick: Pick) -> None:
    """A second memory off the chip, for constants, behind a bus of its own; one load, or one more,
    reads it."""
    memories: Spec = spec["memories"]
    offchip = [n for n, m in memories.items() if m["kind"] == "offchip"]
    loads = [n for n, i in spec["intrinsics"].items() if _loads(i, offchip[0])]
    if len(offchip) > 1 or not loads:
        return
    bus = {k: v for k, v in spec["buses"][memories[offchip[0]]["bus"]].items() if k != "priority"}
    spec["buses"]["fixed_bus"] = copy.deepcopy(bus)
    memories["fixed"] = {"kind": "offchip", "bus": "fixed_bus", "constants_only": True}
    without_priorities(spec)
    name = pick(loads)
    load = copy.deepcopy(spec["intrinsics"][name])
    (source,) = [o for o in load["operands"] if o not in written(load)]
    load["operands"][source]["memory"] = "fixed"
    others = dict(spec["intrinsics"])
    if pick.chance(3):
        del others[name]
    # The first that can is taken.
    spec["intrinsics"] = {f"{name}_fixed": load, **others}


def _loads(intrinsic: Spec, memory: str) -> bool:
    """Whether it only copies from a memory."""
    copied = re.fullmatch(r"\w+\[.*\] = (\w+)\[[^\[]*\]", str(intrinsic["semantics"]))
    return copied is not None and intrinsic["operands"][copied[1]]["memory"] == memory


def mark_constants(workload: Spec, pick: Pick) -> None:
    """Most inputs stay the same between calls."""
    compute = [c if isinstance(c, str) else c["do"] for c in workload["compute"]]
    results = {NAME.findall(statement)[0] for statement in compute}
    for name, tensor in workload["tensors"].items():
        if name not in results and isinstance(tensor, str) and not pick.chance(3):
            workload["tensors"][name] = {"type": tensor, "constant": True}


def without_priorities(spec: Spec) -> None:
    """Buses serve in the file's order."""
    for bus in spec["buses"].values():
        bus.pop("priority", None)


ODDS = {_runs: 55, _host: 40, _state: 35, _shared: 33, _constants: 33}
"""Of a hundred chips, how many have each feature."""
