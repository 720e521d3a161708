"""What each scheduling primitive is known to do, as cases: a script, the loops after it, and texts
in the emitted file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import hwgen
from hwgen import Schedule
from hwgen.codegen.processor.emit import emit_nest
from hwgen.codegen.processor.lower import lower_nest
from hwgen.codegen.source import CSource
from hwgen.model.native import compile_portable
from hwgen.model.numeric import STORAGE, Array
from hwgen.model.reference import run_reference
from hwgen.spec.workload import Workload
from tests.shim.cuda import device
from tests.unit.tree.toy import ROOT, make

ROWSUM = make("rowsum", {"A": "float32[1024, 1024]", "B": "float32[1024]"}, ["B[i] += A[i, k]"])
TOTAL = make("total", {"A": "float32[1024]", "B": "float32[1]"}, ["B[0] += A[k]"])
SQUARE = "float32[1024, 1024]"
MATMUL = make("matmul", {"A": SQUARE, "B": SQUARE, "C": SQUARE}, ["C[i, j] += A[i, k] * B[k, j]"])
CONV = hwgen.load_workload(ROOT / "workloads" / "conv2d.yaml", {"C": 8, "H": 14, "W": 14, "O": 8})
GROUP = make(
    "group",
    {
        "A": "float32[64, 128]", "B": "float32[64, 128]", "D": "float32[64, 128]",
        "E": "float32[64, 128]", "F": "float32[64]",
    },
    ["D[i, j] = A[i, j] + B[i, j]", "E[i, j] = D[i, j] + B[i, j]", "F[i] += E[i, k]"],
)  # fmt: skip
GEMV = make(
    "gemv",
    {"A": "float32[1024, 64]", "B": "float32[512, 64]", "C": "float32[1024, 512]"},
    ["C[i, j] += A[i, k] * B[j, k]"],
)


@dataclass(frozen=True)
class Case:
    """`loops`: the tree after the script; `emitted`: texts that the file must contain."""

    workload: Workload
    chip: str
    script: str
    loops: str
    emitted: tuple[str, ...] = ()


def inputs(workload: Workload, seed: int = 0) -> dict[str, Array]:
    """Small integers, so that floating-point sums are exact in any order."""
    random = np.random.default_rng(seed)
    return {
        t.name: random.integers(-3, 4, t.shape).astype(STORAGE[t.dtype]) for t in workload.inputs
    }


def source(s: Schedule) -> CSource:
    """The emitted file."""
    return emit_nest(lower_nest(s.resolved, s.homes, s.hardware)[0], s.hardware, s.workload)


def execute(s: Schedule) -> tuple[CSource, bool]:
    """The emitted file, and whether it computes exactly what the reference does."""
    text, given = source(s), inputs(s.workload)
    assert s.hardware.processor is not None
    if s.hardware.processor.launch:
        done = device.run(text, given)
        assert not done.message
        found = done.outputs
    else:
        found = compile_portable(text, s.hardware).run(given)
    wanted = run_reference(s.workload, given)
    return text, all(np.array_equal(found[name], array) for name, array in wanted.items())


CASES: dict[str, Case] = {
    "cache_read": Case(
        ROWSUM,
        "cpu",
        "a = s.cache_read('A', 'heap')",
        """
for A_heap_0 in 0..<1024:
  for A_heap_1 in 0..<1024:
    A_heap[A_heap_0, A_heap_1] = A[A_heap_0, A_heap_1]
for i in 0..<1024:
  for k in 0..<1024:
    B[i] +=(init) A_heap[i, k]
""",
        ("aligned_alloc(64, 4194304)",),
    ),
    "cache_read where it is read": Case(
        ROWSUM,
        "cpu",
        "a = s.cache_read('A', 'stack', readers=['B'])\ns.compute_at(a, 'i')",
        """
for i in 0..<1024:
  for A_stack_1 in 0..<1024:
    A_stack[i, A_stack_1] = A[i, A_stack_1]
  for k in 0..<1024:
    B[i] +=(init) A_stack[i, k]
""",
        ("float own_A_stack[1024]",),
    ),
    "cache_write": Case(
        ROWSUM,
        "cpu",
        "b = s.cache_write('B', 'stack')\ns.compute_at(b, 'B_0')",
        """
for B_0 in 0..<1024:
  for k in 0..<1024:
    B_stack[B_0] +=(init) A[B_0, k]
  B[B_0] = B_stack[B_0]
""",
        ("float own_B_stack[1]",),
    ),
    "set_scope": Case(
        ROWSUM,
        "cpu",
        "a = s.cache_read('A', 'heap')\ns.compute_at(a, 'i')\ns.set_scope(a, 'stack')",
        """
for i in 0..<1024:
  for A_heap_1 in 0..<1024:
    A_heap[i, A_heap_1] = A[i, A_heap_1]
  for k in 0..<1024:
    B[i] +=(init) A_heap[i, k]
""",
        ("float own_A_heap[1024]",),
    ),
    "storage_align": Case(
        ROWSUM,
        "cpu",
        "a = s.cache_read('A', 'heap')\ns.storage_align(a, 0, 100, 8)",
        """
for A_heap_0 in 0..<1024:
  for A_heap_1 in 0..<1024:
    A_heap[A_heap_0, A_heap_1] = A[A_heap_0, A_heap_1]
for i in 0..<1024:
  for k in 0..<1024:
    B[i] +=(init) A_heap[i, k]
""",
        ("A_heap[A_heap_0 * 1108 + A_heap_1]", "A_heap[i * 1108 + k]"),
    ),
    "parallel": Case(ROWSUM, "cpu", "s.parallel('i')", """
for i in 0..<1024 (parallel):
  for k in 0..<1024:
    B[i] +=(init) A[i, k]
""", ("#pragma omp parallel for",)),
    "pragma": Case(ROWSUM, "cpu", "s.pragma('k', 'GCC unroll', 4)", """
for i in 0..<1024:
  for k in 0..<1024 (pragma GCC unroll=4):
    B[i] +=(init) A[i, k]
""", ("#pragma GCC unroll 4\n      for (int64_t k = 0; k < 1024; ++k)",)),
    "unroll": Case(
        ROWSUM, "cpu", "o, i = s.split('k', factor=4)\ns.unroll(i)", """
for i in 0..<1024:
  for k_o in 0..<256:
    for k_i in 0..<4 (unroll):
      B[i] +=(init) A[i, k_o * 4 + k_i]
""", ("#pragma GCC unroll 4",)
    ),
    "prefetch": Case(
        ROWSUM, "cpu", "s.prefetch('A', 'i', 1)", """
for i in 0..<1024:
  prefetch A of i + 1
  for k in 0..<1024:
    B[i] +=(init) A[i, k]
""",
        ("if (i + 1 < 1024)", "__builtin_prefetch(&A[i * 1024 + A_line1 * 16 + 1024]);"),
    ),
    "split": Case(TOTAL, "cpu", "s.split('k', factor=32)", """
for k_o in 0..<32:
  for k_i in 0..<32:
    B[0] +=(init) A[k_o * 32 + k_i]
"""),
    "split into parts": Case(TOTAL, "cpu", "s.split('k', nparts=32)", """
for k_o in 0..<32:
  for k_i in 0..<32:
    B[0] +=(init) A[k_o * 32 + k_i]
"""),
    "fuse": Case(TOTAL, "cpu", "o, i = s.split('k', factor=32)\ns.fuse(o, i)", """
for k_o_k_i_f in 0..<1024:
  B[0] +=(init) A[k_o_k_i_f]
"""),
    "rfactor": Case(TOTAL, "cpu", "o, i = s.split('k', factor=32)\ns.rfactor('B', i)", """
for k_o in 0..<32:
  for k_i in 0..<32:
    B_rf[k_i, 0] +=(init) A[k_o * 32 + k_i]
for B_k_i in 0..<32:
  B[0] +=(init) B_rf[B_k_i, 0]
"""),
    "rfactor and compute_at": Case(
        TOTAL, "cpu",
        "o, i = s.split('k', factor=32)\nb = s.rfactor('B', i)\ns.compute_at(b, 'B_k_i')", """
for B_k_i in 0..<32:
  for k_o in 0..<32:
    B_rf[B_k_i, 0] +=(init) A[k_o * 32 + B_k_i]
  B[0] +=(init) B_rf[B_k_i, 0]
""",
    ),
    "compute_root": Case(
        TOTAL, "cpu",
        "o, i = s.split('k', factor=32)\nb = s.rfactor('B', i)\n"
        "s.compute_at(b, 'B_k_i')\ns.compute_root(b)", """
for k_i in 0..<32:
  for k_o in 0..<32:
    B_rf[k_i, 0] +=(init) A[k_o * 32 + k_i]
for B_k_i in 0..<32:
  B[0] +=(init) B_rf[B_k_i, 0]
""",
    ),
    "rfactor in parallel": Case(
        TOTAL, "cpu",
        "o, i = s.split('k', factor=32)\nb = s.rfactor('B', o)\ns.parallel(o)", """
for k_o in 0..<32 (parallel):
  for k_i in 0..<32:
    B_rf[k_o, 0] +=(init) A[k_o * 32 + k_i]
for B_k_o in 0..<32:
  B[0] +=(init) B_rf[B_k_o, 0]
""",
    ),
    "bind": Case(
        TOTAL, "cuda",
        "o, i = s.split('k', factor=32)\nb = s.rfactor('B', i)\n"
        "s.bind('B_k_i', 'threadIdx.x')\ns.compute_at(b, 'B_k_i')", """
for B_k_i in 0..<32 (threadIdx.x):
  for k_o in 0..<32:
    B_rf[B_k_i, 0] +=(init) A[k_o * 32 + B_k_i]
  B[0] +=(init) B_rf[B_k_i, 0]
""",
        ("= threadIdx.x;", "__syncthreads();", "dim3(32, 1, 1)"),
    ),
    "set_store_predicate": Case(
        TOTAL, "cuda",
        "o, i = s.split('k', factor=32)\nb = s.rfactor('B', i)\n"
        "s.bind('B_k_i', 'threadIdx.x')\ns.compute_at(b, 'B_k_i')\n"
        "s.set_store_predicate('B', 'B_k_i == 0')", """
for B_k_i in 0..<32 (threadIdx.x):
  for k_o in 0..<32:
    B_rf[B_k_i, 0] +=(init) A[k_o * 32 + B_k_i]
  B[0] +=(init) B_rf[B_k_i, 0]  store if B_k_i == 0
""", ("if (threadIdx_x == 0)",),
    ),
    "bind rows": Case(
        ROWSUM, "cuda",
        "o, i = s.split('k', factor=32)\nb = s.rfactor('B', i)\n"
        "s.bind('B_i', 'blockIdx.x')\ns.bind('B_k_i', 'threadIdx.x')\ns.compute_at(b, 'B_k_i')\n"
        "s.set_store_predicate('B', 'B_k_i == 0')", """
for B_i in 0..<1024 (blockIdx.x):
  for B_k_i in 0..<32 (threadIdx.x):
    for k_o in 0..<32:
      B_rf[B_k_i, B_i] +=(init) A[B_i, k_o * 32 + B_k_i]
    B[B_i] +=(init) B_rf[B_k_i, B_i]  store if B_k_i == 0
""",
        ("= blockIdx.x;", "dim3(1024, 1, 1), dim3(32, 1, 1)"),
    ),
    "tile": Case(
        MATMUL, "cpu",
        "i_o, j_o, i_i, j_i = s.tile('i', 'j', 32, 32)\nk_o, k_i = s.split('k', factor=4)\n"
        "s.reorder(i_o, j_o, k_o, i_i, k_i, j_i)\ns.unroll(k_i)\ns.vectorize(j_i)", """
for i_o in 0..<32:
  for j_o in 0..<32:
    for k_o in 0..<256:
      for i_i in 0..<32:
        for k_i in 0..<4 (unroll):
          for j_i in 0..<32 (vectorize):
            C[i_o * 32 + i_i, j_o * 32 + j_i] +=(init) A[i_o * 32 + i_i, k_o * 4 + k_i] * B[k_o * 4 + k_i, j_o * 32 + j_i]
""",  # noqa: E501
        ("#pragma GCC unroll 4",),
    ),
    "compute_inline": Case(CONV, "cpu", "s.compute_inline('xp')", """
for acc_n in 0..<1:
  for o in 0..<8:
    for i in 0..<14:
      for j in 0..<14:
        for acc_c in 0..<8:
          for r in 0..<3:
            for s in 0..<3:
              acc[acc_n, o, i, j] +=(init) select(i + r >= 1 and i + r < 15 and j + s >= 1 and j + s < 15, x[acc_n, acc_c, i + r - 1, j + s - 1], 0) * w[o, acc_c, r, s]
for y_n in 0..<1:
  for y_o in 0..<8:
    for y_i in 0..<14:
      for y_j in 0..<14:
        y[y_n, y_o, y_i, y_j] = int8(acc[y_n, y_o, y_i, y_j])
"""),  # noqa: E501
    "create_group": Case(
        GROUP, "cpu", "g = s.create_group('E', ['A', 'B'])\ns.compute_at(g, 'F_i')", """
for F_i in 0..<64:
  for j in 0..<128:
    D[F_i, j] = A[F_i, j] + B[F_i, j]
  for E_j in 0..<128:
    E[F_i, E_j] = D[F_i, E_j] + B[F_i, E_j]
  for k in 0..<128:
    F[F_i] +=(init) E[F_i, k]
""",
    ),
    "tensorize": Case(
        GEMV, "gemv",
        "j_o, j_i = s.split('j', factor=16)\ns.tensorize(j_i, 'gemv')", """
for i in 0..<1024:
  for j_o in 0..<32:
    for j_i in 0..<16:
      for k in 0..<64:
        gemv  # from j_i: C[i, j_o * 16 + j_i] +=(init) A[i, k] * B[j_o * 16 + j_i, k]
""",
        ("gemv_16x64(&C[i_ * 512 + j_o * 16], &B[j_o * 1024], &A[i_ * 64], 64);",),
    ),
}  # fmt: skip
