/* The public macro interface as a 64-bit RISC-V host core sees it: each macro is one instruction of
 * two registers, and the arithmetic that packs its operands into them.
 *
 * The packing is that of the library's header (ucb-bar/gemmini-rocc-tests, include/gemmini.h). The
 * instruction itself is an addition that keeps no result, so that any RISC-V emulator runs it; on an
 * x86-64 core, where loops are counted as text alone, a test of a bit.
 */
#ifndef COUNTED_GEMMINI_H
#define COUNTED_GEMMINI_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define DIM 16
#define ADDR_LEN 32
#define MVIN_SCALE_IDENTITY 1.0f
#define ACC_SCALE_IDENTITY 1.0f
#define GARBAGE_ADDR ((uint32_t)(-1))
#define WEIGHT_STATIONARY 1
#define NO_ACTIVATION 0
#define RELU 1

static inline uint64_t counted_bits(float x)
{
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

#ifdef __riscv
#define COUNTED(rs1, rs2) \
  __asm__ volatile(".insn r 0x33, 0, 0, x0, %0, %1" : : "r"((uint64_t)(rs1)), "r"((uint64_t)(rs2)))
#define COUNTED_FENCE "fence"
#else
#define COUNTED(rs1, rs2) \
  __asm__ volatile("bt %0, %1" : : "r"((uint64_t)(rs1)), "r"((uint64_t)(rs2)) : "cc")
#define COUNTED_FENCE "mfence"
#endif
#define COUNTED_PACK(address, cols, rows) \
  (((uint64_t)(rows) << (ADDR_LEN + 16)) | ((uint64_t)(cols) << ADDR_LEN) | (uint64_t)(address))

#define gemmini_flush(skip) COUNTED(skip, 0)
#define gemmini_fence() __asm__ volatile(COUNTED_FENCE : : : "memory")

#define gemmini_extended4_config_ld(stride, scale, shrunk, block_stride, id) \
  COUNTED((counted_bits(scale) << 32) | ((uint64_t)(block_stride) << 16) | ((uint64_t)1 << 8) | \
          ((uint64_t)(id) << 3) | ((uint64_t)(shrunk) << 2) | 1, stride)
#define gemmini_extended_config_ex(dataflow, act, shift, A_stride, A_transpose, B_transpose) \
  COUNTED((counted_bits(1.0f) << 32) | ((uint64_t)(A_stride) << 16) | \
          ((uint64_t)(B_transpose) << 9) | ((uint64_t)(A_transpose) << 8) | \
          ((uint64_t)(act) << 3) | ((uint64_t)(dataflow) << 2), ((uint64_t)1 << 48) | (shift))
#define gemmini_extended_config_st(stride, act, scale) \
  COUNTED(((uint64_t)(act) << 2) | 2, (counted_bits(scale) << 32) | (uint32_t)(stride))

#define COUNTED_MOVE(dram, address, cols, rows) \
  COUNTED((uintptr_t)(dram), COUNTED_PACK(address, cols, rows))
#define gemmini_extended_mvin COUNTED_MOVE
#define gemmini_extended_mvin2 COUNTED_MOVE
#define gemmini_extended_mvin3 COUNTED_MOVE
#define gemmini_extended_mvout COUNTED_MOVE

#define COUNTED_PRODUCT(first, second, first_cols, first_rows, second_cols, second_rows) \
  COUNTED(COUNTED_PACK(first, first_cols, first_rows), \
          COUNTED_PACK(second, second_cols, second_rows))
#define gemmini_extended_preload COUNTED_PRODUCT
#define gemmini_extended_compute_preloaded COUNTED_PRODUCT
#define gemmini_extended_compute_accumulated COUNTED_PRODUCT

#endif
