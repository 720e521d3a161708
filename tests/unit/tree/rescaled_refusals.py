"""Where an extremum may not run on while sums are rescaled, as `test_refusals` runs them."""

from __future__ import annotations

from hwgen.spec.workload import Workload
from tests.unit.tree.toy import EXPS, MAX, ROWSUM, make

TENSORS = {"x": "T[4, 8]", "t": "T[4]", "e": "T[4, 8]", "z": "T[4]"}
TOP = "t[i] max= x[i, j]"
EXP = "e[i, j] = exp(x[i, j] - t[i])"
SUM = "z[i] += e[i, j]"


def _case(
    compute: list[str], found: str, *, dtype: str = "float32", setup: str = "", **more: str
) -> tuple[Workload, str, str, str, str]:
    """Statements of which the first is the extremum, and what is found to be wrong."""
    tensors = {n: t.replace("T", dtype) for n, t in {**TENSORS, **more}.items()}
    used = {n: t for n, t in tensors.items() if any(f"{n}[" in c for c in compute)}
    return make("drawn", used, compute), "cpu", f"{setup}s.rescale('t', 4)", "H413", found


OF_RESCALING: dict[str, list[tuple[Workload, str, str, str, str]]] = {
    "rescale": [
        (EXPS, "cpu", "s.rescale('y', 12)", "H414", "y"),
        (EXPS, "cpu", "s.rescale('top', 48)", "H413", "48"),
        (EXPS, "cpu", "s.rescale('top', 0)", "H413", "0"),
        (ROWSUM, "cpu", "s.rescale('b', 4)", "H413", "b[i] += a[i, k]"),
        (MAX, "cpu", "s.rescale('m', 4)", "H413", "int32 m"),
        (
            EXPS,
            "cpu",
            "s.split('e_j', factor=4)\ns.rescale('top', 12)",
            "H413",
            "j = e_j_o * 4 + e_j_i, whole block",
        ),
        (
            EXPS,
            "cpu",
            "s.decompose_reduction('z', 'z_j')\ns.rescale('top', 12)",
            "H413",
            "j = z_j, update block",
        ),
        (EXPS, "cpu", "s.merge('e_i', 'i')\ns.rescale('top', 12)", "H413", "it shares loops"),
        # Integers, and a type that the extremum is rounded to.
        _case([TOP, "e[i, j] = x[i, j] - t[i]", SUM], "int32 t", dtype="int32"),
        _case([TOP, "e[i, j] = exp(float32(x[i, j]) - t[i])", SUM], "float16 x", x="float16[4, 8]"),
        # Terms of another form: g(x, t) * g(t, u) is not g(x, u).
        _case([TOP, "e[i, j] = tanh(x[i, j] - t[i])", SUM], "e[i, j] = tanh(x[i, j] - t[i])"),
        _case([TOP, "e[i, j] = exp(x[i, j] + t[i])", SUM], "e[i, j] = exp(x[i, j] + t[i])"),
        _case([TOP, "e[i, j] = exp(x[i, j] - t[i]) + 1", SUM], "e[i, j] = exp(x[i, j] - t[i]) + 1"),
        _case(
            [TOP, "e[i, j] = exp((x[i, j] - t[i]) * w[j])", SUM],
            "e[i, j] = exp((x[i, j] - t[i]) * w[j])",
            w="float32[8]",
        ),
        # A factor above 1, or of unknown sign.
        _case([TOP, "e[i, j] = exp(t[i] - x[i, j])", SUM], "e[i, j] = exp(t[i] - x[i, j])"),
        _case(
            ["t[i] min= x[i, j]", EXP, SUM],
            "e[i, j] = exp(x[i, j] - t[i])",
        ),
        _case(
            [TOP, "e[i, j] = exp((x[i, j] - t[i]) * w[i])", SUM],
            "e[i, j] = exp((x[i, j] - t[i]) * w[i])",
            w="float32[4]",
        ),
        # Sums that are not linear in the terms.
        _case([TOP, EXP, "z[i] += e[i, j] * e[i, j]"], "z[i] += e[i, j] * e[i, j]"),
        _case([TOP, EXP, "z[i] += e[i, j] + 1"], "z[i] += e[i, j] + 1"),
        _case([TOP, EXP, "z[i] += sqrt(e[i, j])"], "z[i] += sqrt(e[i, j])"),
        _case([TOP, EXP, "z[i] max= e[i, j]"], "z[i] max= e[i, j] reads e"),
        # Other readers, of the terms and of the extremum.
        _case(
            [TOP, EXP, SUM, "y[i, j] = e[i, j] / z[i]"],
            "y[i, j] = e[i, j] / z[i] reads e",
            y="T[4, 8]",
        ),
        _case(
            [TOP, EXP, SUM, "y[i] = z[i] + t[i]"],
            "it is read by e, y",
            y="T[4]",
        ),
        _case([TOP, EXP], "e is kept"),
    ],
}  # fmt: skip
