"""The integers that a kernel's tensors hold, as far as its types, sizes and inputs' ranges say."""

from __future__ import annotations

from math import prod

from hwgen.codegen.c_value import ValueText, dtype_interval, value_helpers
from hwgen.polyhedral.tree.loop_tree import LoopTree, Stage
from hwgen.spec.expression import Access, Const, names, walk
from hwgen.spec.intervals import Interval, within
from hwgen.spec.typecheck import is_float
from hwgen.spec.workload import Workload


def value_ranges(workload: Workload, state: LoopTree) -> dict[str, Interval]:
    """By tensor, an interval of all that its elements ever are; of the others, nothing is known but
    their types."""
    found = {t.name: t.range for t in workload.tensors if t.range is not None}
    made: dict[str, list[Stage]] = {}
    for stage in state.stages:
        made.setdefault(stage.target.tensor, []).append(stage)
    for tensor, stages in made.items():
        only = _values(stages[0], state, found) if len(stages) == 1 else None
        if only is not None:
            found[tensor] = only
    return found


def _values(stage: Stage, state: LoopTree, known: dict[str, Interval]) -> Interval | None:
    """What a stage leaves, all that it adds up on the way included; None where that is not plain,
    or does not stay within the type."""
    dtype = state.tensor[stage.target.tensor].dtype
    begun = stage.seed if stage.seed is not None else Const(0)
    own = any(isinstance(e, Access) and e.tensor == stage.target.tensor for e in walk(begun))
    plain = stage.start is None and not own and not stage.over
    if not plain or is_float(dtype) or stage.op not in ("=", "+="):
        return None
    if stage.op == "=" and stage.where:
        return None  # It leaves elements as they are.

    def load(access: Access) -> tuple[str, str]:
        return "", state.tensor[access.tensor].dtype

    scalars = {n: ("", "int32", (0, extent - 1)) for n, extent in stage.iterators}
    text = ValueText(value_helpers(""), load, scalars, intervals=known)
    value = text(stage.value)
    if value.is_float:
        return None
    low, high = text.cast(value, dtype).interval
    if stage.op == "+=":
        spatial = {n for i in stage.target.indices for n in names(i)}
        times = prod(extent for n, extent in stage.iterators if n not in spatial)
        first, last = text.cast(text(begun), dtype).interval
        low, high = first + min(0, times * low), last + max(0, times * high)
    return (low, high) if within((low, high), dtype_interval(dtype)) else None
