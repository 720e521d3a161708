"""An architecture in the form of Timeloop's version 4 (timeloop.csail.mit.edu/v4), as levels with
numbers: a list of components, in which the outer ones come first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from hwgen.cli.architecture import (
    ROLES,
    Action,
    Fanout,
    Level,
    as_number,
    bad,
    positive,
    sort,
    untemplated,
    word,
)
from hwgen.errors import Location
from hwgen.spec.source import TAG, Data, Document, FieldPath

BRANCHES = ("Hierarchical", "Parallel", "Pipelined")
LEAVES = ("Component", "Container", "Nothing")
_COMPUTES = ("mac", "compute", "alu", "multiplier", "adder")
_STORES = ("dram", "sram", "storage", "regfile", "buffer", "rf", "memory", "cache", "latch")
_MESHES = ("meshX", "meshY")
_CYCLE = "global_cycle_seconds"

_Attributes = dict[str, Data]


def read_timeloop(path: Path, clock_hertz: float) -> tuple[Level, ...]:
    """The memories and compute units of a file, from the outside in. `clock_hertz`: of rates, where
    the file does not say how long a cycle is.

    Raises:
        HwgenError: H00x and H01x as any YAML; H044 it has another form.
    """
    document = untemplated(path)
    whole = document.data if isinstance(document.data, dict) else {}
    given = whole.get("architecture")
    nodes = given.get("nodes") if isinstance(given, dict) else None
    if not isinstance(nodes, list):
        older = isinstance(given, dict) and "subtree" in given
        raise bad(
            document, ("architecture",) if given is not None else (),
            "this is an architecture of an older Timeloop" if older
            else "this is no architecture of Timeloop",
            "subtree" if older else sort(given) if given is not None else "no architecture",
            "architecture: {nodes: [...]}",
            "convert it to version 4" if older else _other_form(whole),
        )  # fmt: skip
    variables = whole.get("variables")
    around = dict(variables) if isinstance(variables, dict) else {}
    levels = tuple(_levels(document, nodes, ("architecture", "nodes"), [], around, clock_hertz))
    # The innermost component computes, whatever it is called.
    if levels and all(x.kind == "Memory" for x in levels) and levels[-1].size_bits is None:
        last = levels[-1]
        unit = Level("Compute", last.name, last.line, None, "", {}, last.fanouts, last.unread)
        return (*levels[:-1], unit)
    return levels


def _other_form(whole: Data) -> str:
    if isinstance(whole, dict) and "arch" in whole:
        return "this one is AccelForge's: --from accelforge"
    return "give a file with `architecture` and its `nodes`"


def _levels(
    document: Document, nodes: list[Data], path: FieldPath, around: list[Fanout],
    attributes: _Attributes, clock_hertz: float,
) -> Iterator[Level]:  # fmt: skip
    for place, node in enumerate(nodes):
        where = (*path, place)
        kind = node.get(TAG) if isinstance(node, dict) else None
        if not isinstance(node, dict) or kind not in (*BRANCHES, *LEAVES):
            raise bad(
                document, where, "a node of no kind that is known",
                f"!{word(kind)}" if kind else sort(node),
                ", ".join(f"!{k}" for k in (*LEAVES, *BRANCHES)), "tag the node, as `- !Component`",
            )  # fmt: skip
        unread: list[str] = []
        own = _fanouts(document, node, where, unread)
        inner = node.get("nodes")
        if isinstance(inner, list):
            # What is in parallel does not stand on the way to what follows it.
            apart = list(around) if kind == "Parallel" else around
            held = dict(attributes) if kind == "Parallel" else attributes
            yield from _levels(document, inner, (*where, "nodes"), apart, held, clock_hertz)
        given = node.get("attributes")
        said = given if isinstance(given, dict) else {}
        around.extend(own)
        if kind == "Container":
            attributes |= said
        elif kind == "Component":
            of = Location(document.file, document.locate(where).line)
            found = _component(node, attributes | said, tuple(around), of, unread, clock_hertz)
            if own and found.kind == "Compute":
                del around[-len(own) :]
            yield found


def _fanouts(
    document: Document, node: dict[str, Data], where: FieldPath, unread: list[str]
) -> list[Fanout]:
    spatial = node.get("spatial")
    if spatial is not None and not isinstance(spatial, dict):
        raise bad(
            document, (*where, "spatial"), "an entry without fields", sort(spatial), "a mapping",
            "write spatial: {meshX: 8}",
        )  # fmt: skip
    found: list[Fanout] = []
    for mesh in _MESHES if spatial else ():
        count = as_number((spatial or {}).get(mesh), f"{mesh} of {node.get('name')}", unread)
        if count is not None and 1 <= count < 1 << 31:
            found.append(Fanout(word(f"{mesh} of {node.get('name')}"), int(count), ""))
    return found


def _component(
    node: dict[str, Data], attributes: _Attributes, fanouts: tuple[Fanout, ...], of: Location,
    unread: list[str], clock_hertz: float,
) -> Level:  # fmt: skip
    name = word(node.get("name") or "a component")
    kinds = " ".join(str(node.get(k) or "") for k in ("class", "subclass")).lower()
    cycle = as_number(attributes.get(_CYCLE), _CYCLE, unread)
    clock = positive(1 / cycle) if cycle else None
    if any(w in kinds for w in _COMPUTES) and not any(w in kinds for w in _STORES):
        actions = {"compute": Action(None, clock)}
        return Level("Compute", name, of.line, None, "", actions, fanouts, tuple(unread))

    def said(field: str) -> float | None:
        given = attributes.get(field)
        unbounded = isinstance(given, str) and given.lower() in ("inf", ".inf")
        return math.inf if unbounded else as_number(given, field, unread)

    depth, width, bits = said("depth"), said("width"), said("datawidth")
    actions: dict[str, Action] = {}
    for action in ("read", "write"):
        words = said(f"{action}_bandwidth")
        words = said("shared_bandwidth") if words is None else words
        if words and bits and math.isfinite(words):
            actions[action] = Action(None, positive(words * bits * (clock or clock_hertz)))
    size = depth * width if depth and width else None
    return Level(
        "Memory", name, of.line, size, _role(node.get("constraints")), actions, fanouts,
        tuple(unread),
    )  # fmt: skip


def _role(constraints: Data) -> str:
    """The memory of a first chip that holds what this one keeps; "" of several tensors."""
    space = constraints.get("dataspace") if isinstance(constraints, dict) else None
    if not isinstance(space, dict):
        return ""
    keep = space.get("keep_only") or space.get("keep")
    names = [str(k).lower() for k in keep] if isinstance(keep, list) else [str(keep).lower()]
    return next((r for r, own in ROLES.items() if len(names) == 1 and names[0] in own), "")
