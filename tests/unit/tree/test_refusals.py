"""An illegal use of every primitive: refused, nothing changed, and the error shows why."""

from __future__ import annotations

import re

import pytest

from hwgen.polyhedral.schedule.script import PRIMITIVES
from hwgen.spec.workload import Workload
from tests.unit.tree.rescaled_refusals import OF_RESCALING
from tests.unit.tree.toy import (
    BLUR,
    CHAIN,
    MATMUL,
    MATVEC,
    MAX,
    NORM,
    ONCE,
    ROWSUM,
    SLIDING,
    TWO,
    WIDE,
    WINDOWS,
    refusal,
)
from tests.unit.tree.unit_refusals import OF_UNITS

CASES: dict[str, list[tuple[Workload, str, str, str, str]]] = {
    "cache_read": [
        (
            CHAIN,
            "cpu",
            "s.parallel('c_i')\ns.cache_read('b', 'stack')",
            "H417",
            "c touches it in different iterations of c_i, which is parallel",
        ),
        (CHAIN, "cpu", "s.cache_read('a', 'stack', readers=['c'])", "H413", "c"),
        (CHAIN, "cpu", "s.cache_read('a', 'stack', dtype='int8')", "H413", "float32 to int8"),
    ],
    "cache_write": [
        (
            CHAIN,
            "cpu",
            "s.cache_write('a', 'stack')",
            "H414",
            "a is an input: no stage computes it",
        ),
    ],
    "set_scope": [
        (
            CHAIN,
            "cuda",
            "s.bind('i', 'threadIdx.x')\ns.bind('c_i', 'threadIdx.x')\ns.set_scope('b', 'shared')",
            "H417",
            "b and c touch it in different launches, as i is threadIdx.x",
        ),
        (
            CHAIN,
            "cuda",
            "s.bind('c_i', 'blockIdx.x')\ns.set_scope('b', 'shared')",
            "H417",
            "c touches it in different iterations of c_i, which is blockIdx.x",
        ),
        (
            CHAIN,
            "cpu",
            "s.parallel('c_i')\ns.set_scope('b', 'stack')",
            "H417",
            "c touches it in different iterations of c_i, which is parallel",
        ),
        (CHAIN, "cpu", "s.set_scope('c', 'stack')", "H413", "c is an output: the caller's array"),
    ],
    "storage_align": [
        (CHAIN, "cpu", "s.storage_align('b', 0, 8, 8)", "H413", "axis 0, factor 8, offset 8"),
    ],
    "compute_at": [
        (
            TWO,
            "cpu",
            "s.compute_at('b', 'd_i')",
            "H411",
            "c[c_i=0] reads b before what it needs has run: c[c_i=0] and b[i=0]",
        ),
        (CHAIN, "cpu", "s.compute_at('b', 'j')", "H413", "j is a loop of b"),
        (
            CHAIN,
            "cpu",
            "s.split('j', factor=16)\ns.compute_at('b', 'c_i')\ns.compute_at('b', 'j_i')",
            "H413",
            "j_i is a loop of b",
        ),
    ],
    "compute_inline": [
        (
            NORM,
            "cpu",
            "s.compute_inline('t')",
            "H413",
            "t is a reduction (t[i] += a[i, k])",
        ),
    ],
    "compute_root": [
        (NORM, "cpu", "s.compute_at('t', 'b_i')\ns.compute_root('b')", "H413", "t at b_i"),
    ],
    "fuse": [
        (MATMUL, "cpu", "s.fuse('i', 'k')", "H413", "the body of i is j"),
    ],
    "merge": [
        (CHAIN, "cpu", "s.merge('i', 'd')", "H414", "d"),
        (
            CHAIN,
            "cpu",
            "s.merge('i', 'i')",
            "H413",
            "one inside nothing, one inside nothing",
        ),
        (
            CHAIN,
            "cpu",
            "s.merge('i', 'c_j')",
            "H413",
            "one inside nothing, one inside c_i",
        ),
        (
            CHAIN,
            "cpu",
            "s.split('c_i', factor=4)\ns.merge('i', 'c_i_o')",
            "H411",
            "c[i=0, c_i_i=3, c_j=0] reads b before what it needs has run: "
            "c[i=0, c_i_i=3, c_j=0] and b[i=3, j=0]",
        ),
        (CHAIN, "cpu", "s.parallel('i')\ns.merge('i', 'c_i')", "H413", "a loop of kind parallel"),
    ],
    "reindex_cache_read": [
        (
            BLUR,
            "cpu",
            "s.reindex_cache_read('b', 'stack', 'c')",
            "H413",
            "b[i], b[i + 1], b[i + 2]",
        ),
        (BLUR, "cpu", "s.reindex_cache_read('a', 'stack', 'c')", "H413", "nothing"),
        (BLUR, "cpu", "s.reindex_cache_read('b', 'stack', 'c', 4)", "H413", "occurrence 4"),
        (BLUR, "cpu", "s.reindex_cache_read('b', 'heap', 'd')", "H414", "d"),
        (BLUR, "cpu", "s.reindex_cache_read('b', 'stuck', 'c')", "H414", "stuck"),
    ],
    "split": [
        (
            MATMUL,
            "cpu",
            "s.parallel('i')\ns.split('i', factor=4)",
            "H413",
            "a loop of kind parallel",
        ),
        (MATMUL, "cpu", "s.split('i', factor=0)", "H413", "factor=0"),
        (MATMUL, "cpu", "s.split('i', nparts=-1)", "H413", "nparts=-1"),
    ],
    "reorder": [
        (
            SLIDING,
            "cpu",
            ONCE + "s.reorder('j', 'i')",
            "H411",
            "c[j=0, i=1] reads b before what it needs has run: c[j=0, i=1] and b[n=1]",
        ),
    ],
    "tile": [
        (
            SLIDING,
            "cpu",
            ONCE + "s.tile('i', 'j', 3, 4)",
            "H411",
            "c[i_o=0, j_o=0, i_i=1, j_i=3] reads b before what it needs has run: "
            "c[i_o=0, j_o=0, i_i=1, j_i=3] and b[n=4]",
        ),
    ],
    "unroll": [
        (
            MATMUL,
            "cpu",
            "s.fuse('i', 'j')\ns.fuse('i_j_f', 'k')\ns.unroll('i_j_f_k_f')",
            "H413",
            "extent 262144",
        ),
    ],
    "vectorize": [
        (
            ROWSUM,
            "cpu",
            "s.vectorize('k')",
            "H412",
            "b[i=0, k=0] writes an element of b that b[i=0, k=1] writes",
        ),
        (ROWSUM, "cpu", "s.vectorize('i')", "H413", "its body is k"),
    ],
    "bind": [
        (
            ROWSUM,
            "cuda",
            "s.bind('k', 'blockIdx.x')",
            "H412",
            "b[i=0, k=0] writes an element of b that b[i=0, k=1] writes",
        ),
    ],
    "parallel": [
        (
            SLIDING,
            "cpu",
            ONCE + "s.parallel('i')",
            "H412",
            "b[i=0, j=1] writes an element of b that c[i=1, j=0] reads",
        ),
        (
            ROWSUM,
            "cpu",
            "s.parallel('k')",
            "H412",
            "b[i=0, k=0] writes an element of b that b[i=0, k=1] writes",
        ),
    ],
    "pragma": [
        (ROWSUM, "cpu", "s.pragma('k', 'unroll(4); evil', 4)", "H413", "'unroll(4); evil 4'"),
    ],
    "prefetch": [
        (ROWSUM, "cpu", "s.prefetch('a', 'k', 48)", "H413", "distance 48"),
    ],
    "tensorize": [
        (
            MATVEC,
            "gemv",
            "s.tile('i', 'k', 16, 32)\ns.tensorize('i_i', 'gemv')",
            "H416",
            "loops i_i: 16, k_i: 32 where the intrinsic runs i: 16, k: 64",
        ),
        (
            MATVEC,
            "gemv",
            "s.tile('i', 'k', 16, 64)\ns.tensorize('i_i', 'gemv', stationary='a')",
            "H413",
            "gemv",
        ),
        (
            MATVEC,
            "gemv",
            "s.tile('i', 'k', 16, 64)\ns.tensorize('i_i', 'gemv', stationary='w')",
            "H414",
            "w",
        ),
    ],
    "planes": [
        (WIDE, "cpu", "s.planes('b', 'int32')", "H413", "int32 b"),
        (WIDE, "cpu", "s.planes('a', 'int8')", "H414", "a is an input: no stage computes it"),
        (ROWSUM, "cpu", "s.planes('b', 'int8')", "H413", "float32 b"),
    ],
    "rfactor": [
        (ROWSUM, "cpu", "s.rfactor('b', 'i')", "H413", "i"),
    ],
    "set_store_predicate": [
        (
            SLIDING,
            "cpu",
            "s.compute_at('b', 'j')\ns.set_store_predicate('b', 'i == 8 or j == 7')",
            "H411",
            "c[i=0, j=0] reads b before what it needs has run: c[i=0, j=0] and b[n=0]",
        ),
        (
            ROWSUM,
            "cuda",
            "s.bind('k', 'threadIdx.x')\ns.set_store_predicate('b', 'k == 99')",
            "H411",
            "no instance at which k == 99 holds, for example among b[i=0]",
        ),
    ],
    "create_group": [
        (NORM, "cpu", "s.create_group('t', 'b')", "H413", "no stage leads from b to t"),
    ],
    "double_buffer": [
        (CHAIN, "cpu", "s.double_buffer('b', 0)", "H413", "0"),
    ],
    "transform_layout": [
        (
            CHAIN,
            "cpu",
            "s.transform_layout('b', '[i, j] -> [i]')",
            "H415",
            "b[0, 0] and b[0, 1]",
        ),
        (
            CHAIN,
            "cpu",
            "s.transform_layout('b', '[i, j] -> [i, j % 16]')",
            "H411",
            "c uses an element of b after b has made another in its place: "
            "c[c_i=0, c_j=15] and b[i=0, j=47]",
        ),
    ],
    "set_bank": [
        (
            CHAIN,
            "cuda",
            "s.compute_at('b', 'c_i')\ns.set_scope('b', 'shared')\ns.set_bank('b', 32)",
            "H413",
            "bank 32",
        ),
    ],
    "pad": [
        (
            MAX,
            "cpu",
            "s.pad('k', 16)",
            "H413",
            "m[0] max= a[k]: a contribution with operands of zero is not neutral",
        ),
    ],
    "decompose_reduction": [
        (
            WINDOWS,
            "cpu",
            "s.compute_at('t', 'c_i')\ns.decompose_reduction('t', 'c_i')",
            "H411",
            "one contribution is added twice: t[c_i=0, i=1, k=0] and t[c_i=1, i=0, k=0]",
        ),
        (
            ROWSUM,
            "cpu",
            "s.decompose_reduction('b')",
            "H411",
            "an initialisation comes after a contribution: b_init[i=0, k=1] and b[i=0, k=0]",
        ),
    ],
    "set_address": [
        (CHAIN, "cpu", "s.set_address('b', -64)", "H413", "byte -64"),
    ],
    **OF_UNITS,
    **OF_RESCALING,
}
"""Per primitive: a workload, a chip, a script whose last line is refused, the code, what was found.
Where a dependence is at stake (H411, H412), `found` names two instances between which it breaks."""

INSTANCE = re.compile(r"\w+\[\w+=\d+(, \w+=\d+)*\]")


def test_every_primitive_has_a_case() -> None:
    assert set(CASES) == set(PRIMITIVES)


@pytest.mark.parametrize(
    ("primitive", "number"), [(p, n) for p, cases in CASES.items() for n in range(len(cases))]
)
def test_refused(primitive: str, number: int) -> None:
    workload, chip, script, code, found = CASES[primitive][number]
    error = refusal(workload, script, chip)
    assert f".{primitive}(" in script.splitlines()[-1]
    assert (error.code, error.diagnostic.found) == (code, found)
    assert error.diagnostic.allowed
    assert error.diagnostic.repair
    if code in ("H411", "H412") and "nobody" not in str(error):
        assert len({m.group() for m in INSTANCE.finditer(found)}) == 2
