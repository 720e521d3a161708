/* The calls of hw_specs/davinci_core.yaml, executed. Limits are those of the instructions, from the
 * documents that the spec names; arithmetic is this file's own. Addresses count fractals and rows. */
#ifndef DAVINCI_CORE_H
#define DAVINCI_CORE_H

#include "copies.h"

enum { PIPE_MTE2, PIPE_MTE1, PIPE_M, PIPE_V, PIPE_MTE3, PIPES };
enum { VADD, VSUB, VMUL, VMAX, VRELU, VADDS, VMULS };
enum { SIDE = 16, FRACTAL = SIDE * SIDE };

typedef engine_buffer *gm_buffer;
typedef uint16_t half;

static struct {
  engine_memory l1, l0a, l0b, l0c, ub, rows;
} core;

static inline float core_float(half h)
{
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023, bits;
  float f;
  if (e == 31)
    bits = sign | 0x7F800000u | m << 13;
  else if (e)
    bits = sign | (e + 112) << 23 | m << 13;
  else {
    f = (float)m / 16777216.0f;
    return sign ? -f : f;
  }
  memcpy(&f, &bits, sizeof f);
  return f;
}

/* To nearest, ties to even. */
static inline half core_half(float f)
{
  uint32_t bits, m, rest, half_way;
  int e, shift;
  memcpy(&bits, &f, sizeof bits);
  half sign = (half)(bits >> 16 & 0x8000);
  bits &= 0x7FFFFFFFu;
  if (bits > 0x7F800000u)
    return (half)(sign | 0x7E00);
  e = (int)(bits >> 23) - 112;
  if (e >= 31)
    return (half)(sign | 0x7C00);
  m = (bits & 0x7FFFFFu) | (bits >> 23 ? 0x800000u : 0);
  shift = e > 0 ? 13 : 14 - e;
  if (shift > 25)
    return sign;
  rest = m & ((1u << shift) - 1);
  half_way = 1u << (shift - 1);
  m >>= shift;
  m += rest > half_way || (rest == half_way && (m & 1));
  return (half)(sign | (e > 0 ? ((uint32_t)(e - 1) << 10) + m : m));
}

static inline void core_begin(void)
{
  engine_begin();
  engine_memory_begin(&core.l1, "l1", (1 << 20) / 512, 512);
  engine_memory_begin(&core.l0a, "l0a", (64 << 10) / 512, 512);
  engine_memory_begin(&core.l0b, "l0b", (64 << 10) / 512, 512);
  engine_memory_begin(&core.l0c, "l0c", (256 << 10) / 1024, 1024);
  engine_memory_begin(&core.ub, "ub", (248 << 10) / 512, 512);
  engine_memory_begin(&core.rows, "ub_rows", (8 << 10) / 32, 32);
}

static inline void core_end(void) { engine_run(PIPES, 1); }

static inline gm_buffer gm_allocate(int64_t bytes) { return engine_allocate(bytes); }
static inline void gm_free(gm_buffer b) { engine_free(b); }
static inline void gm_upload(gm_buffer b, const void *h, int64_t n) { engine_upload(b, h, n); }
static inline void gm_download(void *h, gm_buffer b, int64_t n) { engine_download(h, b, n); }

/* The pairs that HardEvent names. */
static inline int core_paired(int source, int target)
{
  static const unsigned char pairs[PIPES][PIPES] = {
    [PIPE_MTE2] = {0, 1, 1, 1, 1}, [PIPE_MTE1] = {1, 0, 1, 1, 1}, [PIPE_M] = {1, 1, 0, 1, 0},
    [PIPE_V] = {1, 1, 1, 0, 1},    [PIPE_MTE3] = {1, 1, 0, 1, 0},
  };
  if (!pairs[source][target])
    engine_fail("no event from pipe %d to pipe %d", source, target);
  return pairs[source][target];
}

static inline void set_flag(int source, int target, int64_t event)
{
  if (core_paired(source, target))
    engine_sync(1, source, target, event, 8);
}

static inline void wait_flag(int source, int target, int64_t event)
{
  if (core_paired(source, target))
    engine_sync(0, source, target, event, 8);
}

/* Bursts of `blocks` blocks of 32 bytes a fractal or row, and the gaps between them. */
static inline int core_bursts(int64_t count, int64_t dst, int64_t src, int64_t length, int blocks)
{
  return engine_field("blockCount", count, 1, 4095)
      && engine_field("blockLen", length * blocks, 1, 65535)
      && (count == 1
          || (engine_field("dstStride", (dst - length) * blocks, 0, 65535)
              && engine_field("srcStride", (src - length) * blocks, 0, 65535)));
}

static inline engine_memory *core_local(int64_t which)
{
  return which ? &core.ub : &core.l1;
}

static inline void core_load(const engine_operation *o)
{
  engine_load_box(o, core_local(o->a[6]), 512);
}

static inline void core_loading(const char *name, int64_t ub, int64_t dst, gm_buffer buffer,
                                int64_t address, int64_t count, int64_t dst_step,
                                int64_t src_step, int64_t length)
{
  if (!core_bursts(count, dst_step, src_step, length, 16))
    return;
  engine_operation *o = engine_call(PIPE_MTE2, name, core_load);
  ENGINE_ARGUMENTS(o, dst, address, count, dst_step, src_step, length, ub);
  o->buffer = buffer;
}

static inline void gm_to_l1(int64_t dst, gm_buffer buffer, int64_t address, int64_t count,
                            int64_t dst_step, int64_t src_step, int64_t length)
{
  core_loading("gm_to_l1", 0, dst, buffer, address, count, dst_step, src_step, length);
}

static inline void gm_to_ub(int64_t dst, gm_buffer buffer, int64_t address, int64_t count,
                            int64_t dst_step, int64_t src_step, int64_t length)
{
  core_loading("gm_to_ub", 1, dst, buffer, address, count, dst_step, src_step, length);
}

static inline void core_load_rows(const engine_operation *o)
{
  engine_load_box(o, &core.rows, 32);
}

static inline void gm_to_ub_rows(int64_t dst, gm_buffer buffer, int64_t address, int64_t length)
{
  if (!core_bursts(1, 0, 0, length, 1))
    return;
  engine_operation *o = engine_call(PIPE_MTE2, "gm_to_ub_rows", core_load_rows);
  ENGINE_ARGUMENTS(o, dst, address, 1, 0, 0, length);
  o->buffer = buffer;
}

static inline void core_store(const engine_operation *o)
{
  engine_store_box(o, &core.ub, 512);
}

static inline void ub_to_gm(gm_buffer buffer, int64_t address, int64_t src, int64_t count,
                            int64_t dst_step, int64_t src_step, int64_t length)
{
  if (!core_bursts(count, dst_step, src_step, length, 16))
    return;
  engine_operation *o = engine_call(PIPE_MTE3, "ub_to_gm", core_store);
  ENGINE_ARGUMENTS(o, address, src, count, dst_step, src_step, length);
  o->buffer = buffer;
}

static inline void core_back(const engine_operation *o)
{
  for (int64_t b = 0; b < o->a[2]; ++b)
    for (int64_t n = 0; n < o->a[5]; ++n) {
      const void *from = engine_at(&core.ub, o->a[1] + b * o->a[4] + n, 0);
      memcpy(engine_at(&core.l1, o->a[0] + b * o->a[3] + n, 1), from, 512);
    }
}

static inline void ub_to_l1(int64_t dst, int64_t src, int64_t count, int64_t dst_step,
                            int64_t src_step, int64_t length)
{
  if (!core_bursts(count, dst_step, src_step, length, 16))
    return;
  engine_operation *o = engine_call(PIPE_MTE3, "ub_to_l1", core_back);
  ENGINE_ARGUMENTS(o, dst, src, count, dst_step, src_step, length);
}

static inline void core_feed(const engine_operation *o)
{
  engine_memory *to = o->a[4] ? &core.l0b : &core.l0a;
  for (int64_t n = 0; n < o->a[2]; ++n)
    memcpy(engine_at(to, o->a[0] + n, 1), engine_at(&core.l1, o->a[1] + n * o->a[3], 0), 512);
}

static inline void core_feeding(const char *name, int64_t b, int64_t dst, int64_t src,
                                int64_t repeat, int64_t step)
{
  if (!engine_field("repeatTimes", repeat, 1, 255) || !engine_field("srcStride", step, 0, 65535))
    return;
  engine_operation *o = engine_call(PIPE_MTE1, name, core_feed);
  ENGINE_ARGUMENTS(o, dst, src, repeat, step, b);
}

static inline void l1_to_l0a(int64_t dst, int64_t src, int64_t repeat, int64_t step)
{
  core_feeding("l1_to_l0a", 0, dst, src, repeat, step);
}

static inline void l1_to_l0b(int64_t dst, int64_t src, int64_t repeat, int64_t step)
{
  core_feeding("l1_to_l0b", 1, dst, src, repeat, step);
}

static inline void core_multiply(const engine_operation *o)
{
  const int64_t *a = o->a;
  for (int64_t m = 0; m < a[3]; ++m)
    for (int64_t n = 0; n < a[4]; ++n)
      for (int64_t d = 0; d < a[5]; ++d) {
        const half *x = engine_at(&core.l0a, a[1] + m * a[8] + d * a[9], 0);
        const half *y = engine_at(&core.l0b, a[2] + n * a[10] + d * a[11], 0);
        float *c = engine_at(&core.l0c, a[0] + m * a[6] + n * a[7], 0);
        engine_at(&core.l0c, a[0] + m * a[6] + n * a[7], 1);
        for (int i = 0; i < SIDE; ++i)
          for (int j = 0; j < SIDE; ++j)
            for (int k = 0; k < SIDE; ++k)
              c[i * SIDE + j] += core_float(x[i * SIDE + k]) * core_float(y[j * SIDE + k]);
      }
}

static inline void mad(int64_t c, int64_t a, int64_t b, int64_t m, int64_t n, int64_t d,
                       int64_t mc, int64_t nc, int64_t ma, int64_t da, int64_t nb, int64_t db)
{
  if (!engine_field("m", m * SIDE, 1, 4095) || !engine_field("n", n * SIDE, 1, 4095)
      || !engine_field("k", d * SIDE, 1, 4095))
    return;
  engine_operation *o = engine_call(PIPE_M, "mad", core_multiply);
  ENGINE_ARGUMENTS(o, c, a, b, m, n, d, mc, nc, ma, da, nb, db);
}

static inline void core_clear(const engine_operation *o)
{
  for (int64_t m = 0; m < o->a[1]; ++m)
    for (int64_t n = 0; n < o->a[2]; ++n)
      memset(engine_at(&core.l0c, o->a[0] + m * o->a[3] + n * o->a[4], 1), 0, 1024);
}

static inline void mad_init(int64_t c, int64_t m, int64_t n, int64_t mc, int64_t nc)
{
  engine_operation *o = engine_call(PIPE_M, "mad_init", core_clear);
  ENGINE_ARGUMENTS(o, c, m, n, mc, nc);
}

static inline void core_drain(const engine_operation *o)
{
  for (int64_t b = 0; b < o->a[2]; ++b)
    for (int64_t n = 0; n < o->a[5]; ++n) {
      const float *x = engine_at(&core.l0c, o->a[1] + b * o->a[4] + n, 0);
      half *y = engine_at(&core.ub, o->a[0] + b * o->a[3] + n, 1);
      for (int i = 0; i < FRACTAL; ++i)
        y[i] = core_half(x[i]);
    }
}

static inline void l0c_to_ub(int64_t dst, int64_t src, int64_t count, int64_t dst_step,
                             int64_t src_step, int64_t length)
{
  if (!core_bursts(count, dst_step, src_step, length, 16))
    return;
  engine_operation *o = engine_call(PIPE_V, "l0c_to_ub", core_drain);
  ENGINE_ARGUMENTS(o, dst, src, count, dst_step, src_step, length);
}

static inline float core_vector(int64_t operation, float x, float y)
{
  switch (operation) {
  case VADD:
  case VADDS:
    return x + y;
  case VSUB:
    return x - y;
  case VMUL:
  case VMULS:
    return x * y;
  default:
    return x > y ? x : y;
  }
}

/* Operand y: 0 a fractal, 1 a row, 2 a number. */
static inline void core_compute(const engine_operation *o)
{
  for (int64_t r = 0; r < o->a[4]; ++r) {
    half result[FRACTAL];
    const half *x = engine_at(&core.ub, o->a[1] + r, 0), *y = 0;
    if (o->a[5] == 0)
      y = engine_at(&core.ub, o->a[2] + r, 0);
    else if (o->a[5] == 1)
      y = engine_at(&core.rows, o->a[2], 0);
    for (int i = 0; i < FRACTAL; ++i) {
      float other = y ? core_float(y[o->a[5] ? i % SIDE : i]) : (float)o->number;
      result[i] = core_half(core_vector(o->a[3], core_float(x[i]), other));
    }
    memcpy(engine_at(&core.ub, o->a[0] + r, 1), result, sizeof result);
  }
}

static inline void core_computing(int64_t kind, int64_t operation, int64_t dst, int64_t x,
                                  int64_t y, double number, int64_t fractals)
{
  if (!engine_field("repeat", 2 * fractals, 1, 255))
    return;
  engine_operation *o = engine_call(PIPE_V, "vector", core_compute);
  ENGINE_ARGUMENTS(o, dst, x, y, operation, fractals, kind);
  o->number = number;
}

static inline void vector_binary(int64_t operation, int64_t dst, int64_t x, int64_t y, int64_t r)
{
  core_computing(0, operation, dst, x, y, 0, r);
}

static inline void vector_with_row(int64_t operation, int64_t dst, int64_t x, int64_t y, int64_t r)
{
  core_computing(1, operation, dst, x, y, 0, r);
}

static inline void vector_unary(int64_t operation, int64_t dst, int64_t x, double number, int64_t r)
{
  core_computing(2, operation, dst, x, 0, number, r);
}

#endif
