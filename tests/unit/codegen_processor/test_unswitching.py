"""Choices by place, made outside of the loops that they do not depend on: the same numbers, each
element's updates in the same order."""

from __future__ import annotations

import numpy as np
import pytest

from hwgen.codegen.nodes import Assign, Body, If, Loop, nodes
from hwgen.codegen.processor import lower
from hwgen.model.c_compiler import have_compiler
from hwgen.model.native import compile_portable
from hwgen.model.reference import random_inputs
from hwgen.passes.nest_pipeline import compile_nest
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.load import make_workload
from hwgen.spec.processor import Processor
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.unit.codegen_processor import samples

INSIDE = "h >= 1 and h < 7 and v >= 1 and v < 6"


def convolution(dtype: str = "int8", total: str = "int32", outputs: int = 8) -> Workload:
    tensors = {"x": f"{dtype}[6, 5, 3]", "xp": f"{dtype}[8, 7, 3]", "w": f"{dtype}[3, 3, 3, O]"}
    return make_workload(
        "padded",
        sizes={"O": outputs},
        tensors={**tensors, "y": f"{total}[6, 5, O]"},
        compute=[
            f"xp[h, v, c] = select({INSIDE}, x[h - 1, v - 1, c], 5)",
            "y[i, j, o] += xp[i + r, j + s, c] * w[r, s, c, o]",
        ],
    )


def as_it_is(body: Body, _: Processor) -> Body:
    return body


@pytest.mark.parametrize("outputs", [1, 5, 8, 40])
@pytest.mark.parametrize("types", [("int8", "int32"), ("float32", "float32")])
def test_padding_is_read_in_place(types: tuple[str, str], outputs: int) -> None:
    """No copy of the input but of the part that a tile needs, in the type of the sums, and no
    choice in the innermost loop."""
    workload = convolution(*types, outputs)
    found = compile_nest(workload, samples.cpu())
    if outputs > 1:
        assert "xp" not in found.source.c.replace("xp_stack", "")
        assert ("int32_t *xp_stack" in found.source.c) == (types[0] == "int8")
        assert "?" not in found.source.c.partition("{\n  ")[2].replace("a < b ?", "")
    for seed in (1, 2):
        examine(found, draw_inputs(workload, seed), "both")


@pytest.mark.skipif(not have_compiler(), reason="no C compiler")
@pytest.mark.parametrize("unrolled", ["i", "r", "s"])
def test_sums_of_floats_keep_their_order(unrolled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is unrolled moves outwards only where it does not carry the sum."""
    workload = convolution("float32", "float32")
    s = Schedule(workload, samples.cpu())
    s.compute_inline("xp")
    s.reorder("j", *(n for n in ("r", "s", "i") if n != unrolled), "y_c", unrolled, "o")
    s.unroll(unrolled)
    s.vectorize("o")
    inputs = random_inputs(workload, 3)
    program = samples.program(s)
    moved = [n for n in nodes(program.body) if isinstance(n, If) and n.otherwise]
    first = [b.variable for n in moved for b in n.then if isinstance(b, Loop)]
    assert first == (["y_c", "y_c"] if unrolled == "i" else ["y_c", "o"])
    found = compile_portable(samples.source(s), samples.cpu()).run(inputs)["y"]
    monkeypatch.setattr(lower, "unswitched", as_it_is)
    assert not any(isinstance(n, If) for n in nodes(samples.program(s).body))
    plain = compile_portable(samples.source(s), samples.cpu()).run(inputs)["y"]
    assert np.array_equal(found, plain)


def test_several_choices_make_two_versions() -> None:
    """However many there are in one statement."""
    reads = [f"xp[i + {r}, j + {s}, c]" for r in range(3) for s in range(3)]
    workload = make_workload(
        "stencil",
        tensors={"x": "int32[6, 5, 16]", "xp": "int32[8, 7, 16]", "y": "int32[6, 5, 16]"},
        compute=[
            f"xp[h, v, c] = select({INSIDE}, x[h - 1, v - 1, c], 5)",
            {"do": f"y[i, j, c] = {' + '.join(reads)}", "loops": {"i": 6, "j": 5, "c": 16}},
        ],
    )
    found = compile_nest(workload, samples.cpu())
    (code,) = found.program.codes
    assert sum(isinstance(n, Assign) for n in nodes(code.body)) == 2
    examine(found, draw_inputs(workload, 4), "both")
