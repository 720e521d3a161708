"""Tensors that several statements write, one after the other, as tensors of their own.

A statement that writes all of a tensor again makes a new one, of the name that its stage has. So
phases may take what stood there before, whoever writes later; parts of one tensor stay one. What
values that are made from the last ones in order go on from, the statement right before them sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hwgen.polyhedral.scop import begins_elements
from hwgen.polyhedral.tree.build import version_names
from hwgen.polyhedral.tree.loop_tree import covers
from hwgen.spec.expression import Access, Expr, rename_tensors, replace_part, tensors_of
from hwgen.spec.workload import Statement, Tensor, Workload


def versioned(workload: Workload) -> Workload:
    """The workload with a tensor for each time that one is written as a whole, its statements by
    their names as they were; itself where each is written once. What elements in order go on from,
    where it is no number nor another tensor's element, is copied by a statement more."""
    written = [s.target.tensor for s in workload.statements]
    if len({*written}) == len(written):
        return workload
    names = version_names(workload)
    mine = {n: names[v[-1]] for v in _versions(workload) for n in v}
    return _named(workload, [mine[n] for n in range(len(names))], begun=True)


def of_stages(workload: Workload) -> Workload:
    """The workload with a tensor for what each statement writes, named as its stage."""
    return _named(workload, version_names(workload), begun=False)


def _named(workload: Workload, names: Sequence[str], *, begun: bool) -> Workload:
    """The workload, each statement of which writes the tensor of a name. `begun`: elements in order
    are in the place of what they go on from."""
    current: dict[str, str] = {}
    statements: list[Statement] = []
    tensors: dict[str, Tensor] = {}
    for s, name in zip(workload.statements, names, strict=True):
        written = s.target.tensor
        tensors[name] = replace(workload.tensor[written], name=name, role="intermediate")
        before = current.get(written, written)
        own, value = Access(name, s.target.indices), rename_tensors(s.value, current)
        if s.ordered and before != name:
            begin = Access(before, s.target.indices)
            statements += [_begun(s, own, begin)] if begun else []
            value = replace_part(value, begin, own)
        statements.append(replace(s, target=own, value=value))
        current[written] = name
    given = {t.name: t for t in workload.tensors}
    return replace(
        workload, tensors=tuple((tensors | given).values()), statements=tuple(statements)
    )


def _versions(workload: Workload) -> list[list[int]]:
    """The numbers of the statements that write one tensor after the other, by what they write."""
    found: dict[str, list[list[int]]] = {}
    read: set[str] = set()
    for number, s in enumerate(workload.statements):
        tensor = workload.tensor[s.target.tensor]
        before = workload.statements[number - 1] if number else None
        mine = found.setdefault(tensor.name, [])
        read |= tensors_of(s.value)
        if s.ordered and before is not None and s.begins(before):
            new = not begins_elements(before, s, workload)
        else:
            # What nothing has read is in the same place: an array of nobody.
            new = tensor.name in read
        if not mine or (new and covers(s.target.indices, dict(s.loops), tensor.shape)):
            mine.append([number])
            read -= {tensor.name}
        else:
            mine[-1].append(number)
    return [v for versions in found.values() for v in versions]


def _begun(s: Statement, target: Access, value: Expr) -> Statement:
    """What sets the elements that a statement goes on from in order."""
    loops = tuple((n, e) for n, e in s.loops if n not in s.folded)
    return replace(s, name=f"{s.name}_begin", loops=loops, target=target, value=value)
