"""The static check of synchronisation: a chip must have what a program uses, used in one way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hwgen.codegen.nodes import Barrier, If, Node, Pop, Push, Signal, SyncNode, Wait, rewritten
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.spec.hardware import Barriers, Events, Scoreboard, Synchronization
from hwgen.verify.check_program import check_program
from tests.samples import chip, load_bound_gemm

EDGES = (("load", "compute"), ("compute", "load"))
OWN = Events(EDGES, 2, False, 1, "", "", 0, 0)
SHARED = Events(EDGES, 2, True, 1, "", "", 0, 0)
BARRIERS = Barriers(("load",), "wait", "", 0)

CASES: dict[str, tuple[Synchronization, tuple[SyncNode, ...], str]] = {
    "a barrier": (BARRIERS, (Barrier("load"),), ""),
    "another unit's barrier": (BARRIERS, (Barrier("store"),), "store"),
    "a barrier for all": (BARRIERS, (Barrier(""),), "all units"),
    "a fence": (Scoreboard(0, "fence", 0), (Barrier(""),), ""),
    "a fence of one unit": (Scoreboard(0, "fence", 0), (Barrier("load"),), "load"),
    "no fence": (Scoreboard(0, "", 0), (Barrier(""),), "all units"),
    "a push without tokens": (BARRIERS, (Push("load", "compute"),), "load -> compute"),
    "a pop without tokens": (OWN, (Pop("load", "compute"),), "load -> compute"),
    "flags": (OWN, (Signal("load", "compute", 0, 2), Wait("load", "compute", 0, 2)), ""),
    "a flag without edge": (OWN, (Signal("load", "store", 0, 1),), "load -> store"),
    "flags without events": (BARRIERS, (Wait("load", "compute", 0, 1),), "load -> compute"),
    "a flag too many": (OWN, (Signal("load", "compute", 1, 2),), "flags 1..2"),
    "another flag at the other end": (
        OWN, (Signal("load", "compute", 0, 1), Wait("load", "compute", 1, 1)), "1, 1 in turn",
    ),
    "a flag on its own edge each": (
        OWN, (Signal("load", "compute", 0, 1), Signal("compute", "load", 0, 1)), "",
    ),
    "one flag for two edges": (
        SHARED, (Signal("load", "compute", 0, 1), Signal("compute", "load", 0, 1)), "0",
    ),
}  # fmt: skip


def bare(program: Program) -> Program:
    """The program without its tokens."""

    def no_tokens(node: Node) -> tuple[Node, ...]:
        match node:
            case Push() | Pop():
                return ()
            case If(_, then) if all(isinstance(n, Push | Pop) for n in then):
                return ()
            case _:
                return (node,)

    return replace(program, body=rewritten(program.body, no_tokens))


@pytest.mark.parametrize("name", CASES)
def test_what_a_chip_has(name: str) -> None:
    kind, nodes, found = CASES[name]
    hardware = replace(chip(), synchronization=kind, completion=None)
    program = bare(load_bound_gemm())
    changed = replace(program, body=(*program.body, *nodes))
    if not found:
        check_program(changed, hardware)
        return
    with pytest.raises(HwgenError) as caught:
        check_program(changed, hardware)
    assert caught.value.code == "H739"
    assert caught.value.diagnostic.found == found
