"""What constants alone decide of a computation, so that it need be computed only once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from hwgen.polyhedral.scop import view_statements
from hwgen.spec.workload import Statement, Workload

Step = tuple[frozenset[str], frozenset[str]]
"""The tensors that a step reads of others, and those that it writes."""


def of_constants(
    steps: Sequence[Step],
    constant: Collection[str],
    able: Collection[str],
    room: Callable[[Collection[str]], int],
) -> frozenset[str]:
    """The tensors, of those that are `able`, which the `constant` ones alone decide.

    What takes more `room` than what it is made of is none of them: it is computed anew instead.
    """
    wanted = {t for reads, _ in steps for t in reads}
    large = (writes for reads, writes in steps if room(writes & wanted) > room(reads))
    found = frozenset(able).difference(*large)
    while True:
        known = found.union(constant)
        changing = (w for reads, w in steps if not (reads <= known and w <= found))
        left = found.difference(*changing)
        if left == found:
            return found
        found = left


def constant_statements(workload: Workload) -> tuple[Statement, ...]:
    """The statements that compute what constants alone decide, in order.

    A kernel writes its outputs itself, and what only rearranges a tensor is no work.
    """

    def room(tensors: Collection[str]) -> int:
        return sum(workload.tensor[t].bytes for t in tensors)

    views = view_statements(workload)
    made = [(s, frozenset((s.target.tensor,))) for s in workload.statements]
    steps = [(s.reads - own, own) for s, own in made]
    constant = {t.name for t in workload.tensors if t.constant}
    able = {t.name for t in workload.tensors if t.role == "intermediate"}
    able -= {s.target.tensor for s in views}
    found = of_constants(steps, constant, able, room)
    return tuple(s for s in workload.statements if s.target.tensor in found)
