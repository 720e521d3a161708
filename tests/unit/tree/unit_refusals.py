"""Illegal uses of the primitives for chips with units, as `test_refusals` runs them."""

from __future__ import annotations

from hwgen.spec.workload import Workload
from tests.unit.tree.toy import (
    BIASED,
    CHAIN,
    MATMUL,
    MIXED,
    NARROW,
    NORM,
    PADDED,
    REUSE,
    ROWSUM,
)

NARROW_C = "c[i, j] = int8(clip(a[i, j] - b[i, j], -128, 127))"

OF_UNITS: dict[str, list[tuple[Workload, str, str, str, str]]] = {
    "shift": [
        (CHAIN, "npu", "s.shift('c', 'k', 1)", "H414", "k"),
        (CHAIN, "npu", "s.shift('d', 'c_i', 1)", "H414", "d"),
        (CHAIN, "npu", "s.shift('a', 'i', 1)", "H414", "a is an input: no stage computes it"),
        (CHAIN, "npu", "s.shift('c', 'j', 1)", "H413", "loops c_i, c_j"),
        (CHAIN, "npu", "s.shift('c', 'c_i', 65)", "H413", "65"),
        (CHAIN, "npu", "s.shift('c', 'c_i', -65)", "H413", "-65"),
        (
            CHAIN,
            "cpu",
            "s.shift('c', 'c_i', 1)",
            "H413",
            "cpu_generic, whose processor runs one thing after the other",
        ),
        (
            CHAIN,
            "npu",
            "s.compute_at('b', 'c_i')\ns.shift('b', 'c_i', 1)",
            "H411",
            "c[c_i=0, c_j=0] reads b before what it needs has run: c[c_i=0, c_j=0] and b[i=0, j=0]",
        ),
        (CHAIN, "npu", "s.shift('c', [], 1)", "H413", "none"),
        (CHAIN, "npu", "s.shift('c', ['c_j', 'c_i'], 1)", "H413", "loops c_i, c_j"),
        (
            MATMUL,
            "npu",
            "s.shift('c', ['i', 'k'], 1)",
            "H413",
            "loops i, j, k",
        ),
        (
            CHAIN,
            "npu",
            "s.compute_at('b', 'c_j')\ns.shift('c', ['c_i', 'c_j'], 1)\ns.shift('b', 'c_j', 1)",
            "H413",
            "b is shifted in c_j",
        ),
        (
            MATMUL,
            "npu",
            "s.cache_read('b', 'local')\ns.compute_at('b_local', 'k')\n"
            "s.shift('c', ['i', 'j', 'k'], 1)\ns.shift('b_local', ['j', 'k'], 1)",
            "H413",
            "c is shifted in i, j, k",
        ),
        (
            CHAIN,
            "npu",
            "s.compute_at('b', 'c_j')\ns.shift('b', ['c_i', 'c_j'], 1)",
            "H411",
            "c[c_i=0, c_j=0] reads b before what it needs has run: c[c_i=0, c_j=0] and b[i=0, j=0]",
        ),
        (
            ROWSUM,
            "npu",
            "s.decompose_reduction('b', 'k')\ns.shift('b_init', 'i', 1)",
            "H411",
            "an initialisation comes after a contribution: b_init[i=0] and b[i=0, k=47]",
        ),
    ],
    "sink": [
        (CHAIN, "npu", "s.sink('d', 'c_i', 'last')", "H414", "d"),
        (CHAIN, "npu", "s.sink('b', 'k', 'last')", "H414", "k"),
        (CHAIN, "npu", "s.sink('b', 'c_i', 'middle')", "H413", "'middle'"),
        (
            CHAIN,
            "cpu",
            "s.sink('c', 'i', 'last')",
            "H413",
            "cpu_generic, whose processor runs one thing after the other",
        ),
        (
            CHAIN,
            "npu",
            "s.compute_at('b', 'c_i')\ns.sink('c', 'c_j', 'last')",
            "H413",
            "c_j is in c_i, c in c_i, c_j",
        ),
        (
            CHAIN,
            "npu",
            "s.sink('c', 'c_i', 'last')",
            "H413",
            "c_i is in no loop, c in c_i, c_j",
        ),
        (
            CHAIN,
            "npu",
            "s.sink('c', 'i', 'first')",
            "H411",
            "c[i=0, c_i=1, c_j=0] reads b before what it needs has run: c[i=0, c_i=1, c_j=0] and "
            "b[i=1, j=0]",
        ),
    ],
    "interleave": [
        (CHAIN, "npu", "s.interleave('i', 'k', (32, 32))", "H414", "k"),
        (
            CHAIN,
            "cpu",
            "s.interleave('i', 'c_i', (32, 32))",
            "H413",
            "cpu_generic, whose processor runs one thing after the other",
        ),
        (
            CHAIN,
            "npu",
            "s.interleave('i', 'c_j', (32, 32))",
            "H413",
            "one inside nothing, one inside c_i",
        ),
        (
            CHAIN,
            "npu",
            "s.interleave('i', 'c_i', (32, 32), 'j')",
            "H413",
            "they are inside nothing",
        ),
        (CHAIN, "npu", "s.interleave('i', 'c_i', (32, 0))", "H413", "pieces of 32, 0"),
        (CHAIN, "npu", "s.interleave('i', 'c_i', ())", "H413", "pieces of nothing"),
        (
            CHAIN,
            "npu",
            "s.reorder('c_j', 'c_i')\ns.interleave('i', 'c_j', (32, 32))",
            "H411",
            "c[i_c_j_t=0, c_j=0, c_i=32] reads b before what it needs has run: "
            "c[i_c_j_t=0, c_j=0, c_i=32] and b[i=32, j=0]",
        ),
    ],
    "retain": [
        (MATMUL, "npu", "s.retain('b', 'i')", "H413", "b is an input: the caller's array"),
        (MATMUL, "npu", "s.retain('d', 'i')", "H414", "d"),
        (
            MATMUL,
            "npu",
            "s.cache_read('b', 'local')\ns.retain('b_local', 'l')",
            "H414",
            "l",
        ),
        (MATMUL, "npu", "s.cache_read('b', 'local')\ns.retain('b_local', 'i')", "H413", "i"),
        (
            MATMUL,
            "npu",
            "s.cache_read('b', 'local')\ns.compute_at('b_local', 'j')\ns.retain('b_local', 'j')",
            "H413",
            "b_local_1 = j",
        ),
    ],
    "decompose_padding": [
        (PADDED, "npu", "s.decompose_padding('a')", "H414", "a is an input: no stage computes it"),
        (PADDED, "npu", "s.decompose_padding('b')", "H413", "b[i] = a[i] * 2"),
        (
            PADDED,
            "npu",
            "s.compute_at('b', 'p_i')\ns.decompose_padding('p')",
            "H413",
            "loops of p that hold other stages, or a call",
        ),
    ],
    "bind_expr": [
        (NARROW, "npu", "s.bind_expr('c', 'a[i, j] + b[i, j]')", "H413", NARROW_C),
        (NARROW, "npu", "s.bind_expr('c', 'a[i, j]')", "H413", NARROW_C),
        (
            NARROW,
            "npu",
            "s.bind_expr('a', 'a[i, j]')",
            "H414",
            "a is an input: no stage computes it",
        ),
    ],
    "rewrite_expr": [
        (NARROW, "npu", "s.rewrite_expr('c', '1 + 1', '2')", "H413", NARROW_C),
        (
            NARROW,
            "npu",
            "s.rewrite_expr('c', 'a[i, j] - b[i, j]', 'b[i, j] - a[i, j]')",
            "H413",
            f"{NARROW_C}, with b[i, j] - a[i, j]",
        ),
        (
            CHAIN,
            "npu",
            "s.rewrite_expr('b', 'a[i, j] * 2', 'a[i, j] + a[i, j]')",
            "H413",
            "b[i, j] = a[i, j] * 2, with a[i, j] + a[i, j]",
        ),
    ],
    "distribute": [
        (MATMUL, "npu", "s.distribute('c')", "H413", "c[i, j] += a[i, k] * b[k, j]"),
        (NARROW, "npu", "s.distribute('c')", "H413", NARROW_C),
        (NARROW, "npu", "s.distribute('a')", "H414", "a is an input: no stage computes it"),
    ],
    "weigh": [
        (NARROW, "cpu", "s.weigh('c', 'int8')", "H413", "a processor without units"),
        (NARROW, "npu", "s.weigh('c', 'int32')", "H413", "int32"),
        (NARROW, "npu", "s.weigh('c', 'float16')", "H413", "float16"),
        (NARROW, "npu", "s.weigh('a', 'int8')", "H414", "a is an input: no stage computes it"),
        (CHAIN, "npu", "s.weigh('b', 'int8')", "H413", "b[i, j] = a[i, j] * 2"),
        (MATMUL, "npu", "s.weigh('c', 'int8')", "H413", "c[i, j] += a[i, k] * b[k, j]"),
        (
            NARROW,
            "npu",
            "s.weigh('c', 'int8')\ns.weigh('c', 'int8')",
            "H413",
            "c[i, j] = int8(clip(int32(a[i, j]) * int32(c_times_1[0]) + "
            "int32(b[i, j]) * int32(c_times_minus_1[0]), -128, 127))",
        ),
    ],
    "start_from": [
        (
            BIASED,
            "npu",
            "s.start_from('acc', 'x')",
            "H413",
            "y[i, j] = max(acc[i, j] + bias[j], 0)",
        ),
        (BIASED, "npu", "s.start_from('acc', 'z')", "H414", "z"),
        (BIASED, "npu", "s.start_from('x', 'bias')", "H414", "x is an input: no stage computes it"),
        (
            BIASED,
            "npu",
            "s.start_from('y', 'bias')",
            "H413",
            "y[i, j] = max(acc[i, j] + bias[j], 0)",
        ),
        (BIASED, "cpu", "s.start_from('acc', 'bias')", "H413", "a processor without units"),
        (
            BIASED,
            "npu",
            "s.start_from('acc', 'bias')\ns.start_from('acc', 'bias')",
            "H413",
            "acc[i, j] += x[i, k] * w[k, j]",
        ),
        (
            BIASED,
            "npu",
            "s.decompose_reduction('acc', 'k')\ns.start_from('acc', 'bias')",
            "H413",
            "its initialisation is already apart",
        ),
        (NORM, "npu", "s.start_from('t', 'a')", "H413", "float32 and float32"),
        (CHAIN, "npu", "s.start_from('c', 'b')", "H413", "c[i, j] = b[i, j] + 1"),
    ],
    "alias": [
        (CHAIN, "npu", "s.alias('c', 'b')", "H413", "c is an output: the caller's array"),
        (CHAIN, "npu", "s.alias('b', 'c')", "H413", "c is an output: the caller's array"),
        (CHAIN, "npu", "s.alias('b', 'a')", "H413", "a is an input: the caller's array"),
        (CHAIN, "npu", "s.alias('b', 'd')", "H414", "d"),
        (CHAIN, "npu", "s.alias('b', 'b')", "H413", "b in the place of b"),
        (
            REUSE,
            "npu",
            "s.set_scope('b', 'local')\ns.set_scope('t', 'local')\n"
            "c_local = s.cache_write('c', 'local')\n"
            "s.alias('c_local', 't')\ns.alias('t', 'c_local')",
            "H413",
            "c_local in the place of t",
        ),
        (
            REUSE,
            "cpu",
            "s.alias('t', 'b')",
            "H413",
            "cpu_generic, whose processor allocates each buffer while it is in use",
        ),
        (
            NORM,
            "npu",
            "s.set_scope('t', 'local')\ns.cache_read('a', 'local')\ns.alias('t', 'a_local')",
            "H413",
            "float32[16] and float32[16, 32]",
        ),
        (
            NORM,
            "npu",
            "s.set_scope('t', 'local')\ns.cache_read('a', 'local')\n"
            "s.transform_layout('a_local', '[i, j] -> [i, (i + j) % 32]')\n"
            "s.alias('t', 'a_local')",
            "H413",
            "float32[16] and float32[16, 32]",
        ),
        (
            MIXED,
            "npu",
            "s.set_scope('b', 'local')\ns.cache_read('a', 'local')\ns.alias('b', 'a_local')",
            "H413",
            "int32[16] and int8[16]",
        ),
        (
            REUSE,
            "npu",
            "s.set_scope('b', 'local')\ns.alias('t', 'b')",
            "H413",
            "the default memory and local",
        ),
        *(
            (
                REUSE,
                "npu",
                f"s.set_scope('b', 'local')\ns.set_scope('t', 'local')\n{edit}",
                "H411",
                "t[t_i=0, t_j=0] overwrites an element of b that c[c_i=0, c_j=0] uses",
            )
            for edit in ("s.alias('t', 'b')", "s.alias('b', 't')")
        ),
    ],
}
