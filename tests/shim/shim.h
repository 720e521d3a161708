/* What the two halves of the shim share: the instruction stream, buffers, the error state. */
#ifndef TESTS_SHIM_SHIM_H_
#define TESTS_SHIM_SHIM_H_

#include <stddef.h>
#include <stdint.h>

#ifndef VTA_BATCH
#define VTA_BATCH 1
#endif
#ifndef VTA_BLOCK_IN
#define VTA_BLOCK_IN 16
#endif
#ifndef VTA_BLOCK_OUT
#define VTA_BLOCK_OUT 16
#endif

/* Elements of one entry, and entries: the memories keep their bytes in every configuration. */
#define INP_LANES (VTA_BATCH * VTA_BLOCK_IN)
#define WGT_LANES (VTA_BLOCK_OUT * VTA_BLOCK_IN)
#define ACC_LANES (VTA_BATCH * VTA_BLOCK_OUT)
#define INP_ENTRIES (32 * 1024 / INP_LANES)
#define WGT_ENTRIES (256 * 1024 / WGT_LANES)
#define ACC_ENTRIES (128 * 1024 / (4 * ACC_LANES))
#define UOP_ENTRIES 2048

enum memory { MEM_UOP = 0, MEM_WGT = 1, MEM_INP = 2, MEM_ACC = 3, MEM_OUT = 4, MEM_ACC_8BIT = 5 };
enum stage { LOAD = 1, COMPUTE = 2, STORE = 3 };
enum opcode { ALU_MIN = 0, ALU_MAX = 1, ALU_ADD = 2, ALU_SHR = 3, ALU_MUL = 4 };

struct buffer {
  unsigned char *data;
  unsigned char *defined; /* one flag per byte */
  size_t size;
  uint64_t address; /* as the bus sees it; buffers begin on pages */
  int live;
};

struct uop {
  uint32_t dst, src, wgt;
};

struct kernel {
  int mode, reset, opcode, use_imm, imm;
  int loops, open_loops;
  struct {
    uint32_t extent, dst, src, wgt;
  } loop[2];
  struct uop *ops;
  uint32_t count, room;
  uint32_t sram;   /* where its micro-ops lie in UOP memory... */
  uint64_t loaded; /* ...since this synchronisation */
};

enum kind { NOP, LOAD_UOP, LOAD_DATA, STORE_DATA, GEMM, ALU, FINISH };

struct insn {
  enum kind kind;
  int stage;
  unsigned pop_prev : 1, pop_next : 1, push_prev : 1, push_next : 1;
  uint32_t memory, sram, x, y, stride, pad[4]; /* pad: x before, y before, x after, y after */
  uint64_t offset;                             /* bytes into the buffer */
  struct buffer *buffer;
  struct kernel *kernel;
};

/* Record the first error; every later call does nothing. */
void shim_fail(int code, const char *format, ...);
int shim_failed(void);

uint32_t memory_entries(uint32_t memory);
uint32_t entry_bytes(uint32_t memory);

/* Forget all state of the chip and poison its memories. */
void chip_reset(int order, uint32_t seed);
/* Execute a whole stream in a legal order. */
void chip_execute(const struct insn *stream, size_t count);

#endif
