/* A machine of two on-chip memories and one 16 x 16 array, written from hw facts, not from hwgen.
 *
 * Every element carries a state beside its value. What nobody wrote is POISON; sums and products
 * with it are poison, and storing it to DRAM stops the program, as does every broken rule: one
 * line `shim error CODE: ...` on stderr and exit status SHIM_STATUS. A product with a ZERO (the
 * array's own padding, or a load from DRAM address 0) is zero whatever the other factor is.
 */
#ifndef SHIM_MACHINE_H
#define SHIM_MACHINE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHIM_STATUS 70
#define SHIM_N 16 /* rows and columns of the array, and elements of a memory row */
#define SHIM_SPAD_ROWS 16384
#define SHIM_ACC_ROWS 1024
#define SHIM_MAX_COLS 64 /* of one move of int8 */
#define SHIM_BUFFERS 64
#define SHIM_GARBAGE 0xFFFFFFFFu
#define SHIM_ACCUMULATOR (1u << 31)
#define SHIM_ACCUMULATE (1u << 30)
#define SHIM_FULL (1u << 29)

enum shim_kind {
  SHIM_CONFIG_EX, SHIM_CONFIG_LD, SHIM_CONFIG_ST, SHIM_MVIN, SHIM_MVIN2, SHIM_MVIN3, SHIM_PRELOAD,
  SHIM_COMPUTE_PRELOADED, SHIM_COMPUTE_ACCUMULATED, SHIM_MVOUT, SHIM_FENCE, SHIM_FLUSH, SHIM_KINDS
};

enum shim_state { SHIM_POISON, SHIM_DATA, SHIM_ZERO };

typedef struct {
  int32_t value;
  unsigned char state;
} shim_cell;

typedef struct {
  int garbage, accumulator, accumulate, full;
  uint64_t row;
} shim_place;

typedef struct {
  const char *name;
  unsigned char *base;
  size_t bytes;
  int readable, writable;
  unsigned char *stored; /* per byte: 0 never, 1 since the last fence, 2 before it */
  int dirty;             /* some byte is 1 */
  uint64_t bytes_read, bytes_written;
} shim_buffer;

static struct {
  shim_cell spad[SHIM_SPAD_ROWS][SHIM_N], acc[SHIM_ACC_ROWS][SHIM_N], array[SHIM_N][SHIM_N];
  struct { int set, weights; uint64_t a_stride; int a_transpose, b_transpose; } ex;
  struct { int set; uint64_t stride; float scale; int shrunk; uint64_t block_stride; } ld[3];
  struct { int set; uint64_t stride; int relu; float scale; } st;
  struct {
    int set;
    shim_place bd, c;
    uint64_t bd_cols, bd_rows, bd_stored_rows, c_cols, c_rows;
  } preload;
  shim_buffer buffers[SHIM_BUFFERS];
  int buffer_count;
  uint64_t counts[SHIM_KINDS], issued;
} shim;

static inline const char *shim_kind_name(int kind)
{
  static const char *const names[SHIM_KINDS] = {
    "config_ex", "config_ld", "config_st", "mvin", "mvin2", "mvin3", "preload",
    "compute_preloaded", "compute_accumulated", "mvout", "fence", "flush"};
  return names[kind];
}

static inline void shim_check(int ok, const char *code, const char *format, ...)
{
  if (ok)
    return;
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "shim error %s: ", code);
  vfprintf(stderr, format, arguments);
  fprintf(stderr, " (instruction %lu)\n", (unsigned long)shim.issued);
  va_end(arguments);
  exit(SHIM_STATUS);
}

/* ---- DRAM ---------------------------------------------------------------------------------- */

/* Lets loads read and stores write a range of the host's memory; one not `readable` can still be
 * loaded where a store has written it. Counts are per range. */
static inline void shim_register(const char *name, void *base, size_t bytes, int readable,
                                 int writable)
{
  shim_check(shim.buffer_count < SHIM_BUFFERS, "HARNESS", "more than %d buffers", SHIM_BUFFERS);
  shim_buffer *b = &shim.buffers[shim.buffer_count++];
  b->name = name;
  b->base = (unsigned char *)base;
  b->bytes = bytes;
  b->readable = readable;
  b->writable = writable;
  b->stored = (unsigned char *)calloc(bytes ? bytes : 1, 1);
  shim_check(b->stored != NULL, "HARNESS", "out of memory");
}

/* The buffer and offset of `rows` ranges of `row_bytes`, all of which must lie in one buffer. */
static inline shim_buffer *shim_dram(const char *what, uintptr_t address, uint64_t stride,
                                     uint64_t rows, uint64_t row_bytes, size_t *offset)
{
  for (int i = 0; i < shim.buffer_count; ++i) {
    shim_buffer *b = &shim.buffers[i];
    uintptr_t base = (uintptr_t)b->base;
    if (address < base || address - base >= b->bytes)
      continue;
    *offset = (size_t)(address - base);
    uint64_t need = stride * (rows - 1) + row_bytes;
    shim_check(need <= b->bytes - *offset, "DRAM_RANGE",
               "%s of %lu bytes from byte %lu of %s, which has %lu", what, (unsigned long)need,
               (unsigned long)*offset, b->name, (unsigned long)b->bytes);
    return b;
  }
  shim_check(0, "DRAM_RANGE", "%s at an address outside every registered buffer", what);
  return NULL;
}

static inline const unsigned char *shim_dram_read(shim_buffer *b, size_t offset, size_t bytes)
{
  for (size_t i = offset; i < offset + bytes; ++i) {
    shim_check(b->stored[i] != 1, "DRAM_FENCE", "byte %lu of %s is loaded, stored without a fence",
               (unsigned long)i, b->name);
    shim_check(b->readable || b->stored[i], "DRAM_ACCESS",
               "byte %lu of %s is loaded, where nothing was stored", (unsigned long)i, b->name);
  }
  b->bytes_read += bytes;
  return b->base + offset;
}

static inline unsigned char *shim_dram_write(shim_buffer *b, size_t offset, size_t bytes)
{
  shim_check(b->writable, "DRAM_ACCESS", "a store to %s, which is an input", b->name);
  memset(b->stored + offset, 1, bytes);
  b->dirty = 1;
  b->bytes_written += bytes;
  return b->base + offset;
}

/* ---- Cells, addresses and sizes -------------------------------------------------------------- */

static inline shim_cell shim_add(shim_cell a, shim_cell b)
{
  shim_cell sum;
  sum.value = (int32_t)((uint32_t)a.value + (uint32_t)b.value);
  sum.state = a.state == SHIM_POISON || b.state == SHIM_POISON ? SHIM_POISON
              : a.state == SHIM_ZERO && b.state == SHIM_ZERO   ? SHIM_ZERO
                                                               : SHIM_DATA;
  return sum;
}

static inline shim_cell shim_multiply(shim_cell a, shim_cell b)
{
  shim_cell product = {0, SHIM_ZERO};
  if (a.state == SHIM_ZERO || b.state == SHIM_ZERO)
    return product;
  product.value = a.value * b.value;
  product.state = a.state == SHIM_POISON || b.state == SHIM_POISON ? SHIM_POISON : SHIM_DATA;
  return product;
}

/* value x scale in float32, rounded half to even, as an int8. */
static inline int32_t shim_scaled(int32_t value, float scale)
{
  volatile float product = (float)value * scale; /* volatile: no wider intermediate */
  float y = product;
  if (!(y > -128.0f))
    return -128;
  if (!(y < 127.0f))
    return 127;
  int32_t n = (int32_t)y;
  float rest = y - (float)n; /* exact, of y's sign */
  if (rest > 0.5f || (rest == 0.5f && n % 2 != 0))
    return n + 1;
  if (rest < -0.5f || (rest == -0.5f && n % 2 != 0))
    return n - 1;
  return n;
}

static inline void shim_size(const char *what, const char *code, uint64_t found, uint64_t limit)
{
  shim_check(found >= 1 && found <= limit, code, "%s is %lu; 1..%lu are allowed", what,
             (unsigned long)found, (unsigned long)limit);
}

/* Decodes an address whose flag bits must be among `allowed`. */
static inline shim_place shim_decode(const char *what, uint64_t address, uint32_t allowed)
{
  shim_place p = {0, 0, 0, 0, 0};
  uint32_t flags = SHIM_ACCUMULATOR | SHIM_ACCUMULATE | SHIM_FULL;
  shim_check(address >> 32 == 0, "ADDRESS", "%s is 0x%lx, more than 32 bits", what,
             (unsigned long)address);
  uint32_t bits = (uint32_t)address;
  shim_check((bits & (7u << 26)) == 0, "ADDRESS", "%s is 0x%lx; bits 28 to 26 must be 0", what,
             (unsigned long)bits);
  shim_check((bits & flags & ~allowed) == 0, "ADDRESS", "%s is 0x%lx; a flag bit is not for it",
             what, (unsigned long)bits);
  p.accumulator = (bits & SHIM_ACCUMULATOR) != 0;
  p.accumulate = (bits & SHIM_ACCUMULATE) != 0;
  p.full = (bits & SHIM_FULL) != 0;
  shim_check(p.accumulator || !(p.accumulate || p.full), "ADDRESS",
             "%s is 0x%lx: an accumulator's flag on a scratchpad address", what,
             (unsigned long)bits);
  p.row = bits & ~flags;
  return p;
}

static inline void shim_range(const char *what, shim_place p, uint64_t rows)
{
  uint64_t limit = p.accumulator ? SHIM_ACC_ROWS : SHIM_SPAD_ROWS;
  shim_check(p.row + rows <= limit, "RANGE", "%s uses rows %lu to %lu of %lu", what,
             (unsigned long)p.row, (unsigned long)(p.row + rows - 1), (unsigned long)limit);
}

static inline shim_cell *shim_row(shim_place p, uint64_t row)
{
  return p.accumulator ? shim.acc[p.row + row] : shim.spad[p.row + row];
}

/* Counts an instruction; other than a configuration it needs all three kinds of them. */
static inline void shim_issue(int kind)
{
  ++shim.issued;
  ++shim.counts[kind];
  if (kind < SHIM_MVIN || kind >= SHIM_FENCE)
    return;
  const char *name = shim_kind_name(kind);
  shim_check(shim.ex.set, "CONFIG", "%s before any config_ex", name);
  shim_check(shim.ld[0].set || shim.ld[1].set || shim.ld[2].set, "CONFIG",
             "%s before any config_ld", name);
  shim_check(shim.st.set, "CONFIG", "%s before any config_st", name);
}

/* ---- Configuration --------------------------------------------------------------------------- */

static inline void shim_config_ex(uint64_t dataflow, uint64_t act, uint64_t shift,
                                  uint64_t a_stride, uint64_t a_transpose, uint64_t b_transpose)
{
  shim_issue(SHIM_CONFIG_EX);
  shim_check(dataflow <= 1 && act <= 1 && shift <= 31 && a_transpose <= 1 && b_transpose <= 1,
             "CONFIG_VALUE", "an argument of config_ex is out of range");
  shim_size("config_ex's A_stride", "CONFIG_VALUE", a_stride, 65535);
  shim_check(!(dataflow == 1 && a_transpose && b_transpose), "TRANSPOSE",
             "weight-stationary with both operands transposed");
  shim_check(!(dataflow == 0 && b_transpose && !a_transpose), "TRANSPOSE",
             "output-stationary with only B transposed");
  shim_check(!(a_transpose && a_stride != 1), "TRANSPOSE", "A transposed and strided");
  shim_check(!shim.preload.set, "PRELOAD_CONFIG", "config_ex between a preload and its compute");
  if (!shim.ex.set || shim.ex.weights != (int)dataflow)
    memset(shim.array, 0, sizeof shim.array); /* Poison: it held the other dataflow's operand. */
  shim.ex.set = 1;
  shim.ex.weights = (int)dataflow;
  shim.ex.a_stride = a_stride;
  shim.ex.a_transpose = (int)a_transpose;
  shim.ex.b_transpose = (int)b_transpose;
}

static inline void shim_config_ld(uint64_t stride, float scale, uint64_t shrunk,
                                  uint64_t block_stride, uint64_t id)
{
  shim_issue(SHIM_CONFIG_LD);
  shim_check(id <= 2, "CONFIG_VALUE", "config_ld's id is %lu; 0..2 are allowed",
             (unsigned long)id);
  shim_check(stride >> 32 == 0 && shrunk <= 1 && scale - scale == 0.0f, "CONFIG_VALUE",
             "an argument of config_ld is out of range");
  shim_size("config_ld's block stride", "CONFIG_VALUE", block_stride, 65535);
  shim.ld[id].set = 1;
  shim.ld[id].stride = stride;
  shim.ld[id].scale = scale;
  shim.ld[id].shrunk = (int)shrunk;
  shim.ld[id].block_stride = block_stride;
}

static inline void shim_config_st(uint64_t stride, uint64_t act, float scale)
{
  shim_issue(SHIM_CONFIG_ST);
  shim_check(stride >> 32 == 0 && act <= 1, "CONFIG_VALUE",
             "an argument of config_st is out of range");
  shim_check(scale >= 0.0f && scale - scale == 0.0f, "CONFIG_VALUE",
             "config_st's scale must be finite and not negative");
  shim.st.set = 1;
  shim.st.stride = stride;
  shim.st.relu = (int)act;
  shim.st.scale = scale;
}

#include "moves.h"

#endif
