/* The public runtime calls of VTA, for the shim in tests/shim/runtime.c.
 *
 * Written from the public description of the calls alone. What the shim adds begins with
 * VTAShim. Offsets, sizes, strides and SRAM indices count entries of the memory concerned.
 */
#ifndef VTA_RUNTIME_RUNTIME_H_
#define VTA_RUNTIME_RUNTIME_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void *VTACommandHandle;

VTACommandHandle VTATLSCommandHandle(void);

/* An opaque handle, not a data pointer. */
void *VTABufferAlloc(size_t size);
void VTABufferFree(void *buffer);
void *VTABufferCPUPtr(VTACommandHandle cmd, void *buffer);
/* kind_mask 1: host to device, 2: device to host; offsets in bytes. */
void VTABufferCopy(const void *from, size_t from_offset, void *to, size_t to_offset, size_t size,
                   int kind_mask);

void VTALoadBuffer2D(VTACommandHandle cmd, void *src_dram_addr, uint32_t src_elem_offset,
                     uint32_t x_size, uint32_t y_size, uint32_t x_stride, uint32_t x_pad_before,
                     uint32_t y_pad_before, uint32_t x_pad_after, uint32_t y_pad_after,
                     uint32_t dst_sram_index, uint32_t dst_memory_type);
void VTAStoreBuffer2D(VTACommandHandle cmd, uint32_t src_sram_index, uint32_t src_memory_type,
                      void *dst_dram_addr, uint32_t dst_elem_offset, uint32_t x_size,
                      uint32_t y_size, uint32_t x_stride);

void VTAUopLoopBegin(uint32_t extent, uint32_t dst_factor, uint32_t src_factor,
                     uint32_t wgt_factor);
void VTAUopLoopEnd(void);
void VTAUopPush(uint32_t mode, uint32_t reset_out, uint32_t dst_index, uint32_t src_index,
                uint32_t wgt_index, uint32_t opcode, uint32_t use_imm, int32_t imm_val);
int VTAPushGEMMOp(void **uop_handle, int (*finit)(void *), void *signature, int nbytes);
int VTAPushALUOp(void **uop_handle, int (*finit)(void *), void *signature, int nbytes);

int VTADepPush(VTACommandHandle cmd, int from_qid, int to_qid);
int VTADepPop(VTACommandHandle cmd, int from_qid, int to_qid);
void VTASynchronize(VTACommandHandle cmd, uint32_t wait_cycles);

/* --- what only the shim has --- */

/* Which ready stage runs next. Seeded random where `seed` is not 0. */
enum VTAShimOrder {
  VTA_SHIM_COMPUTE_FIRST = 0,
  VTA_SHIM_LOAD_FIRST = 1,
  VTA_SHIM_STORE_FIRST = 2,
  VTA_SHIM_ROUND_ROBIN = 3,
  VTA_SHIM_RANDOM = 4
};

/* Poison every memory, forget tokens, counters and errors, and choose the interleaving. */
void VTAShimReset(int order, uint32_t seed);

/* 0, or the code of the first error since the reset; the calls after an error do nothing. */
enum VTAShimError {
  VTA_SHIM_OK = 0,
  VTA_SHIM_HANDLE = 1,      /* not a live buffer handle, or a handle where a pointer belongs */
  VTA_SHIM_DRAM = 2,        /* outside the buffer */
  VTA_SHIM_SRAM = 3,        /* outside the on-chip memory */
  VTA_SHIM_FIELD = 4,       /* a bit field would be truncated silently */
  VTA_SHIM_MEMORY_TYPE = 5, /* no such memory here */
  VTA_SHIM_UOP = 6,         /* misuse of the micro-kernel calls */
  VTA_SHIM_REWRITE = 7,     /* a micro-op rewrites one of the two before it */
  VTA_SHIM_CAPACITY = 8,    /* too many micro-ops or instructions between synchronisations */
  VTA_SHIM_TOKEN = 9,       /* tokens between stages that are no neighbours, or doubled pops */
  VTA_SHIM_DEADLOCK = 10,
  VTA_SHIM_LEFTOVER = 11,
  VTA_SHIM_ALU_HAZARD = 12, /* the previous micro-op's dst is touched */
  VTA_SHIM_STALE_STORE = 13, /* store of what an ACC load wrote last */
  VTA_SHIM_UNINITIALISED = 14,
  VTA_SHIM_UNSUPPORTED = 15, /* MUL, shifts to the left */
  VTA_SHIM_RACE = 16,        /* conflicting accesses that no token orders */
  VTA_SHIM_TWO_READINGS = 17 /* the simulator and the RTL compute different numbers */
};
int VTAShimStatus(void);
const char *VTAShimMessage(void);

/* Let the allocation after `more` further ones give null; a negative number lets all succeed. */
void VTAShimFailAllocation(int more);
/* Live buffers; 0 after a kernel that gives everything back. */
size_t VTAShimLiveBuffers(void);
/* Instructions executed since the reset, NOPs, micro-op loads and FINISH included. */
uint64_t VTAShimInstructions(void);
/* Write each executed instruction as one JSON line to this file; null stops that. */
void VTAShimTrace(const char *path);

#ifdef __cplusplus
}
#endif

#endif /* VTA_RUNTIME_RUNTIME_H_ */
