"""Extrema that run on while sums are rescaled: equal to the reference whatever the blocks are."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwgen.completing import complete_script
from hwgen.errors import HwgenError
from hwgen.model.compiled import have_compiler
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.polyhedral.tree.aliases import shared_homes
from hwgen.polyhedral.tree.legality import check
from hwgen.polyhedral.tree.loop_tree import Block, Loop, LoopTree, Node, blocks, map_loops
from hwgen.spec.expression import Binary, Const, Name
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine, rescaled_terms
from hwgen.verify.rounding import Leeway, rounding_bounds
from tests.sampling import QUICK, THOROUGH, examples
from tests.unit.tree.toy import EXPS, chip, make, start

ENGINE = "both" if have_compiler() else "python"
FEW = settings(
    max_examples=examples(6),
    deadline=None,
    derandomize=True,
    suppress_health_check=(HealthCheck.too_slow,),
)

SOURCES = {
    "input": [],
    "product": ["s[i, j] += q[i, d] * k[j, d]"],
    "scaled": ["r[i, j] += q[i, d] * k[j, d]", "s[i, j] = r[i, j] * 0.5"],
    "masked": ["r[i, j] += q[i, d] * k[j, d]", "s[i, j] = select(j <= i, r[i, j], -inf)"],
}
TERMS = {
    "max": ["top[i] max= s[i, j]", "e[i, j] = exp(s[i, j] - top[i])"],
    "scaled": ["top[i] max= s[i, j]", "e[i, j] = exp((s[i, j] - top[i]) * rsqrt(float32(3)))"],
    "min": ["top[i] min= s[i, j]", "e[i, j] = exp((top[i] - s[i, j]) / 2)"],
}
SUMS = {
    "both": ["z[i] += e[i, j]", "y[i, c] += e[i, j] * v[j, c]"],
    "divided": ["z[i] += e[i, j]", "p[i, j] = e[i, j] / z[i]", "y[i, c] += p[i, j] * v[j, c]"],
    "inside": ["z[i] += e[i, j]", "y[i, c] += v[j, c] * (e[i, j] / z[i])"],
    "afterwards": ["z[i] += e[i, j]", "a[i, c] += e[i, j] * v[j, c]", "y[i, c] = a[i, c] / z[i]"],
}


def softmax(rows: int, length: int, source: str, terms: str, sums: str) -> Workload:
    compute = [*SOURCES[source], *TERMS[terms], *SUMS[sums]]
    shapes = {"q": (rows, 3), "k": (length, 3), "v": (length, 2), "y": (rows, 2), "a": (rows, 2)}
    shapes |= dict.fromkeys("rsep", (rows, length)) | dict.fromkeys(("top", "z"), (rows,))
    used = {n: x for n, x in shapes.items() if re.search(rf"\b{n}\[", " ".join(compute))}
    tensors = {n: f"float32[{', '.join(map(str, x))}]" for n, x in used.items()}
    return make("softmax", tensors, compute)


@given(
    st.integers(1, 5),
    st.integers(2, 17),
    st.integers(1, 16),
    st.sampled_from([*SOURCES]),
    st.sampled_from([*TERMS]),
    st.sampled_from([*SUMS]),
)
@FEW
def test_blocks_of_any_size_on_a_processor(
    rows: int, length: int, size: int, source: str, terms: str, sums: str
) -> None:
    if source == "masked" and terms == "min":
        source = "scaled"  # Of minus infinity as the least element there are no terms.
    workload = softmax(rows, length, source, terms, sums)
    script = f"s.rescale('top', {min(size, length - 1)})\n"
    made = compile_nest(workload, chip("cpu"), script, auto=False)
    examine(made, draw_inputs(workload, length), ENGINE)


@THOROUGH
@given(
    st.integers(1, 40),
    st.integers(2, 70),
    st.integers(1, 69),
    st.sampled_from(("product", "scaled")),
    st.sampled_from(("max", "scaled")),
    st.sampled_from([*SUMS]),
)
@FEW
def test_blocks_of_any_size_on_units(
    rows: int, length: int, size: int, source: str, terms: str, sums: str
) -> None:
    """Calls are found for all of it, also where the last block is shorter."""
    size = min(size, length - 1)
    if source == "scaled" and length % size:
        size = 1  # No call chooses between an element and none, past the end of the last block.
    workload = softmax(rows, length, source, terms, sums)
    script = f"s.rescale('top', {size})\n"
    made = complete_script(workload, chip("npu"), script, options=QUICK)
    examine(made, draw_inputs(workload, length), ENGINE)


def test_a_mask_over_whole_blocks() -> None:
    """The least finite number is a reference point where minus infinity is none."""
    workload = make(
        "masked",
        {"x": "float32[3, 8]", "top": "float32[3]", "e": "float32[3, 8]", "z": "float32[3]"},
        EXPS_OF,
    )
    made = compile_nest(workload, chip("cpu"), "s.rescale('top', 2)\n", auto=False)
    inputs = {"x": np.full((3, 8), -np.inf, np.float32)}
    inputs["x"][0, 5:] = (1, 2, 3)
    inputs["x"][1, 0] = -1e38
    inputs["x"][2, 3] = 4
    found = examine(made, inputs, ENGINE).outputs["z"]
    expected = np.exp(inputs["x"] - inputs["x"].max(1, keepdims=True)).sum(1)
    assert np.allclose(found, expected)


EXPS_OF = ["top[i] max= x[i, j]", "e[i, j] = exp(x[i, j] - top[i])", "z[i] += e[i, j]"]


def test_blocks_follow_each_other() -> None:
    s = start(EXPS)
    loop = s.rescale("top", 12)
    with pytest.raises(HwgenError, match=r"H412[^\n]*\n[^\n]*top_run_init\["):
        s.parallel(loop)
    assert "top was rescaled" in str(_error(lambda: s.compute_root("top")))


def _error(edit: object) -> HwgenError:
    assert callable(edit)
    with pytest.raises(HwgenError) as found:
        edit()
    return found.value


# States broken by hand: the check knows nothing of the primitive.


def _legal(state: LoopTree) -> bool:
    try:
        shared_homes(state, check(state), state.storage)
    except HwgenError as error:
        if error.code != "H411":
            raise
        return False
    return True


def _body(state: LoopTree, order: list[str]) -> LoopTree:
    """The nests of the loop over blocks in another order."""

    def sorted_as(loop: Loop) -> tuple[Node, ...]:
        if len(loop.body) < 2:
            return (loop,)
        named = {next(iter(blocks((n,)))).name: n for n in loop.body}
        return (replace(loop, body=tuple(named[n] for n in order)),)

    return replace(state, root=map_loops(state.root, sorted_as))


ORDER = ["top_run_init", "top_run", "e_fade", "e", "z_run_init", "z_run"]


@pytest.mark.parametrize(
    ("order", "legal"),
    [
        (ORDER, True),
        (["top_run_init", "top_run", "e", "e_fade", "z_run_init", "z_run"], True),
        (["top_run", "top_run_init", *ORDER[2:]], False),
        (["top_run_init", "e_fade", "top_run", *ORDER[3:]], False),
        (["top_run_init", "e", "top_run", "e_fade", *ORDER[4:]], False),
        ([*ORDER[:4], "z_run", "z_run_init"], False),
        ([*ORDER[:2], "z_run_init", "e_fade", "e", "z_run"], False),
    ],
)
def test_the_order_within_a_block(order: list[str], legal: bool) -> None:
    s = start(EXPS)
    s.rescale("top", 12)
    assert _legal(_body(s.state, order)) == legal


@pytest.mark.parametrize(("tensor", "kept", "legal"), [("top", 2, True), ("top", 1, False)])
def test_the_extremum_before_is_kept(tensor: str, kept: int, legal: bool) -> None:
    s = start(EXPS)
    s.rescale("top", 12)
    storage = s.state.storage[f"{tensor}_run"]
    turn = Binary("%", Name("d0"), Const(kept))
    broken = s.state.with_storage(replace(storage, layout=(turn, *storage.layout[1:])))
    assert _legal(broken) == legal


def test_blocks_that_are_begun_late() -> None:
    """What running elements begin with, after the loop over blocks: nothing is there to read."""
    s = start(EXPS)
    s.rescale("top", 12)
    first, *rest = s.state.root
    assert isinstance(first, Loop)
    assert isinstance(first.body[0], Block)
    assert not _legal(replace(s.state, root=(*rest, first)))


def test_more_roundings_are_allowed_for_more_blocks() -> None:
    workload = softmax(3, 12, "product", "max", "divided")
    made = compile_nest(workload, chip("cpu"), "s.rescale('top', 3)\n", auto=False)
    assert rescaled_terms(made.lowering)["e"] == 4
    inputs = draw_inputs(workload, 1)
    plain = rounding_bounds(workload, inputs)["y"].error
    few, many = (rounding_bounds(workload, inputs, Leeway({"e": n}))["y"].error for n in (1, 12))
    assert (plain < few).all()
    assert (few < many).all()
    assert (many < 1e-4).all()
