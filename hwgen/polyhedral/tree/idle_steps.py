"""Steps of values that change no number, which no processor need make: a clip to a range that the
value is in anyway, a cast to a type that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from hwgen.polyhedral.normal_form import without_idle_steps
from hwgen.polyhedral.same import Same
from hwgen.polyhedral.tree.edit import value_dtype
from hwgen.polyhedral.tree.loop_tree import RUNNING, LoopTree, Stage
from hwgen.polyhedral.tree.remembered import Remembered
from hwgen.spec.expression import Cast, Expr


def plain(state: LoopTree) -> LoopTree:
    """The same tree, its stages without idle steps; itself where they have none."""
    dtypes = {t.name: t.dtype for t in state.tensors}

    def made(stage: Stage) -> Stage:
        types = tuple(dtypes[t] for t in (stage.tensor, *(r.tensor for r in stage.reads)))
        known = dtypes | {RUNNING.tensor: dtypes[stage.tensor]}
        value = _known.once((Same(stage), types), partial(_value, stage.value, known))
        return stage if value is stage.value else replace(stage, value=value)

    stages = tuple(map(made, state.stages))
    changed = any(a is not b for a, b in zip(stages, state.stages, strict=True))
    return replace(state, stages=stages) if changed else state


_known = Remembered[Expr]()


def _value(value: Expr, dtypes: Mapping[str, str]) -> Expr:
    """A value without idle steps, of its own type still; itself where it has none."""
    found, dtype = without_idle_steps(value, dtypes), value_dtype(value, dtypes)
    if value_dtype(found, dtypes) != dtype:
        found = Cast(dtype, found)
    return value if found == value else found
