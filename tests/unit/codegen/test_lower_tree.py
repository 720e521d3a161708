"""Schedules that are lowered as the trees that they are: right, or refused with a code."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from textwrap import dedent
from unittest.mock import Mock

import pytest

from hwgen import HwgenError, Schedule, load_hardware
from hwgen.codegen.lower import program as lowering
from hwgen.codegen.lower.images import image_of
from hwgen.passes.kernel import Kernel
from hwgen.passes.trees import compile_tree
from hwgen.polyhedral.scop import View
from hwgen.polyhedral.tree.loop_tree import Tensor
from hwgen.spec.affine import Affine
from hwgen.spec.expression import evaluate
from hwgen.spec.load import parse_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.conftest import Mutate

ROOT = Path(__file__).resolve().parents[3]
NPU = load_hardware(ROOT / "hw_specs" / "npu_shared_buffer.yaml")

CACHED_ADD = """
a_local = s.cache_read('a', 'local')
b_local = s.cache_read('b', 'local')
c_local = s.cache_write('c', 'local')
s.tensorize(a_local, 'load')
s.tensorize(b_local, 'load')
s.tensorize(c_local, 'add')
s.tensorize('c', 'store')
"""


def scheduled(script: str, compute: list[str], **tensors: str) -> Schedule:
    data: dict[str, object] = {"name": "k", "tensors": tensors, "compute": compute}
    return Schedule(parse_workload(data), NPU).replay(dedent(script))


def add(script: str) -> Schedule:
    tensors = dict.fromkeys("abc", "float32[12, 5]")
    return scheduled(CACHED_ADD + script, ["c[m, n] = a[m, n] + b[m, n]"], **tensors)


def right(schedule: Schedule) -> Kernel:
    """The kernel of a schedule, which computes what it should."""
    compilation = compile_tree(schedule)
    examine(compilation, draw_inputs(schedule.workload, 1), "both")
    return compilation


def code(action: object, *arguments: object) -> str:
    """The code with which a call is refused."""
    assert callable(action)
    with pytest.raises(HwgenError) as caught:
        action(*arguments)
    return caught.value.code


# Several calls for a stage


def test_operands_of_one_name_that_calls_compute_first() -> None:
    script = """
    y_local = s.cache_write('y', 'local')
    x_local = s.cache_read('x', 'local')
    y_init = s.decompose_reduction(y_local, 'm')
    s.tensorize(y_init, 'zero')
    s.tensorize(y_local, 'mul_imm', 'exp', 'row_sum')
    s.tensorize('y', 'store')
    s.tensorize(x_local, 'load')
    """
    right(scheduled(script, ["y[m] += exp(x[m, n] * 0.5)"], x="float32[3, 7]", y="float32[3]"))


def test_a_result_that_goes_off_the_chip_at_once() -> None:
    script = """
    a_local = s.cache_read('a', 'local')
    b_local = s.cache_read('b', 'local')
    s.tensorize(a_local, 'load')
    s.tensorize(b_local, 'load')
    s.tensorize('c', 'add', 'relu', 'store')
    """
    tensors = dict.fromkeys("abc", "float32[4, 5]")
    right(scheduled(script, ["c[m, n] = max(a[m, n] + b[m, n], 0)"], **tensors))


def test_a_sum_that_no_call_begins() -> None:
    script = """
    y_local = s.cache_write('y', 'local')
    x_local = s.cache_read('x', 'local')
    s.tensorize(y_local, 'row_sum')
    s.tensorize('y', 'store')
    s.tensorize(x_local, 'load')
    """
    schedule = scheduled(script, ["y[m] += x[m, n]"], x="float32[3, 7]", y="float32[3]")
    assert code(compile_tree, schedule) == "H424"


def test_a_sum_that_several_calls_begin() -> None:
    script = """
    x_local = s.cache_read('x', 'local')
    y_init = s.decompose_reduction('y', 'm')
    s.tensorize(y_init, 'zero', 'store')
    s.tensorize('y', 'row_sum')
    s.tensorize(x_local, 'load')
    """
    schedule = scheduled(script, ["y[m] += x[m, n]"], x="float32[3, 7]", y="float32[3]")
    assert code(compile_tree, schedule) == "H422"


# Places


def test_a_place_that_a_later_stage_takes_too_early() -> None:
    assert code(add, "s.alias('a_local', 'b_local')") == "H411"
    assert code(add, "s.alias('b_local', 'a_local')") == "H411"
    right(add("s.alias('c_local', 'a_local')"))
    right(add("s.alias('a_local', 'c_local')"))


def test_a_sum_is_not_in_the_place_of_what_it_adds() -> None:
    """What it starts from is there before an iteration reads, even where there is but one."""
    script = "x_local = s.cache_read('x', 'local')\ny_local = s.cache_write('y', 'local')"
    tensors = dict.fromkeys("xy", "float32[6, 1]")
    total = scheduled(script, ["y[m, o] += x[m, n]"], **tensors)
    assert code(total.alias, "x_local", "y_local") == "H411"
    assert code(total.alias, "y_local", "x_local") == "H411"
    value = scheduled(script, ["y[m, o] = exp(x[m, o])"], **tensors)
    value.alias("y_local", "x_local")


def chain(script: str) -> Schedule:
    """y from u from t, tile by tile."""
    begin = """
    x_local = s.cache_read('x', 'local')
    s.set_scope('t', 'local')
    s.set_scope('u', 'local')
    y_local = s.cache_write('y', 'local')
    o, _ = s.split('y_i', factor=4)
    s.compute_at('u', o)
    s.compute_at('t', o)
    s.tensorize(x_local, 'load')
    s.tensorize('t', 'relu')
    s.tensorize('u', 'exp')
    s.tensorize(y_local, 'add')
    s.tensorize('y', 'store')
    """
    compute = ["t[i] = max(x[i], 0)", "u[i] = exp(t[i])", "y[i] = u[i] + x[i]"]
    return scheduled(dedent(begin) + script, compute, **dict.fromkeys("xtuy", "float32[18]"))


def test_slots_of_a_place_are_those_of_the_tensor_that_it_is_of() -> None:
    later = "s.shift('u', o, 1)\ns.shift(y_local, o, 1)\n"
    one = right(chain(f"s.alias('t', 'u')\ns.double_buffer('t', 3)\n{later}"))
    assert one.schedule.homes["t"] == ()
    two = right(chain(f"s.alias('t', 'u')\ns.double_buffer('u', 2)\n{later}"))
    assert two.schedule.homes["t"] == ("y_i_o",)
    assert [b.slots for b in two.program.buffers if b.name == "u"] == [2]


def test_a_place_that_tensors_of_different_loops_share() -> None:
    script = """
    x_local = s.cache_read('x', 'local')
    z_local = s.cache_read('z', 'local')
    s.set_scope('t', 'local')
    s.set_scope('u', 'local')
    y_local = s.cache_write('y', 'local')
    v_local = s.cache_write('v', 'local')
    s.compute_at('t', 'i')
    s.compute_at('u', 'v_i')
    u_init = s.decompose_reduction('u', 'u_j')
    s.double_buffer('t', 2)
    s.double_buffer('u', 2)
    s.shift(v_local, 'v_i', 1)
    s.tensorize(x_local, 'load')
    s.tensorize(z_local, 'load')
    s.tensorize('t', 'relu')
    s.tensorize(u_init, 'zero')
    s.tensorize('u', 'row_sum')
    s.tensorize(y_local, 'add')
    s.tensorize(v_local, 'add')
    s.tensorize('y', 'store')
    s.tensorize('v', 'store')
    """
    compute = [
        "t[j] = max(x[0, j], 0)",
        "y[i, j] = t[j] + x[i, j]",
        "u[j] += z[k, j]",
        "v[i, j] = u[j] + z[i, j]",
    ]
    tensors = dict.fromkeys("xzyv", "float32[4, 18]") | dict.fromkeys("tu", "float32[18]")
    schedule = scheduled(script, compute, **tensors)
    right(schedule)
    # One place lives through the kernel: every iteration of v_i would add to the same sums.
    assert code(schedule.alias, "u", "t") == "H411"


def test_a_place_in_another_memory() -> None:
    script = "t_local = s.cache_write('t', 'local')"
    schedule = scheduled(
        script, ["t[i] = x[i] * 2", "y[i] = t[i] + 1"], x="float32[9]", t="float32[9]",
        y="float32[9]",
    )  # fmt: skip
    assert code(schedule.alias, "t_local", "t") == "H413"
    assert code(schedule.alias, "t", "t_local") == "H413"


def test_addresses_set_by_hand() -> None:
    compilation = right(add("s.set_address('b_local', 4096)\ns.set_address('c_local', 261904)"))
    bases = {b.name: b.base for b in compilation.program.buffers}
    assert bases == {"a_local": 0, "b_local": 1024, "c_local": 65536 - 60}


@pytest.mark.parametrize(
    "script",
    [
        "s.set_address('c_local', 262140)",
        "s.set_address('a_local', 64)\ns.set_address('c_local', 128)",
    ],
    ids=["past the end", "in each other"],
)
def test_addresses_where_buffers_cannot_be(script: str) -> None:
    assert code(compile_tree, add(script)) == "H502"


def test_what_no_layout_makes_fit_is_refused_before_any_is_tried(mutate: Mutate) -> None:
    tensors = dict.fromkeys("abc", "float32[300, 300]")
    large = scheduled(CACHED_ADD, ["c[m, n] = a[m, n] + b[m, n]"], **tensors)
    mutate(lowering, "in_best_order", Mock(side_effect=AssertionError))
    assert code(compile_tree, large) == "H502"


def test_layouts_by_hand() -> None:
    right(add("s.storage_align('a_local', 0, 8, 3)"))
    turned = right(add("s.transform_layout('a_local', '[i, j] -> [j, i]')"))
    plain = right(add(""))
    assert turned.source.c != plain.source.c


def test_lanes_that_nothing_uses_lie_outside_of_what_a_view_strides_over() -> None:
    vta = load_hardware(ROOT / "hw_specs" / "vta.yaml")
    operand = vta.intrinsic["load_wgt"].operand("src")
    source = Tensor("x", "int8", (64,), "input")
    rows = Tensor("rows", "int8", (16,), "intermediate")
    view = View("rows", "x", (Affine((("d0", 4),)),), 0)
    image = image_of(rows, operand, ((None, 16), (0, 16)), (16,), vta, view, source, "")
    (index,) = image.index
    for lane, position in product(range(16), range(16)):
        at = evaluate(index, {"p0": 0, "p1": lane, "p2": position})
        assert (0 <= at < 64) == (lane == 0)


def test_an_address_that_calls_cannot_begin_at(tmp_path: Path) -> None:
    text = (ROOT / "hw_specs" / "npu_shared_buffer.yaml").read_text()
    (tmp_path / "chip.yaml").write_text(text.replace("&local_address 0..", "&local_address 64.."))
    workload = add("").workload
    chip = load_hardware(tmp_path / "chip.yaml")
    schedule = Schedule(workload, chip).replay(dedent(CACHED_ADD))
    schedule.set_address("b_local", 0)
    assert code(compile_tree, schedule) == "H502"
    schedule.set_address("b_local", 256)
    right(schedule)
