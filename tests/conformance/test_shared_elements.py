"""Sums of which several iterations add to one element, tensors that statements write in parts, and
single numbers: on every shipped chip that runs them, by reference, simulator and C."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product

import numpy as np
import pytest

import hwgen
from hwgen.codegen.processor.races import findings
from hwgen.errors import HwgenError
from hwgen.model.reference import run_reference
from hwgen.polyhedral.schedule.schedule import Schedule
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import load_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.samples import ROOT
from tests.sampling import THOROUGH, tiered

CHIPS = tuple(sorted(p.stem for p in (ROOT / "hw_specs").glob("*.yaml")))
QUICK = ("cpu_generic", "vta")


def workload(name: str, tensors: dict[str, str], *compute: str | Mapping[str, object]) -> Workload:
    return hwgen.workload(name, tensors=tensors, compute=compute)


def scattered(op: str, value: str, dtype: str, **loops: int) -> Workload:
    """A transposed convolution of one dimension, its taps and outputs under an update."""
    tensors = {"x": f"{dtype}[8]", "w": f"{dtype}[3]", "y": f"{dtype}[17]"}
    return workload("shared", tensors, {"do": f"y[2*i + r] {op} {value}", "loops": loops})


SHARED = {
    "floats": scattered("+=", "x[i] * w[r]", "float32", i=8, r=3),
    "the other order": scattered("+=", "x[i] * w[r]", "float32", r=3, i=8),
    "greatest": scattered("max=", "x[i] + w[r]", "float32", i=8, r=3),
    "least": scattered("min=", "max(x[i], w[r])", "int8", i=8, r=3),
    "two dimensions": workload(
        "image",
        {
            "x": "int8[5, 6, 8]", "w": "int8[4, 7, 8, 16]", "acc": "int32[16, 27, 16]",
            "y": "int8[16, 27, 16]",
        },
        {"do": "acc[3*i + r, 4*j + s, o] += x[i, j, c] * w[r, s, c, o]",
         "loops": {"i": 5, "j": 6, "o": 16, "r": 4, "s": 7, "c": 8}},
        "y[i, j, o] = int8(clip(acc[i, j, o] >> 7, -128, 127))",
    ),
    "elements left out": workload(
        "holes", {"x": "int32[4]", "z": "int32[8]", "y": "int32[8]"},
        {"do": "z[2*i] += x[i]", "loops": {"i": 4}}, "y[j] = z[j] + 1",
    ),
    "an output with elements left out": workload(
        "sparse", {"x": "int8[4]", "y": "int32[9]"},
        {"do": "y[2*i + 1] max= x[i]", "loops": {"i": 4}},
    ),
    "a histogram of digits": workload(
        "sums", {"x": "int32[4, 5]", "y": "int32[8]"}, {"do": "y[i + j] += x[i, j]",
        "loops": {"i": 4, "j": 5}},
    ),
}  # fmt: skip
PARTS = {
    "side by side": workload(
        "halves", {"a": "float32[4]", "b": "float32[6]", "y": "float32[10]"},
        {"do": "y[i] = a[i]", "loops": {"i": 4}}, {"do": "y[i + 4] = b[i]", "loops": {"i": 6}},
    ),
    "rows in turn": workload(
        "turns", {"a": "float32[4, 8]", "b": "float32[4, 8]", "y": "float32[8, 8]"},
        {"do": "y[2*i, j] = a[i, j] + 1.0", "loops": {"i": 4, "j": 8}},
        {"do": "y[2*i + 1, j] = b[i, j]", "loops": {"i": 4, "j": 8}},
    ),
    "written again": workload(
        "again", {"a": "float32[16]", "y": "float32[16]"},
        "y[i] = a[i] * 2.0", {"do": "y[i + 3] = a[i]", "loops": {"i": 8}},
        {"do": "y[i] = y[i] + 1.0", "loops": {"i": 5}},
    ),
    "read between": workload(
        "between", {"a": "float32[12]", "t": "float32[12]", "u": "float32[12]", "y": "float32[12]"},
        "t[i] = a[i] * 2.0", "u[i] = t[i] + 1.0", {"do": "t[i + 2] = a[i]", "loops": {"i": 6}},
        "y[i] = t[i] + u[i]",
    ),
    "part of them read": workload(
        "read", {"a": "float32[6]", "t": "float32[12]", "y": "float32[8]"},
        {"do": "t[i + 2] = a[i]", "loops": {"i": 6}},
        {"do": "y[i] = select(i >= 1 and i < 7, t[i + 1], 0.0)", "loops": {"i": 8}},
    ),
}  # fmt: skip
NUMBERS = {
    "a sum that others take": workload(
        "normal", {"x": "float32[40]", "k": "float32[]", "s": "float32", "y": "float32[40]"},
        "s += x[i]", "y[i] = x[i] - s * k",
    ),
    "the greatest as a result": workload(
        "most", {"x": "float32[5, 9]", "s": "float32[]"}, "s max= x[i, j]"
    ),
}  # fmt: skip
ALONE = frozenset({"npu_shared_buffer", "vtcm_two_banks"})
"""Chips without a processor."""


TAKEN = frozenset({"side by side", "a sum that others take"})
"""What these compute too."""
ALL = SHARED | PARTS | NUMBERS
CASES = [(c, n) for c, n in product(CHIPS, ALL) if c not in ALONE or n in TAKEN]
FEW = [*[(c, n) for c, n in CASES if c in QUICK][::3], *((c, n) for c, n in CASES if n in TAKEN)]


@cache
def chip(name: str) -> HardwareSpec:
    return load_hardware(ROOT / "hw_specs" / f"{name}.yaml")


@pytest.mark.parametrize(("name", "case"), tiered(CASES, FEW))
def test_it_runs(name: str, case: str) -> None:
    given = ALL[case]
    kernel = hwgen.build(given, chip(name))
    drawn = draw_inputs(given, 5)
    examine(kernel.compilation, drawn, "both")
    result = kernel(*(np.reshape(drawn[t.name], t.extents) for t in given.inputs))
    assert isinstance(result, np.ndarray)
    assert result.shape == given.outputs[0].extents


@pytest.mark.parametrize("name", sorted(ALONE))
def test_a_chip_without_a_processor_says_why(name: str) -> None:
    with pytest.raises(HwgenError) as caught:
        hwgen.build(SHARED["floats"], chip(name))
    assert (caught.value.code, caught.value.diagnostic.location is not None) == ("H302", True)


def test_the_reference_adds_up_what_meets() -> None:
    """Against loops that nobody could get wrong."""
    for case, given in SHARED.items():
        drawn = draw_inputs(given, 1)
        first = given.statements[1]
        held = run_reference(given, drawn, intermediates=True)[first.target.tensor]
        if "float" in str(held.dtype):
            continue
        least = {"+=": 0, "max=": -(1 << 31), "min=": 127}[first.op]
        wanted = np.full(held.shape, least, np.int64)
        fold = {"+=": np.add, "max=": np.maximum, "min=": np.minimum}[first.op]
        match case:
            case "least":
                for i, r in product(range(8), range(3)):
                    new = max(int(drawn["x"][i]), int(drawn["w"][r]))
                    wanted[2 * i + r] = fold(wanted[2 * i + r], new)
            case "two dimensions":
                x, w = (drawn[n].astype(np.int64) for n in "xw")
                for i, j, r, s in product(range(5), range(6), range(4), range(7)):
                    wanted[3 * i + r, 4 * j + s] += x[i, j] @ w[r, s]
            case "a histogram of digits":
                for i, j in product(range(4), range(5)):
                    wanted[i + j] += int(drawn["x"][i, j])
            case _:
                step = 1 if case.startswith("an output") else 0
                for i in range(4):
                    wanted[2 * i + step] = fold(wanted[2 * i + step], int(drawn["x"][i]))
        np.testing.assert_array_equal(held, wanted.astype(held.dtype), case)


IMAGE = SHARED["two dimensions"]
REFUSED = {
    "s.parallel('i')": "H412",
    "s.parallel('j')": "H412",
    "s.reorder('i', 'j', 'o', 'c', 's', 'r'); s.split('i', factor=2); s.parallel('i_o')": "H412",
    "s.reorder('i', 'r', 'o', 'c', 'j', 's'); s.fuse('j', 's'); s.vectorize('j_s_f')": "H412",
    "s.fuse('i', 'j'); s.parallel('i_j_f')": "H412",
    "s.compute_at('acc_0', 'j')": "H411",
    "s.compute_at('acc_0', 'o')": "H411",
    "s.compute_at('acc', 'y_i')": "H411",
    "s.rfactor('acc', 'c')": "H413",
    "s.rfactor('acc', 'i')": "H413",
    "s.decompose_reduction('acc', 'c')": "H413",
}
TAKES = (
    "s.parallel('o')",
    "s.reorder('o', 'c', 's', 'r', 'i', 'j')",
    "s.reorder('i', 'j', 's', 'c', 'o', 'r'); s.unroll('r')",
    "s.reorder('c', 'o', 'r', 's', 'i', 'j'); s.vectorize('j')",
    "s.reorder('i', 'j', 'r', 's', 'c', 'o'); s.vectorize('o')",
    "s.split('i', factor=2); s.split('o', factor=3)",
    "s.fuse('i', 'j'); s.fuse('r', 's')",
    "s.reorder('o', 'i', 'j', 'r', 's', 'c'); s.compute_at('acc_0', 'o'); s.parallel('o')",
    "s.set_scope('acc', 'stack')",
    "s.cache_read('acc', 'heap')",
    "s.cache_read('x', 'stack')",
    "s.transform_layout('acc', '[i, j, o] -> [o, i, j]')",
    "s.pad('c', 5)",
)


def scripted(edits: str) -> Schedule:
    schedule = Schedule(IMAGE, chip("cpu_generic"))
    schedule.replay("\n".join(edits.split("; ")))
    return schedule


@pytest.mark.parametrize("edits", REFUSED)
def test_loops_over_shared_elements_stay_in_order(edits: str) -> None:
    with pytest.raises(HwgenError) as caught:
        scripted(edits)
    assert caught.value.code == REFUSED[edits]


@pytest.mark.parametrize("edits", tiered(TAKES, TAKES[::6]))
def test_other_edits_are_right(edits: str) -> None:
    text = scripted(edits).trace()
    for auto in (False, True):
        kernel = hwgen.build(IMAGE, chip("cpu_generic"), script=text, auto=auto)
        examine(kernel.compilation, draw_inputs(IMAGE, 2), "both")


SMALL = {
    "a part written again": PARTS["read between"],
    "a part made from itself": workload(
        "again", {"a": "float32[12]", "t": "float32[12]", "y": "float32[12]"},
        "t[i] = a[i] * 2.0", {"do": "t[i] = t[i] + 1.0", "loops": {"i": 6}}, "y[i] = t[i] + 1.0",
    ),
    "a sum that is read": workload(
        "read", {"a": "float32[5]", "t": "float32[11]", "y": "float32[11]"},
        {"do": "t[2*i + r] += a[i]", "loops": {"i": 5, "r": 3}}, "y[i] = t[i] + 1.0",
    ),
    "a sum that is written over": workload(
        "over", {"a": "float32[5]", "y": "float32[11]"},
        {"do": "y[2*i + r] += a[i]", "loops": {"i": 5, "r": 3}},
        {"do": "y[i] = a[i]", "loops": {"i": 3}},
    ),
}  # fmt: skip


def edits_of(given: Workload, hardware: HardwareSpec) -> list[str]:
    """Each edit of a tensor, or of a loop, by itself."""
    schedule = Schedule(given, hardware)
    tensors, loops = [s.tensor for s in schedule.state.stages], schedule.loops()
    of_tensors = [
        f"s.{edit.format(t)}"
        for t in tensors
        for edit in (
            "compute_inline('{}')", "cache_write('{}', 'stack')", "cache_read('{}', 'stack')",
            "set_scope('{}', 'stack')", f"rfactor('{{}}', '{loops[-1]}')",
            "transform_layout('{}', '[i] -> [i // 2, i % 2]')", "storage_align('{}', 0, 16, 0)",
            "double_buffer('{}', 2)", *(f"compute_at('{{}}', '{n}')" for n in loops),
        )
    ]  # fmt: skip
    of_loops = [
        f"s.{edit.format(n)}"
        for n in loops
        for edit in ("pad('{}', 16)", "split('{}', factor=4)", "parallel('{}')", "vectorize('{}')")
    ]
    return of_tensors + of_loops


EDITED = [(c, s) for c in ("cpu_generic", "cuda_generic") for s in SMALL]


@pytest.mark.parametrize(("name", "case"), tiered(EDITED, EDITED[1 : len(SMALL)]))
def test_every_edit_is_right_or_refused(name: str, case: str) -> None:
    given, found = SMALL[case], dict[str, int]()
    for script, auto in product(edits_of(given, chip(name)), (False, True)):
        try:
            kernel = hwgen.build(given, chip(name), script=script, auto=auto)
        except HwgenError as error:
            found[error.code] = found.get(error.code, 0) + 1
            continue
        examine(kernel.compilation, draw_inputs(given, 1))
        found["right"] = found.get("right", 0) + 1
    assert {*found} <= {"right", "H411", "H412", "H413", "H414", "H415", "H417"}
    assert found["right"] > 20


@THOROUGH
def test_threads_share_no_elements() -> None:
    """The checker of programs, which knows nothing of trees, finds none that do."""
    kernel = hwgen.build(IMAGE, chip("cuda_generic"))
    (code,) = kernel.compilation.program.codes
    assert findings(code, chip("cuda_generic")) == []
