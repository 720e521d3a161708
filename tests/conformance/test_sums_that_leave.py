"""Sums that leave the chip over several memories, and blocks of rows that begin at the last address
that a field holds."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import pytest

import hwgen
from hwgen.passes.kernel import Kernel
from hwgen.spec.hardware import HardwareSpec
from hwgen.spec.load import parse_hardware
from hwgen.spec.workload import Workload
from hwgen.verify.data import draw_inputs
from hwgen.verify.examine import examine
from tests.sampling import tiered

BUS = {
    "beat_bytes": 8,
    "burst": {"beats": 1, "boundary_bytes": 64},
    "read": {"latency_cycles": 1, "in_flight_bursts": 4},
    "write": {"latency_cycles": 1, "in_flight_bursts": 4},
}
CODE = {
    "allocate": "{{ buffer }} = malloc({{ bytes }});",
    "free": "free({{ buffer }});",
    "to_device": "memcpy({{ buffer }}, {{ host }}, {{ bytes }});",
    "from_device": "memcpy({{ host }}, {{ buffer }}, {{ bytes }});",
}


def scratchpad(dtype: str, size: str) -> dict[str, Any]:
    return {"kind": "scratchpad", "dtype": dtype, "entry": [4], "size": size}


def intrinsic(name: str, semantics: str | list[str], **operands: dict[str, Any]) -> Any:
    transfer = any(o["memory"] == "dram" for o in operands.values())
    rows = {"j": 4} if "[j, i]" in str(semantics) else {}
    return {
        "unit": "u", "iterators": {**rows, "i": 4}, "semantics": semantics, "operands": operands,
        "cycles": "transfer" if transfer else 1, "emit": f"{name}();",
    }  # fmt: skip


def chip(memories: dict[str, Any], **intrinsics: Any) -> HardwareSpec:
    dram = {"dram": {"kind": "offchip", "bus": "b"}}
    return parse_hardware({
        "hwgen": 1, "name": "small", "memories": dram | memories, "buses": {"b": BUS},
        "units": {"u": {}}, "synchronization": {"kind": "none"}, "intrinsics": intrinsics,
        "code": CODE,
    })  # fmt: skip


def over(steps: int) -> HardwareSpec:
    """A chip whose sums pass through so many memories before they leave."""
    path = ["c", *(f"o{n}" for n in range(steps))]
    held = {n: scratchpad("int32", "256 B") for n in path} | {"a": scratchpad("int8", "1 KiB")}
    copies: dict[str, Any] = {
        f"copy_{into}": intrinsic("copy", "d[i] = s[i]", d={"memory": into}, s={"memory": of})
        for of, into in pairwise(path)
    }
    off = {"memory": "dram", "dtype": "int32"}
    return chip(
        held,
        load=intrinsic(
            "load", "d[i] = s[i]", d={"memory": "a"}, s={"memory": "dram", "dtype": "int8"}
        ),
        mac=intrinsic(
            "mac", "z[i] += x[i] * y[i]", z={"memory": "c"}, x={"memory": "a"}, y={"memory": "a"}
        ),
        zero=intrinsic("zero", "z[i] = 0", z={"memory": "c"}),
        store=intrinsic("store", "d[i] = s[i]", d=off, s={"memory": path[-1]}),
        **copies,
    )


def products(m: int, k: int, *compute: str, **more: str) -> Workload:
    given = {"a": f"int8[{k}, {m}]", "b": f"int8[{k}, {m}]"}
    return hwgen.workload("products", tensors=given | more, compute=list(compute))


def compiled(workload: Workload, hardware: HardwareSpec) -> Kernel:
    made = hwgen.compile_kernel(workload, hardware)
    examine(made, draw_inputs(workload, 3), "both")
    return made


SUMS = [(*sizes, steps) for sizes in ((8, 8), (7, 3), (1, 1), (100, 5)) for steps in range(3)]
RANGES = ["0..4 step 4", "0..124", "0..4", "0..7 step 4"]


@pytest.mark.parametrize(("m", "k", "steps"), tiered(SUMS, SUMS[5:6]))
def test_a_sum_leaves_over_several_copies(m: int, k: int, steps: int) -> None:
    """An output that is summed up is the same kernel as a sum that a statement copies out."""
    hardware, vector = over(steps), f"int32[{m}]"
    one = compiled(products(m, k, "c[m] += a[k, m] * b[k, m]", c=vector), hardware)
    two = products(m, k, "acc[m] += a[k, m] * b[k, m]", "c[m] = acc[m]", acc=vector, c=vector)
    assert one.cycles == compiled(two, hardware).cycles


def test_two_sums_leave_over_a_copy() -> None:
    sums = ("c[m] += a[k, m] * b[k, m]", "d[m] += a[k, m] * a[k, m]")
    compiled(products(24, 5, *sums, c="int32[24]", d="int32[24]"), over(1))


def outer(addresses: str | None) -> HardwareSpec:
    """A chip that adds to blocks of four rows, of which its memory holds two."""
    z = {"memory": "c"} | ({} if addresses is None else {"address": addresses})
    reads = {"x": {"memory": "a"}, "y": {"memory": "a"}}
    add, off = "z[j, i] += x[i] * y[j]", {"memory": "dram", "dtype": "int32"}
    return chip(
        {"a": scratchpad("int8", "1 KiB"), "c": scratchpad("int32", "128 B")},
        load=intrinsic(
            "load", "d[i] = s[i]", d={"memory": "a"}, s={"memory": "dram", "dtype": "int8"}
        ),
        first=intrinsic("first", ["z[j, i] = 0", add], z=z, **reads),
        add=intrinsic("add", add, z=z, **reads),
        store=intrinsic("store", "d[j, i] = s[j, i]", d=off, s={"memory": "c"}),
    )


@cache
def blocks(addresses: str | None) -> tuple[int, int]:
    """Cycles of a product, and the entries of the sums' memory that it uses."""
    workload = hwgen.workload(
        "mm", sizes={"M": 16, "N": 16, "K": 64},
        tensors={"a": "int8[M, K]", "b": "int8[K, N]", "c": "int32[M, N]"},
        compute=["c[m, n] += a[m, k] * b[k, n]"],
    )  # fmt: skip
    made = compiled(workload, outer(addresses))
    return made.cycles, max(b.end for b in made.program.buffers if b.memory == "c")


@pytest.mark.parametrize("addresses", tiered(RANGES, RANGES[:1]))
def test_the_last_block_begins_at_the_last_address(addresses: str) -> None:
    """A range is of where blocks begin: the last one covers the entries after it."""
    assert blocks(addresses) == blocks(None)
    assert blocks(None)[1] == 8
    assert blocks("0..0")[1] == 4
    assert blocks("0..0")[0] > blocks(None)[0]
