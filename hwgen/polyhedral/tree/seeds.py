"""start_from: a sum starts from what is added to it afterwards, a maximum from its first term.

`acc += x * w; y = f(acc + bias)` is `acc = bias; acc += x * w; y = f(acc)` where sums wrap around
and so may be formed in any order. Chips without an adder behind their accumulators need the second
form.
"""

from __future__ import annotations

from dataclasses import replace

from hwgen.polyhedral.normal_form import normalise
from hwgen.polyhedral.tree.edit import check_tensor, find_stage, main_site, refuse
from hwgen.polyhedral.tree.loop_tree import RUNNING, LoopTree, Stage
from hwgen.polyhedral.unify import flatten, rebuild
from hwgen.spec.expression import (
    Access,
    Call,
    Const,
    Expr,
    Name,
    names,
    rewrite,
    substitute,
    taken_out,
    walk,
)

WRAPPING = ("int32", "int64", "uint32", "uint64")
"""Types whose sums are the same in any order, and are formed in no wider one."""


def start_from(state: LoopTree, tensor: str, of: str) -> LoopTree:
    """The sums of a tensor start from what their only reader adds to them; the greatest or least of
    some elements from the first of these.

    Raises:
        HwgenError: H413, H414.
    """
    stage = find_stage(state, tensor)
    check_tensor(state, of)
    if (
        stage.op in ("max=", "min=")
        and isinstance(stage.value, Access)
        and stage.value.tensor == of
    ):
        return _first_term(state, stage, stage.value)
    if stage.ordered and (begun := _first_value(stage, of)) is not None:
        return state.with_stages(tensor, begun)
    _check(state, stage, of)
    (reader,) = state.readers(tensor)
    dtypes = {t.name: t.dtype for t in state.tensors}
    # What changes no number may be around them.
    ways = (reader.value, normalise(reader.value, dtypes))
    taken = next((t for v in ways if (t := _take(v, tensor, of)) is not None), None)
    if taken is None:
        raise refuse(
            f"{of} is not added to the sums of {tensor}",
            str(reader),
            f"a term {tensor}[...] + {of}[...] of its only reader",
            "start from a tensor that is added to the finished sums",
        )
    value, (sums, addend) = taken
    own = [i.name if isinstance(i, Name) else "" for i in stage.target.indices]
    theirs = [i.name if isinstance(i, Name) else "" for i in sums.indices]
    over = {n for i in addend.indices for n in names(i)}
    if "" in own or "" in theirs or not over <= set(theirs) or len(set(theirs)) < len(theirs):
        raise refuse(
            f"{of} does not move as the sums of {tensor} do",
            f"{sums} + {addend}",
            "one element for each sum",
            "add it afterwards",
        )
    table = {mine: Name(name) for mine, name in zip(theirs, own, strict=True)}
    seed = Access(of, tuple(substitute(i, table) for i in addend.indices))
    state = state.with_stages(tensor, replace(stage, seed=seed))
    return state.with_stages(reader.tensor, replace(reader, value=value))


def _first_value(stage: Stage, of: str) -> Stage | None:
    """A stage whose elements take new values in order, that reads what they begin with in its first
    iteration, with that as its seed."""
    seeds: list[Access] = []

    def begun(node: Expr) -> Expr:
        match node:
            case Call("select", (_, Access(tensor, _) as first, running)):
                if tensor == of and running == RUNNING:
                    seeds.append(first)
                    return RUNNING
            case _:
                pass
        return node

    value = rewrite(stage.value, begun)
    return replace(stage, value=value, seed=seeds[0]) if len({*seeds}) == 1 else None


def _first_term(state: LoopTree, stage: Stage, value: Access) -> LoopTree:
    """A greatest or least element starts from the first of those that it is of."""
    table = {n: Const(0) for n, _ in stage.reduction}
    seed = Access(value.tensor, tuple(substitute(i, table) for i in value.indices))
    return state.with_stages(stage.tensor, replace(stage, seed=seed))


def _check(state: LoopTree, stage: Stage, of: str) -> None:
    found, allowed = "", ""
    tensor = state.tensor[stage.tensor]
    if stage.op != "+=" or stage.seed is not None:
        found, allowed = str(stage), "a sum that starts from zero"
    elif tensor.dtype not in WRAPPING or state.tensor[of].dtype != tensor.dtype:
        found = f"{tensor.dtype} and {state.tensor[of].dtype}"
        allowed = f"sums that wrap around ({', '.join(WRAPPING)}), and an addend of their type"
    elif of == stage.tensor or not _is_earlier(state, of, stage):
        found, allowed = f"{of} is computed later", "an input, or what is computed before"
    elif tensor.role == "output" or len(state.readers(stage.tensor)) != 1:
        found = ", ".join(s.tensor for s in state.readers(stage.tensor)) or "no reader"
        allowed = "sums that one stage reads"
    elif main_site(state, stage.tensor).block.part != "whole":
        found, allowed = "its initialisation is already apart", "start_from first"
    if allowed:
        message = f"the sums of {stage.tensor} cannot start from {of}"
        raise refuse(message, found, allowed, "add it afterwards, as it is")


def _is_earlier(state: LoopTree, of: str, stage: Stage) -> bool:
    """Whether a tensor is computed before a stage."""
    names = [s.tensor for s in state.stages]
    return of not in names or names.index(of) < names.index(stage.tensor)


def _take(value: Expr, tensor: str, of: str) -> tuple[Expr, tuple[Access, Access]] | None:
    """A value without the addend, with the sum and the addend; None where there is none."""
    if sum(isinstance(n, Access) and n.tensor == tensor for n in walk(value)) != 1:
        return None
    terms = flatten("+", value)
    sums = next((t for t in terms if isinstance(t, Access) and t.tensor == tensor), None)
    if len(terms) == 1 or sums is None:
        return taken_out(value, lambda part: _take(part, tensor, of))
    for n, term in enumerate(terms):
        if isinstance(term, Access) and term.tensor == of:
            return rebuild("+", (*terms[:n], *terms[n + 1 :])), (sums, term)
    return None
