"""The numbers of a first chip from an architecture; what that does not say is called assumed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwgen.cli.architecture import ROLES, Action, Fanout, Level, read_architecture
from hwgen.cli.first_numbers import ASSUMED
from hwgen.cli.timeloop import read_timeloop
from hwgen.errors import HwgenError, Location

MOST_LANES = 1024
MOST_ITERATIONS = 512
"""Of a call; assumed."""
MOST_BEAT_BYTES = 4096
CLOCK_HERTZ = 1e9
_SHARES = {"act": 0.25, "wgt": 0.5, "acc": 0.25}
"""Of a memory that holds all three."""
_LEAST_BYTES, _MOST = 64, 1 << 32
"""Bytes of what is taken for a memory on the chip; a smaller one is a register of the core."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How a file of some tool's is read, and what it calls what a chip needs."""

    read: Callable[[Path], tuple[Level, ...]]
    compute: str
    memory: str
    sized: str
    size: str


FORMS: Mapping[str, _Form] = {
    "accelforge": _Form(
        read_architecture,
        compute="a node `!Compute`",
        memory="a node `!Memory` for what is off the chip",
        sized="a node `!Memory` with a size that is a number, after the one off the chip",
        size="the size of {} in bits",
    ),
    "timeloop": _Form(
        lambda path: read_timeloop(path, CLOCK_HERTZ),
        compute="a `!Component` of a class that computes, such as `intmac`",
        memory="a `!Component` of class `DRAM`",
        sized="a `!Component` with numbers for `depth` and `width`, after the one off the chip",
        size="`depth` and `width` of {}",
    ),
}
"""Whose architectures are read."""


def numbers(path: Path, form: str = "accelforge") -> Mapping[str, str]:
    """The texts of `first_numbers.ASSUMED` with an architecture's numbers; `form`: of `FORMS`.

    Raises:
        HwgenError: H045 it has no compute unit, or no memories to make a chip from; and as
            `read_architecture` and `read_timeloop`.
    """
    own = FORMS[form]
    levels = own.read(path)
    file = re.sub(r"[^ -~]+|[\"\\\\$]", "_", path.name)
    compute = _compute(levels, path, own)
    offchip, held = _memories(levels, path, own)
    o, i, lanes, others = _lanes(compute)
    o, i, smaller = _fitting(o, i, held)
    clock, of_clock = _clock(compute)
    entries = {name: _entries(held[name][1], o, i, name) for name in _SHARES}
    lines = [
        f"# A first chip from {file}. Sizes, rates and energies are that file's, by the line; what",
        "# it does not say is called assumed, and all from `units` on is. Energies are",
        "# comments; `energy` of a memory or an intrinsic says them to hwgen.",
        *(f"# Not in this chip: {text}" for text in [*others, *_left_out(levels, offchip, held)]),
        *(f"# Not a number in the file, so not taken: {text}" for text in _unread(levels)),
    ]
    return {
        **ASSUMED,
        "about": "\n".join(lines),
        "description": f'"A chip with a matrix-vector core, made by `hwgen init` from {file}."',
        "parameters": f"  OUT: {o} # lanes of the result; {lanes['OUT']}{smaller}\n"
        f"  IN: {i} # lanes that are added up; {lanes['IN']}{smaller}",
        "o": "OUT",
        "i": "IN",
        "memories": "\n".join(_memory(name, entries[name], *held[name], o, i) for name in _SHARES),
        "bus": _bus(offchip, clock, of_clock, file),
        **{f"last_{name}": str(n - 1) for name, n in entries.items()},
        **{f"most_{name}": str(min(n, MOST_ITERATIONS)) for name, n in entries.items()},
    }


def _compute(levels: Sequence[Level], path: Path, form: _Form) -> Level:
    """The unit with the most instances: the matrix unit beside a vector or a scalar one."""
    found = [x for x in levels if x.kind == "Compute"]
    if not found:
        raise _lacking(path, "compute unit", form.compute)
    return max(found, key=lambda x: math.prod(f.count or 1 for f in x.fanouts))


def _memories(
    levels: Sequence[Level], path: Path, form: _Form
) -> tuple[Level, dict[str, tuple[Level, int, str]]]:
    """The memory off the chip, and for each of ours the level that it is, its bytes, and which
    part of it they are."""
    memories = [x for x in levels if x.kind == "Memory"]
    if not memories:
        raise _lacking(path, "memory", form.memory)
    inside = [x for x in memories[1:] if x.size_bits and _LEAST_BYTES <= x.size_bits / 8 < _MOST]
    shared = next((x for x in inside if not x.role), None)
    found: dict[str, tuple[Level, int, str]] = {}
    for name, share in _SHARES.items():
        own = next((x for x in inside if x.role == name), None)
        if own is not None and (shared is None or own.line < shared.line):
            assert own.size_bits is not None
            found[name] = own, int(own.size_bits / 8), ""
        elif shared is not None:
            assert shared.size_bits is not None
            part = f"; assumed {share:.0%} of it for {ROLES[name][1]}"
            found[name] = shared, int(shared.size_bits / 8 * share), part
        else:
            unsized = next((x for x in memories[1:] if x.size_bits is None), None)
            raise _lacking(
                path, f"memory on the chip that keeps {ROLES[name][1]}", form.sized,
                unsized, form.size,
            )  # fmt: skip
    return memories[0], found


def _lanes(compute: Level) -> tuple[int, int, dict[str, str], list[str]]:
    """Lanes of the result and of the sum, where each comes from, and what is beside the core."""
    found: dict[str, tuple[int, str]] = {}
    beside: list[Fanout] = []
    for fanout in compute.fanouts:
        if fanout.count is None or fanout.count == 1:
            continue
        # Instances that share an input make different results; that share a result add it up.
        lane = next(
            (n for n, role in (("OUT", "act"), ("IN", "acc"))
             if any(word in fanout.over for word in ROLES[role]) and n not in found), ""
        )  # fmt: skip
        if lane and fanout.count <= MOST_LANES:
            found[lane] = fanout.count, f"fanout {fanout.name}"
        else:
            beside.append(fanout)
    for lane in ("OUT", "IN"):
        fitting = [f for f in beside if f.count and f.count <= MOST_LANES]
        if lane not in found and fitting:
            largest = max(fitting, key=lambda f: f.count or 0)
            beside.remove(largest)
            found[lane] = largest.count or 1, f"fanout {largest.name}, assumed to be these"
        found.setdefault(lane, (16, "assumed"))
    return (
        found["OUT"][0], found["IN"][0], {lane: source for lane, (_, source) in found.items()},
        [f"{f.count} side by side ({f.name})" for f in beside],
    )  # fmt: skip


def _fitting(o: int, i: int, held: Mapping[str, tuple[Level, int, str]]) -> tuple[int, int, str]:
    """Lanes of which two entries fit each memory."""
    wanted = (o, i)
    while o * i > 1 and any(_entries(held[n][1], o, i, n) < 2 for n in _SHARES):
        o, i = ((o + 1) // 2, i) if o >= i else (o, (i + 1) // 2)
    return o, i, "" if (o, i) == wanted else ", fewer for two entries to fit each memory"


def _entry_bytes(o: int, i: int, name: str) -> int:
    return {"act": i, "wgt": o * i, "acc": 4 * o}[name]


def _entries(size: int, o: int, i: int, name: str) -> int:
    return size // _entry_bytes(o, i, name)


def _memory(name: str, entries: int, level: Level, _size: int, part: str, o: int, i: int) -> str:
    entry = {"act": "[IN]", "wgt": "[OUT, IN]", "acc": "[OUT]"}[name]
    dtype = "int32" if name == "acc" else "int8"
    size = entries * _entry_bytes(o, i, name)
    shown = f"{size >> 10} KiB" if size % 1024 == 0 else f"{size} B"
    return (
        f"  {name}: {{kind: scratchpad, dtype: {dtype}, entry: {entry}, size: {shown}}}"
        f" # {_said(level)}{part}; {dtype} assumed"
    )


def _said(level: Level) -> str:
    """A level by its line, with what its actions cost."""
    energies = [f"{n} {a.energy * 1e12:.3g} pJ" for n, a in level.actions.items() if a.energy]
    each = "/bit" if level.kind == "Memory" else ""
    count = math.prod(f.count or 1 for f in level.fanouts)
    several = f", one of {count}" if count > 1 else ""
    named = f"{level.name}, line {level.line}{several}"
    return named + "".join(f", {e}{each}" for e in energies)


def _clock(compute: Level) -> tuple[float, str]:
    action = compute.actions.get("compute", Action(None, None))
    if action.per_second is None or action.per_second < 1e3:
        return CLOCK_HERTZ, "1 GHz assumed"
    return action.per_second, f"{action.per_second / 1e9:.3g} GHz: one {compute.name} per cycle"


def _bus(offchip: Level, clock: float, of_clock: str, file: str) -> str:
    rates = {n: a.per_second / 8 for n, a in offchip.actions.items() if a.per_second}
    read, write = rates.get("read"), rates.get("write")
    exact = read / clock if read else 16.0
    beat = max(1, min(MOST_BEAT_BYTES, int(exact)))
    said = (
        f"{read / 1e9:.4g} GB/s at {clock / 1e9:.3g} GHz are {exact:.4g} bytes per cycle"
        if read
        else "assumed"
    )
    slower = f"; writes: {write / 1e9:.4g} GB/s" if write and write != read else ""
    return f"""\
    # {_said(offchip)} of {file}; {of_clock}.
    beat_bytes: {beat} # {said}{slower}
    burst: {{beats: 16, boundary_bytes: {beat * 64}}} # assumed
    read: {{latency_cycles: 50, in_flight_bursts: 4}} # assumed
    write: {{latency_cycles: 50, in_flight_bursts: 4}} # assumed"""


def _left_out(
    levels: Sequence[Level], offchip: Level, held: Mapping[str, tuple[Level, int, str]]
) -> list[str]:
    taken = {offchip.name, *(level.name for level, _, _ in held.values())}
    compute = [x for x in levels if x.kind == "Compute"]
    inner = [x for x in levels if x.kind == "Memory" and x.name not in taken]
    largest = max(compute, key=lambda x: math.prod(f.count or 1 for f in x.fanouts))
    return [_said(x) for x in [*inner, *(c for c in compute if c is not largest)]]


def _unread(levels: Sequence[Level]) -> list[str]:
    return [f"{text} ({x.name}, line {x.line})" for x in levels for text in x.unread]


def _lacking(
    path: Path, what: str, allowed: str, unsized: Level | None = None, size: str = ""
) -> HwgenError:
    return HwgenError(
        "H045", f"the architecture has no {what}",
        location=Location(str(path), unsized.line if unsized else 0),
        found=", ".join(unsized.unread) or f"no size of {unsized.name}" if unsized
        else f"no {what}",
        allowed=allowed,
        repair=f"write {size.format(unsized.name)}" if unsized else f"add {allowed}",
    )  # fmt: skip
