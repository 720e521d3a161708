"""Random synchronisation: every kind that a chip can have."""

from __future__ import annotations

from itertools import permutations

from hwgen.verify.natural.draws import Pick, Spec

KINDS = ("tokens", "barrier", "events", "semaphores", "scoreboard")


def synchronise_otherwise(spec: Spec, pick: Pick, kind: str = "") -> None:
    """Give a chip of several units another way to order them, of a kind or of any.

    Some of the results are refused when they are read: an edge or a barrier is missing.
    """
    if spec["synchronization"]["kind"] == "none":
        return
    units: list[str] = list(spec["units"])
    kind = kind or pick(KINDS)
    if kind == "tokens":
        spec["synchronization"] = _tokens(units, pick)
    elif kind == "barrier":
        spec["synchronization"] = _barrier(units, pick)
    elif kind == "scoreboard":
        spec["synchronization"] = _scoreboard(pick)
    else:
        spec["synchronization"] = _events(units, pick, counting=kind == "semaphores")
    if pick.chance(3):
        spec["synchronization"]["completion"] = {
            "unit": pick(units), "cycles": pick((1, 0, 7)), "extra_cycles": pick((0, 5))
        }  # fmt: skip


def _tokens(units: list[str], pick: Pick) -> Spec:
    return {
        "kind": "tokens",
        "edges": _edges(units, pick),
        "push": "push_{{ source.name }}_{{ target.name }}();",
        "pop": "pop_{{ source.name }}_{{ target.name }}();",
        "nop_cycles": pick((1, 0, 9)),
    }


def _barrier(units: list[str], pick: Pick) -> Spec:
    cycles = pick((6, 0, 1, 40))
    result: Spec = {"kind": "barrier", "cycles": cycles}
    form = pick(("one", "all", "both", "some"))
    if form != "all":
        result["emit"] = "wait_{{ unit.name }}();"
    if form != "one":
        result["emit_all"] = "wait_all();"
    if form == "some":
        result["units"] = [pick(units)]
    # With no choice of its own, so that what is drawn after it does not depend on it.
    most = {1: 3, 40: 1}.get(cycles)
    if form != "all" and most is not None:
        result["emit"] = "wait_{{ unit.name }}({{ outstanding }});"
        result["outstanding"] = f"0..{most}"
    return result


def _events(units: list[str], pick: Pick, counting: bool) -> Spec:
    scope = pick(("edge", "chip"))
    count = len(units) * (len(units) - 1)
    # Each edge needs a flag.
    shared = [count + n for n in (4, 8, 2, 0, -1)]
    result: Spec = {
        "kind": "events",
        "flags": pick((4, 8, 6, 3, 2, 1) if scope == "edge" else shared),
        "scope": scope,
        "maximum": pick((2, 3, 8)) if counting else 1,
        "signal": "signal({{ source.name }}, {{ target.name }}, {{ event }});",
        "wait": "wait({{ source.name }}, {{ target.name }}, {{ event }});",
        "signal_cycles": pick((0, 1, 5)),
        "wait_cycles": pick((0, 1, 5)),
    }
    if pick.chance(3):
        result["edges"] = _edges(units, pick)
    return result


def _scoreboard(pick: Pick) -> Spec:
    result: Spec = {"kind": "scoreboard", "cycles": pick((3, 0, 1, 20))}
    if pick.chance(2):
        result |= {"fence": "fence();", "fence_cycles": pick((12, 0))}
    return result


def _edges(units: list[str], pick: Pick) -> list[list[str]]:
    """Every pair, or all but one, in either order."""
    edges = [list(edge) for edge in permutations(units, 2)]
    if pick.chance(6):
        edges.remove(pick(edges))
    if pick.chance(2):
        edges.reverse()
    return edges
