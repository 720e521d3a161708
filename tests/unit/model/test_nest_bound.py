"""The bound on a processor's cycles: what must be moved, and no more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwgen.passes.nest_pipeline import compile_nest
from hwgen.polyhedral.tree import cost as nest_cost
from hwgen.spec.expression import Access, Binary, Const, Expr, Name
from hwgen.spec.load import load_hardware, parse_workload

CPU = load_hardware(Path(__file__).parents[3] / "hw_specs" / "cpu_generic.yaml")


def bytes_moved(x: str, compute: str) -> float:
    """Of a workload with one input and 64 x 16 int8 outputs, by its bound."""
    data = {"name": "w", "tensors": {"x": x, "y": "int8[64, 16]"}, "compute": [compute]}
    assert CPU.processor is not None
    bound = compile_nest(parse_workload(data), CPU).bound.cycles
    return bound * CPU.processor.memory_bytes_per_cycle


@pytest.mark.parametrize(
    ("x", "compute", "read"),
    [
        ("int8[64, 16]", "y[i, j] = x[i, j]", 1024),
        ("int8[1000, 16]", "y[i, j] = x[i + 3, j]", 1024),
        ("int8[64, 31]", "y[i, j] = x[i, 2*j]", 1024),
        ("int8[79, 16]", "y[i, j] = x[i + j, j]", 79 * 1),
        ("int8[64, 64]", "y[i, j] = x[i, i]", 64),
        ("int8[64, 16]", "y[i, j] = select(i < 3, x[i, j], 0)", 0),
    ],
)
def test_only_what_is_read_for_certain_counts(x: str, compute: str, read: int) -> None:
    assert CPU.processor is not None
    rate = CPU.processor.memory_bytes_per_cycle
    assert bytes_moved(x, compute) == pytest.approx(1024 + read, abs=rate)


def forms() -> st.SearchStrategy[Expr]:
    def term(name: str, factor: int) -> Expr:
        return Binary("*", Const(factor), Name(name))

    terms = st.lists(st.tuples(st.sampled_from("ijk"), st.integers(-3, 3)), max_size=3)

    def total(parts: list[tuple[str, int]]) -> Expr:
        result: Expr = Const(0)
        for name, factor in parts:
            result = Binary("+", result, term(name, factor))
        return result

    return terms.map(total)


@given(st.lists(forms(), min_size=1, max_size=3), st.tuples(*[st.integers(1, 5)] * 3))
def test_never_more_than_there_are(indices: list[Expr], sizes: tuple[int, int, int]) -> None:
    from hwgen.model.integers import evaluate_rows

    extents = dict(zip("ijk", sizes, strict=True))
    grid = np.meshgrid(*(np.arange(n) for n in sizes), indexing="ij")
    loops = {n: g.ravel() for n, g in zip("ijk", grid, strict=True)}
    rows = [np.broadcast_to(evaluate_rows(i, loops), loops["i"].shape) for i in indices]
    touched = len(set(zip(*(r.tolist() for r in rows), strict=True)))
    found = nest_cost._distinct(Access("x", tuple(indices)), extents)  # pyright: ignore[reportPrivateUsage]
    assert 1 <= found <= touched
