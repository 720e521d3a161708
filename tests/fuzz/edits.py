"""Deliberate defects of kernel programs, one place at a time, and which check finds one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from hwgen.codegen.nodes import Call, If, Loop, Node, nodes, rewritten
from hwgen.codegen.program import Program
from hwgen.errors import HwgenError
from hwgen.model.numeric import Array
from hwgen.model.trace import CallEvent, walk
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.workload import Workload

WRONG_RESULT = "H790"

Edit = Callable[[Program, int], Program | None]
Pick = Callable[[Node], bool]
Change = Callable[[Node], tuple[Node, ...]]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A named defect. `mutate(program, seed)` is None where the program has no place for it;
    `caught_by` names the only errors by which it may be found."""

    name: str
    mutate: Edit
    caught_by: tuple[str, ...]


def drop(_: Node) -> tuple[Node, ...]:
    """Nothing instead of a node."""
    return ()


def double(node: Node) -> tuple[Node, ...]:
    """A node twice; a call gets a site of its own."""
    match node:
        case Call():
            return (node, replace(node, site=-1 - node.site))
        case _:
            return (node, node)


def on_one(pick: Pick, change: Change) -> Edit:
    """A mutation of one of the nodes that `pick` accepts, chosen by the seed.

    Calls and synchronisation that are never executed are left alone: without them nothing changes.
    """

    def mutate(program: Program, seed: int) -> Program | None:
        executed = {id(e.call if isinstance(e, CallEvent) else e) for e in walk(program)}

        def fits(node: Node) -> bool:
            return pick(node) and (isinstance(node, Loop | If) or id(node) in executed)

        places = [node for node in nodes(program.body) if fits(node)]
        if not places:
            return None
        chosen = Random(seed).randrange(len(places))
        counter = iter(range(len(places)))

        def edit(node: Node) -> tuple[Node, ...]:
            if fits(node) and next(counter) == chosen:
                return change(node)
            return (node,)

        return replace(program, body=rewritten(program.body, edit))

    return mutate


def in_a_body(
    program: Program,
    seed: int,
    places: Callable[[tuple[Node, ...]], list[int]],
    change: Callable[[tuple[Node, ...], int], tuple[Node, ...]],
) -> Program | None:
    """Change the order of nodes in the program's body or in the body of one of its loops."""
    bodies = [program.body, *(n.body for n in nodes(program.body) if isinstance(n, Loop))]
    found = [(number, i) for number, body in enumerate(bodies) for i in places(body)]
    if not found:
        return None
    number, at = Random(seed).choice(found)
    if number == 0:
        return replace(program, body=change(program.body, at))
    loops = iter(range(1, len(bodies)))

    def edit(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Loop) and next(loops) == number:
            return (replace(node, body=change(node.body, at)),)
        return (node,)

    return replace(program, body=rewritten(program.body, edit))


def catch(
    program: Program, hardware: HardwareSpec, workload: Workload, inputs: Mapping[str, Array]
) -> str:
    """The code of the first check that refuses a program; empty if all let it pass."""
    from hwgen.model.functional import run
    from hwgen.model.reference import run_reference
    from hwgen.verify.check_program import check_program
    from hwgen.verify.compare import unexplained
    from hwgen.verify.data import first_difference
    from tests.redundancy import check_minimal

    shapes = {t.name: t.shape for t in workload.outputs}
    try:
        check_program(program, hardware, workload)
        outputs = run(program, hardware, inputs, shapes=shapes).outputs
        expected = run_reference(workload, inputs)
        # Sums in another order round otherwise, in a kernel without a defect too.
        if first_difference(outputs, expected) and unexplained(workload, inputs, outputs, expected):
            return WRONG_RESULT
        check_minimal(program, hardware)
    except HwgenError as error:
        return error.code
    return ""
