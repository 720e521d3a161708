"""Rewrite: each statement stands right before the one that reads it.

`s += x * u; t += x * w; y = f(s); z = f(t)` becomes `s += x * u; y = f(s); t += x * w; z = f(t)`:
what is held in between need not be.
"""

from __future__ import annotations

from dataclasses import replace

from hwgen.spec.workload import Statement, Workload


def in_chains(workload: Workload) -> Workload:
    """The workload with its statements in another order, by what they read; itself where they are
    in it, or where several write one tensor."""
    makers = {s.target.tensor: s for s in workload.statements}
    if len(makers) < len(workload.statements):
        return workload
    found: dict[str, Statement] = {}

    read = {t for s in workload.statements for t in s.reads}
    # Results in the order in which they are declared.
    waiting = [makers[t.name] for t in workload.tensors[::-1] if t.name in {*makers} - read]
    while waiting:
        statement = waiting[-1]
        own = statement.target.tensor
        first = [
            s
            for s in workload.statements[::-1]
            if s.target.tensor in statement.reads - {own} and s.name not in found
        ]
        waiting += first
        if not first:
            found[waiting.pop().name] = statement
    order = (*found.values(), *(s for s in workload.statements if s.name not in found))
    return workload if order == workload.statements else replace(workload, statements=order)
