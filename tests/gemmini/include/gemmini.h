/* The public macro interface of the accelerator, executed on the host by machine.h.
 *
 * Names and argument orders are those of the library's header (ucb-bar/gemmini-rocc-tests,
 * include/gemmini.h, https://github.com/ucb-bar/gemmini-rocc-tests/blob/master/include/gemmini.h)
 * in the version whose config_st takes the activation and the scale; what they do is written anew.
 * Everything that is missing here (the loop instructions, pooling, im2col) does not compile.
 */
#ifndef SHIM_GEMMINI_H
#define SHIM_GEMMINI_H

#include <stdbool.h>

#include "../machine.h"

#define DIM 16
#define ADDR_LEN 32
#define BANK_NUM 4
#define BANK_ROWS 4096
#define ACC_ROWS 1024
#define MAX_BYTES 64
#define MAX_BLOCK_LEN 4
#define MAX_BLOCK_LEN_ACC 1

typedef int8_t elem_t;
typedef int32_t acc_t;
typedef float scale_t;
typedef float acc_scale_t;

#define MVIN_SCALE_IDENTITY 1.0f
#define ACC_SCALE_IDENTITY 1.0f

#define GARBAGE_ADDR ((uint32_t)(-1))
#define OUTPUT_STATIONARY 0
#define WEIGHT_STATIONARY 1
#define NO_ACTIVATION 0
#define RELU 1

/* Integers arrive as 64 bits: a negative address or size is seen as the mistake that it is. */
#define SHIM_INT(x) ((uint64_t)(x))
#define SHIM_DRAM(x) ((uintptr_t)(x))

/* Configuration. */
#define gemmini_extended_config_ex(dataflow, sys_act, sys_shift, A_stride, A_transpose, \
                                   B_transpose) \
  shim_config_ex(SHIM_INT(dataflow), SHIM_INT(sys_act), SHIM_INT(sys_shift), SHIM_INT(A_stride), \
                 SHIM_INT(A_transpose), SHIM_INT(B_transpose))
#define gemmini_config_ex(dataflow, sys_act, sys_shift) \
  gemmini_extended_config_ex(dataflow, sys_act, sys_shift, 1, 0, 0)

#define gemmini_extended4_config_ld(stride, scale, shrunk, block_mvin_stride, id) \
  shim_config_ld(SHIM_INT(stride), (scale), SHIM_INT(shrunk), SHIM_INT(block_mvin_stride), \
                 SHIM_INT(id))
#define gemmini_extended3_config_ld(stride, scale, shrunk, id) \
  gemmini_extended4_config_ld(stride, scale, shrunk, DIM, id)
#define gemmini_extended2_config_ld(stride, scale, shrunk) \
  gemmini_extended3_config_ld(stride, scale, shrunk, 0)
#define gemmini_extended_config_ld(stride, scale) gemmini_extended2_config_ld(stride, scale, false)
#define gemmini_config_ld(stride) gemmini_extended_config_ld(stride, MVIN_SCALE_IDENTITY)

#define gemmini_extended_config_st(stride, acc_act, acc_scale) \
  shim_config_st(SHIM_INT(stride), SHIM_INT(acc_act), (acc_scale))
#define gemmini_config_st(stride) \
  gemmini_extended_config_st(stride, NO_ACTIVATION, ACC_SCALE_IDENTITY)

/* Data movement. */
#define gemmini_extended_mvin(dram_addr, spad_addr, cols, rows) \
  shim_mvin(0, SHIM_DRAM(dram_addr), SHIM_INT(spad_addr), SHIM_INT(cols), SHIM_INT(rows))
#define gemmini_extended_mvin2(dram_addr, spad_addr, cols, rows) \
  shim_mvin(1, SHIM_DRAM(dram_addr), SHIM_INT(spad_addr), SHIM_INT(cols), SHIM_INT(rows))
#define gemmini_extended_mvin3(dram_addr, spad_addr, cols, rows) \
  shim_mvin(2, SHIM_DRAM(dram_addr), SHIM_INT(spad_addr), SHIM_INT(cols), SHIM_INT(rows))
#define gemmini_block_mvin(dram_addr, spad_addr, len) \
  gemmini_extended_mvin(dram_addr, spad_addr, (len) * DIM, DIM)
#define gemmini_mvin(dram_addr, spad_addr) gemmini_extended_mvin(dram_addr, spad_addr, DIM, DIM)

#define gemmini_extended_mvout(dram_addr, spad_addr, cols, rows) \
  shim_mvout(SHIM_DRAM(dram_addr), SHIM_INT(spad_addr), SHIM_INT(cols), SHIM_INT(rows))
#define gemmini_mvout(dram_addr, spad_addr) gemmini_extended_mvout(dram_addr, spad_addr, DIM, DIM)

/* Matrix products. */
#define gemmini_extended_preload(BD, C, BD_cols, BD_rows, C_cols, C_rows) \
  shim_preload(SHIM_INT(BD), SHIM_INT(C), SHIM_INT(BD_cols), SHIM_INT(BD_rows), \
               SHIM_INT(C_cols), SHIM_INT(C_rows))
#define gemmini_preload(BD, C) gemmini_extended_preload(BD, C, DIM, DIM, DIM, DIM)
#define gemmini_preload_zeros(C) gemmini_preload(GARBAGE_ADDR, C)

#define gemmini_extended_compute_preloaded(A, BD, A_cols, A_rows, BD_cols, BD_rows) \
  shim_compute(1, SHIM_INT(A), SHIM_INT(BD), SHIM_INT(A_cols), SHIM_INT(A_rows), \
               SHIM_INT(BD_cols), SHIM_INT(BD_rows))
#define gemmini_extended_compute_accumulated(A, BD, A_cols, A_rows, BD_cols, BD_rows) \
  shim_compute(0, SHIM_INT(A), SHIM_INT(BD), SHIM_INT(A_cols), SHIM_INT(A_rows), \
               SHIM_INT(BD_cols), SHIM_INT(BD_rows))
#define gemmini_compute_preloaded(A, BD) \
  gemmini_extended_compute_preloaded(A, BD, DIM, DIM, DIM, DIM)
#define gemmini_compute_accumulated(A, BD) \
  gemmini_extended_compute_accumulated(A, BD, DIM, DIM, DIM, DIM)

/* Synchronisation. */
#define gemmini_flush(skip) ((void)(skip), shim_flush())
#define gemmini_fence() shim_fence()

#endif
