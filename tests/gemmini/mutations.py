"""Kernels of kernels.c with one rule broken each, and the code that must be reported."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """In `kernel`, the first `old` becomes `new`; the header answers with `code`."""

    code: str
    kernel: str
    old: str
    new: str

    def apply(self, source: str, name: str) -> str:
        """The mutated function's text, called `name`."""
        found = re.search(rf"^void {self.kernel}\(.*?^}}\n", source, re.DOTALL | re.MULTILINE)
        assert found, self.kernel
        assert self.old in found[0], self.old
        text = found[0].replace(self.old, self.new, 1)
        return text.replace(f"void {self.kernel}(", f"void {name}(", 1)


def _m(code: str, kernel: str, old: str, new: str) -> Mutation:
    return Mutation(code, kernel, old, new)


FENCE = "  gemmini_fence();\n"
TAIL_LD = "config_ld(37, MVIN_SCALE_IDENTITY, false, 1)"
TAIL_COMPUTE = "preloaded(0, GARBAGE_ADDR, d, m"
TAIL_PRELOAD = "preload(i ? GARBAGE_ADDR : 16368u, k ? c | ADD : c, n, d, n, m)"
MUTATIONS = (
    # Sizes that the public simulator does not check, and those that it does.
    _m("ROWS", "gemm_ws", "32 * i, 32, 16", "32 * i, 32, 17"),
    _m("ROWS", "gemm_ws", "32 * i, 32, 16", "32 * i, 32, 0"),
    _m("COLS", "gemm_ws", "1000 + 48 * k, 48, 16", "1000 + 48 * k, 65, 15"),
    _m("COLS", "gemm_ws", "1000 + 48 * k, 48, 16", "1000 + 48 * k, 0, 16"),
    _m("COLS", "gemm_ws", "c, 16, 16", "c, 17, 15"),
    _m("COLS", "gemm_ws", "(48 * i), 48, 16", "(48 * i), 65, 16"),
    _m("COLS", "gemm_tails", "c | FULL, n, m", "c | FULL, 17, m"),
    _m("ROWS", "gemm_tails", "c | FULL, n, m", "c | FULL, n, 17"),
    _m("ROWS", "gemm_tails", TAIL_PRELOAD, TAIL_PRELOAD.replace("n, d, n", "n, 17, n")),
    _m("COLS", "gemm_tails", TAIL_PRELOAD, TAIL_PRELOAD.replace("n, d, n", "17, d, n")),
    _m("COLS", "gemm_tails", TAIL_PRELOAD, TAIL_PRELOAD.replace("d, n, m", "d, 17, m")),
    _m("ROWS", "gemm_tails", TAIL_PRELOAD, TAIL_PRELOAD.replace("d, n, m", "d, n, 17")),
    _m("COLS", "gemm_tails", TAIL_COMPUTE, TAIL_COMPUTE.replace("d, m", "17, m")),
    _m("ROWS", "gemm_tails", TAIL_COMPUTE, TAIL_COMPUTE.replace("d, m", "d, -1")),
    _m("COLS", "gemm_os", "100, 16, 14, 11, 16", "100, 16, 14, 17, 16"),
    _m("ROWS", "gemm_os", "100, 16, 14, 11, 16", "100, 16, 14, 11, 17"),
    _m("C_ROWS", "gemm_tails", TAIL_COMPUTE, TAIL_COMPUTE.replace("d, m", "d, 3")),
    _m("BLOCK_STRIDE", "blocks", "false, 8, 1", "false, 7, 1"),
    _m("STRIDE", "blocks", "config_st(40)", "config_st(15)"),
    # Ranges.
    _m("RANGE", "gemm_tails", "16383 - 15", "16383 - 14"),
    _m("RANGE", "blocks", "X, 16384 - 16 * 3 - 7", "X, 16384 - 16 * 3 - 6"),
    _m("RANGE", "blocks", "U, 16384 - 16 * 3 - 7", "U, 16384 - 16 * 3 - 6"),
    _m("RANGE", "acc_moves", "ACC + 1021, 6, 3", "ACC + 1022, 6, 3"),
    _m("RANGE", "gemm_os", "GARBAGE_ADDR, ACC + 1000", "GARBAGE_ADDR, ACC + 1011"),
    _m("RANGE", "gemm_os", "ACC + FULL + 1000", "ACC + FULL + 1011"),
    _m("RANGE", "gemm_os", "preload(200", "preload(16371"),
    _m("RANGE", "gemm_os", "preloaded(0, 100", "preloaded(16371, 100"),
    _m("RANGE", "gemm_os", "preloaded(0, 100", "preloaded(0, 16369"),
    _m("RANGE", "ws_a_transposed", "preloaded(16371", "preloaded(16372"),
    _m("RANGE", "ws_b_transposed", "preloaded(500", "preloaded(16368"),
    # Addresses.
    _m("ADDRESS", "gemm_ws", "(C + i * 16 * 48, ACC", "(C + i * 16 * 48, 0x04000000u + ACC"),
    _m("ADDRESS", "gemm_ws", "C + i * 16 * 48, ACC", "C + i * 16 * 48, 0x10000000u + ACC"),
    _m("ADDRESS", "gemm_ws", "bias + 16 * j, c", "bias + 16 * j, c | FULL"),
    _m("ADDRESS", "gemm_ws", "bias + 16 * j, c", "bias + 16 * j, (int32_t)c"),
    _m("ADDRESS", "gemm_ws", "bias + 16 * j, c", "bias + 16 * j, GARBAGE_ADDR"),
    _m("ADDRESS", "blocks", "mvout(V, 0", "mvout(V, FULL"),
    _m("ADDRESS", "gemm_os", "preloaded(0, 100", "preloaded(ADD, 100"),
    _m("OPERAND", "gemm_os", "preload(200", "preload(ACC"),
    _m("OPERAND", "gemm_os", "preloaded(0, 100", "preloaded(ACC, 100"),
    _m("OPERAND", "gemm_os", "preloaded(0, 100", "preloaded(0, ACC"),
    _m("OPERAND", "gemm_os", "preloaded(0, 100", "preloaded(0, GARBAGE_ADDR"),
    _m("OPERAND", "gemm_os", "preloaded(0, 100", "preloaded(GARBAGE_ADDR, 100"),
    _m("OPERAND", "ws_b_transposed", "preloaded(500, 30", "preloaded(500, ACC"),
    _m("OPERAND", "both", "zeros(ACC)", "zeros(300)"),
    # Configuration.
    _m("CONFIG", "gemm_tails", "  gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0);\n", ""),
    _m("CONFIG", "gemm_tails", "  gemmini_config_st(37 * 4);\n", ""),
    _m("CONFIG", "both", "  gemmini_config_ld(16);\n", ""),
    _m("CONFIG", "both", "  gemmini_config_ld(16);\n  gemmini_config_st(16 * 4);\n",
       "  gemmini_config_st(64);\n  gemmini_preload_zeros(ACC);\n  gemmini_config_ld(16);\n"),
    _m("CONFIG", "gemm_tails", TAIL_LD, "config_ld(37, 1, 0, 2)"),
    _m("CONFIG_VALUE", "gemm_tails", TAIL_LD, "config_ld(37, 1, 0, 3)"),
    _m("CONFIG_VALUE", "gemm_tails", TAIL_LD, "config_ld(-37, 1.0f, 0, 1)"),
    _m("CONFIG_VALUE", "gemm_tails", TAIL_LD, "config_ld(37, 1e30f * 1e30f, 0, 1)"),
    _m("CONFIG_VALUE", "blocks", "false, 8, 1", "false, 0, 1"),
    _m("CONFIG_VALUE", "gemm_ws", "RELU, 0.0078125f", "RELU, -0.0078125f"),
    _m("CONFIG_VALUE", "gemm_ws", "RELU, 0.0078125f", "2, 0.0078125f"),
    _m("CONFIG_VALUE", "gemm_ws", "config_ex(WEIGHT_STATIONARY", "config_ex(2"),
    _m("CONFIG_VALUE", "ws_b_transposed", "0, 2, 0, 1)", "0, 0, 0, 1)"),
    _m("CONFIG_VALUE", "acc_moves", "40, MVIN_SCALE_IDENTITY, true", "40, 0.5f, true"),
    _m("TRANSPOSE", "ws_a_transposed", "0, 1, 1, 0)", "0, 1, 1, 1)"),
    _m("TRANSPOSE", "ws_a_transposed", "0, 1, 1, 0)", "0, 2, 1, 0)"),
    _m("TRANSPOSE", "os_transposed", "0, 1, 1, 1)", "0, 1, 0, 1)"),
    # Preloads.
    _m("PRELOAD_MISSING", "both", "  gemmini_preload_zeros(ACC + ADD);\n", ""),
    _m("PRELOAD_TWICE", "both", "  gemmini_compute_preloaded(0, GARBAGE_ADDR);\n", ""),
    _m("PRELOAD_LEFT", "both", "  gemmini_compute_accumulated(0, GARBAGE_ADDR);\n", ""),
    _m("PRELOAD_CONFIG", "both", "  gemmini_preload_zeros(ACC);\n",
       "  gemmini_preload_zeros(ACC);\n  gemmini_config_ex(0, 0, 0);\n"),
    _m("PRELOAD_OVERWRITTEN", "gemm_os", "  gemmini_extended_compute_preloaded",
       "  gemmini_extended_mvin2(D, 213, 11, 1);\n  gemmini_extended_compute_preloaded"),
    _m("PRELOAD_OVERWRITTEN", "gemm_os", "  gemmini_extended_compute_preloaded",
       "  gemmini_extended_mvin(A, 184, 32, 16);\n  gemmini_extended_compute_preloaded"),
    # Data that nobody wrote, where it reaches a store.
    _m("POISON", "gemm_ws", "    gemmini_extended_mvin(A + i * 16 * 32, 32 * i, 32, 16);\n",
       "    gemmini_extended_mvin(A + i * 16 * 32, 32 * i, 31, 16);\n"),
    _m("POISON", "gemm_ws", "      gemmini_extended_mvin3(bias + 16 * j, c, 16, 16);\n", ""),
    _m("POISON", "gemm_ws", "bias + 16 * j, c, 16, 16", "bias + 16 * j, c | ADD, 16, 16"),
    _m("POISON", "gemm_os", "mvin2(D, 200, 11, 14)", "mvin2(D, 200, 11, 13)"),
    _m("POISON", "gemm_os", "compute_preloaded", "compute_accumulated"),
    _m("POISON", "both", "gemmini_preload(16, ACC + ADD);\n  gemmini_compute_preloaded",
       "gemmini_preload(16, ACC + ADD);\n  gemmini_compute_accumulated"),
    _m("POISON", "gemm_tails", TAIL_PRELOAD, TAIL_PRELOAD.replace("d, n, m", "d, 1, m")),
    _m("POISON", "blocks", "X, 16384 - 16 * 3 - 7, 57, 7", "X, 16384 - 16 * 3 - 7, 57, 6"),
    _m("POISON", "masked", "  gemmini_extended_mvin2(0, 20, 16, 1);\n", ""),
    _m("POISON", "masked", "mvin2(0, 20, 16, 1)", "mvin2(B, 20, 16, 1)"),
    # DRAM.
    _m("DRAM_RANGE", "gemm_ws", "mvin2(B + k * 16 * 48", "mvin2(B + 48 + k * 16 * 48"),
    _m("DRAM_RANGE", "gemm_ws", "config_ld(32", "config_ld(33"),
    _m("DRAM_RANGE", "gemm_ws", "mvin(A + i", "mvin(A - 1 + i"),
    _m("DRAM_RANGE", "gemm_ws", "mvout(C + i", "mvout(C + 1 + i"),
    _m("DRAM_RANGE", "gemm_ws", "mvout(C + i", "mvout((char *)0 + i"),
    _m("DRAM_ACCESS", "gemm_ws", "mvout(C + i", "mvout(B + i"),
    _m("DRAM_ACCESS", "gemm_ws", "mvin2(B + k", "mvin2(C + k"),
    _m("DRAM_FENCE", "acc_moves", FENCE, ""),
    _m("FENCE_MISSING", "gemm_ws", FENCE, ""),
    _m("FENCE_MISSING", "acc_moves", FENCE + "}", "}"),
)  # fmt: skip
