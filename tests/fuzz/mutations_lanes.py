"""Defects of how many lanes take part in a call."""

from __future__ import annotations

from dataclasses import replace

from hwgen.codegen.nodes import Call, Node
from hwgen.spec.hardware import HardwareSpec, Intrinsic
from tests.fuzz.edits import Mutation, on_one
from tests.fuzz.mutations_configuration import STATE

FIELD = "H744"


def lane_mutations(hardware: HardwareSpec) -> tuple[Mutation, ...]:
    """Of chips whose calls say how many lanes take part."""
    if not any(i.partial for i in hardware.intrinsics):
        return ()

    def stated(call: Call) -> list[int]:
        return [n for _, n in hardware.intrinsic[call.intrinsic].narrowed(call.lanes).iterators]

    def several(node: Node) -> bool:
        return isinstance(node, Call) and bool(_several(hardware.intrinsic[node.intrinsic], node))

    def fewer(node: Node) -> tuple[Node, ...]:
        assert isinstance(node, Call)
        at = _several(hardware.intrinsic[node.intrinsic], node)[0]
        lanes = stated(node)
        lanes[at] -= 1
        return (replace(node, lanes=tuple(lanes)),)

    def any_lanes(node: Node) -> bool:
        return isinstance(node, Call) and bool(stated(node))

    def more(node: Node) -> tuple[Node, ...]:
        assert isinstance(node, Call)
        most = [n + 1 for _, n in hardware.intrinsic[node.intrinsic].iterators]
        return (replace(node, lanes=(most[0], *stated(node)[1:])),)

    return (
        Mutation("a lane less", on_one(several, fewer), (STATE, "H717", "H724", "H790")),
        Mutation("a lane more than there are", on_one(any_lanes, more), (FIELD,)),
    )


def _several(intrinsic: Intrinsic, call: Call) -> list[int]:
    """The iterators, by position, of which several lanes take part, and not all: others may be
    padding."""
    pairs = zip(intrinsic.iterators, call.lanes, strict=False)
    return [at for at, ((_, extent), n) in enumerate(pairs) if 1 < n < extent]
