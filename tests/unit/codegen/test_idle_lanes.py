"""Lanes along which no loop runs, and micro-kernels of loops that begin late, on a small chip."""

from __future__ import annotations

from copy import deepcopy
from textwrap import dedent
from typing import cast

import pytest

from hwgen import HwgenError, Schedule
from hwgen.codegen.nodes import calls
from hwgen.passes.kernel import Kernel
from hwgen.passes.trees import compile_tree
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_hardware, parse_workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine

PAIRS: dict[str, object] = {
    "hwgen": 1,
    "name": "pairs",
    "memories": {
        "main": {"kind": "offchip", "bus": "bus", "shared": True, "addressing": "elements"},
        "left": {"kind": "scratchpad", "dtype": "int8", "entry": [1, 2], "size": "4 KiB"},
        "right": {"kind": "scratchpad", "dtype": "int8", "entry": [1, 2], "size": "4 KiB"},
        "sums": {"kind": "scratchpad", "dtype": "int32", "entry": [1, 1], "size": "4 KiB"},
    },
    "buses": {
        "bus": {
            "beat_bytes": 8,
            "burst": {"beats": 8, "boundary_bytes": 4096},
            "read": {"latency_cycles": 10, "in_flight_bursts": 4},
            "write": {"latency_cycles": 10, "in_flight_bursts": 4},
        }
    },
    "units": {"core": {}},
    "synchronization": {"kind": "none"},
    "intrinsics": {
        f"load_{name}": {
            "unit": "core",
            "iterators": {"b": 1, "i": "1..2" if name != "sums" else 1},
            "semantics": "dst[b, i] = src[b, i]",
            "operands": {
                "dst": {"memory": name},
                "src": {"memory": "main", "dtype": "int32" if name == "sums" else "int8"},
            },
            "loops": {"x": {"extent": "1..64", "strides": {"dst": 1, "src": "0..64"}}},
            "cycles": "4 + transfer",
            "emit": f"load_{name}();",
        }
        for name in ("left", "right", "sums")
    }
    | {
        "store": {
            "unit": "core",
            "iterators": {"b": 1, "o": 1},
            "semantics": "dst[b, o] = src[b, o]",
            "operands": {
                "dst": {"memory": "main", "dtype": "int32"},
                "src": {"memory": "sums"},
            },
            "loops": {"x": {"extent": "1..64", "strides": {"dst": 1, "src": 1}}},
            "cycles": "4 + transfer",
            "emit": "store();",
        },
        "store_narrow": {
            "unit": "core",
            "iterators": {"b": 1, "o": 1},
            "semantics": "dst[b, o] = int8(src[b, o])",
            "operands": {
                "dst": {"memory": "main", "dtype": "int8"},
                "src": {"memory": "sums"},
            },
            "loops": {"x": {"extent": "1..64", "strides": {"dst": "1..64", "src": "1..64"}}},
            "cycles": "4 + transfer",
            "emit": "store_narrow();",
        },
        "multiply": {
            "unit": "core",
            "iterators": {"b": 1, "o": 1, "i": 2},
            "semantics": "dst[b, o] += x[b, i] * w[o, i]",
            "operands": {
                "dst": {"memory": "sums"},
                "x": {"memory": "left"},
                "w": {"memory": "right"},
            },
            "cycles": "1",
            "emit": "multiply();",
        },
        "zero": {
            "unit": "core",
            "iterators": {"b": 1, "o": 1},
            "semantics": "dst[b, o] = 0",
            "operands": {"dst": {"memory": "sums"}},
            "cycles": "1",
            "emit": "zero();",
        },
        "add": {
            "unit": "core",
            "iterators": {"b": 1, "o": 1},
            "semantics": "dst[b, o] = dst[b, o] + y[b, o]",
            "operands": {"dst": {"memory": "sums"}, "y": {"memory": "sums"}},
            "cycles": "iterations",
            "emit": "add({{ kernel.name }}, {{ kernel.variant }});",
            "micro_kernel": {"kind": "program"},
        },
    },
    "code": {
        "prologue": "begin();\n",
        "epilogue": "finish();\n",
        "allocate": "{{ buffer }} = reserve({{ bytes }});",
        "free": "release({{ buffer }});",
        "to_device": "upload({{ buffer }}, {{ host }}, {{ bytes }});",
        "from_device": "download({{ host }}, {{ buffer }}, {{ bytes }});",
    },
    "micro_kernels": {
        "program": {
            "capacity_operations": 64,
            "rewrite_distance": 1,
            "max_variants": 4,
            "operation_bytes": 4,
            "bus": "bus",
            "load": {"name": "load_program", "cycles": "4 + transfer"},
            "define": "static int {{ name }}[{{ bases | length }}];\n",
        }
    },
}
CHIP = parse_hardware(PAIRS)


def made(
    script: str, compute: list[str], tensors: dict[str, str], chip: HardwareSpec = CHIP
) -> Kernel:
    data: dict[str, object] = {"name": "k", "tensors": tensors, "compute": compute}
    found = compile_tree(Schedule(parse_workload(data), chip).replay(dedent(script)))
    examine(found, draw_inputs(found.workload, 1))
    return found


PRODUCT = """
s.cache_write('s', 'sums')
s.cache_read('a', 'left')
s.cache_read('b', 'right')
s.decompose_reduction('s_sums', 'm')
s.tensorize('a_left', 'load_left')
s.tensorize('b_right', 'load_right')
s.tensorize('s_sums_init', 'zero')
s.tensorize('s_sums', 'multiply')
s.tensorize('s', 'store')
"""


@pytest.mark.parametrize("k", [1, 4, 5])
def test_lanes_that_a_sum_adds_up_are_filled(k: int) -> None:
    """No loop runs along the pairs that `multiply` adds up: what loads could leave is zero."""
    tensors = {"a": f"int8[2, {k}]", "b": f"int8[3, {k}]", "s": "int32[2, 3]"}
    found = made(PRODUCT, ["s[m, n] += a[m, k] * b[n, k]"], tensors)
    lanes = [c.lanes for c in calls(found.program.body) if c.intrinsic.startswith("load")]
    assert lanes
    assert set(lanes) == {()}


@pytest.mark.parametrize("order", ["k, m", "m, k"])
def test_calls_on_one_tensor_have_lanes_that_agree(order: str) -> None:
    """A load could take what its innermost loop moves, where `multiply` takes pairs along k."""
    first, second = (f"'a_left_{'mk'.index(n)}'" for n in order.split(", "))
    reordered = f"s.reorder({first}, {second})\ns.decompose"
    script = PRODUCT.replace("s.decompose", reordered, 1)
    tensors = {"a": "int8[2, 2]", "b": "int8[3, 2]", "s": "int32[2, 3]"}
    made(script, ["s[m, n] += a[m, k] * b[n, k]"], tensors)


def test_lanes_in_which_there_may_be_anything_are_refused() -> None:
    """Both operands are computed: no host lays out zeros beside them."""
    script = """
    s.cache_read('c', 'sums')
    s.cache_read('d', 'sums')
    s.cache_read('a', 'left')
    s.cache_read('b', 'right')
    s.cache_write('s', 'sums')
    s.decompose_reduction('s_sums', 's_m')
    s.tensorize('c_sums', 'load_sums')
    s.tensorize('d_sums', 'load_sums')
    s.tensorize('a', 'store_narrow')
    s.tensorize('b', 'store_narrow')
    s.tensorize('a_left', 'load_left')
    s.tensorize('b_right', 'load_right')
    s.tensorize('s_sums_init', 'zero')
    s.tensorize('s_sums', 'multiply')
    s.tensorize('s', 'store')
    """
    computed = ["a[m, k] = int8(c[m, k])", "b[n, k] = int8(d[n, k])"]
    sizes = {"a": "int8[2, 4]", "b": "int8[3, 4]", "s": "int32[2, 3]"}
    tensors = {"c": "int32[2, 4]", "d": "int32[3, 4]", **sizes}
    with pytest.raises(HwgenError, match=r"H423.*past the end of i would change s_sums") as caught:
        made(script, [*computed, "s[m, n] += a[m, k] * b[n, k]"], tensors)
    assert "data there" in caught.value.diagnostic.found


ADDED = """
s.cache_write('y', 'sums')
s.cache_read('c', 'sums')
s.cache_read('a', 'left')
s.cache_read('b', 'right')
s.tensorize('c_sums', 'load_sums')
s.tensorize('a_left', 'load_left')
s.tensorize('b_right', 'load_right')
s.tensorize('y_sums', 'multiply')
s.tensorize('y', 'store')
"""


@pytest.mark.parametrize(
    ("semantics", "value", "right"),
    [
        ("dst[b, o] += x[b, i] * w[o, i]", "c[m, n] + a[m, n] * b[m, n]", True),
        (
            "dst[b, o] = clip(dst[b, o] + x[b, i] * w[o, i], -100, 100)",
            "clip(c[m, n] + a[m, n] * b[m, n], -100, 100)",
            True,
        ),
        (
            "dst[b, o] = min(dst[b, o] + x[b, i] * w[o, i], 100)",
            "min(c[m, n] + a[m, n] * b[m, n], 100)",
            False,  # Nothing says that zeros leave a minimum as it is.
        ),
    ],
)
def test_lanes_that_one_product_adds_up_are_filled(semantics: str, value: str, right: bool) -> None:
    """A call that adds up lanes, for a statement that is no sum."""
    data = deepcopy(PAIRS)
    cast("dict[str, dict[str, object]]", data["intrinsics"])["multiply"]["semantics"] = semantics
    tensors = dict.fromkeys("ab", "int8[2, 3]") | dict.fromkeys("cy", "int32[2, 3]")
    chip = parse_hardware(data)
    if not right:
        with pytest.raises(HwgenError, match="H423"):
            made(ADDED, [f"y[m, n] = {value}"], tensors, chip)
        return
    found = made(ADDED, [f"y[m, n] = {value}"], tensors, chip)
    loads = [c for c in calls(found.program.body) if c.intrinsic in ("load_left", "load_right")]
    assert loads
    assert {c.lanes for c in loads} == {()}


SATURATED = ["s[m, n] = {start}", "s[m, n] = clip(s[m, n] + a[m, k] * b[n, k], -100, 100)"]
IN_ORDER = """
s.cache_write('s', 'sums')
s.cache_read('a', 'left')
s.cache_read('b', 'right')
s.decompose_reduction('s_sums', 'm')
s.tensorize('a_left', 'load_left')
s.tensorize('b_right', 'load_right')
s.tensorize('s_sums_init', 'begin')
s.tensorize('s_sums', 'multiply')
s.tensorize('s', 'store')
"""


def saturated(start: int, k: int) -> Kernel:
    """The product on a chip that saturates each sum, from -100 to 100, and begins with `start`."""
    data = deepcopy(PAIRS)
    intrinsics = cast("dict[str, dict[str, object]]", data["intrinsics"])
    intrinsics["multiply"]["semantics"] = (
        "dst[b, o] = clip(dst[b, o] + x[b, i] * w[o, i], -100, 100)"
    )
    intrinsics["begin"] = {**intrinsics["zero"], "semantics": f"dst[b, o] = {start}"}
    tensors = {"a": f"int8[2, {k}]", "b": f"int8[3, {k}]", "s": "int32[2, 3]"}
    compute = [line.format(start=start) for line in SATURATED]
    return made(IN_ORDER, compute, tensors, parse_hardware(data))


@pytest.mark.parametrize("k", [1, 4, 5])
@pytest.mark.parametrize("start", [0, -100])
def test_zeros_leave_what_is_saturated_as_it_is(start: int, k: int) -> None:
    saturated(start, k)


def test_zeros_change_what_no_sum_was_saturated_to() -> None:
    with pytest.raises(HwgenError, match=r"H423.*past the end of i would change s_sums"):
        saturated(101, 5)


def test_variants_are_those_of_iterations_that_run() -> None:
    """A loop that begins late has no micro-kernel for the iterations before, at addresses that
    no buffer has."""
    script = """
    s.cache_write('y', 'sums')
    s.split('m', factor=4)
    s.cache_read('a', 'sums')
    s.cache_read('b', 'sums')
    s.compute_at('b_sums', 'm_o')
    s.shift('y_sums', 'm_o', 1)
    s.tensorize('b_sums', 'load_sums')
    s.tensorize('a_sums', 'load_sums')
    s.tensorize('y_sums', 'add')
    s.tensorize('y', 'store')
    """
    tensors = dict.fromkeys("aby", "int32[12]")
    found = made(script, ["y[m] = a[m] + b[m]"], tensors)
    bases = [base for kernel in found.program.kernels for base in kernel.bases]
    assert sorted(set(bases)) == [(0, 12), (4, 16), (8, 20)]
