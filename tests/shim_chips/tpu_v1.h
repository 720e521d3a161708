/* The calls of hw_specs/tpu_v1.yaml, executed; addresses count rows of 256 and tiles of 256 x 256. */
#ifndef TPU_V1_H
#define TPU_V1_H

#include "copies.h"

enum { HOST_INTERFACE, WEIGHT_FETCHER, MATRIX, ACTIVATION, TPU_UNITS };
enum { TPU_LOW, TPU_SHIFT, TPU_BIAS };
enum { TPU_RELU, TPU_ADD };
enum { ROW = 256, TILE = ROW * ROW };

typedef engine_buffer *tpu_buffer;

static struct {
  engine_memory ub, tiles, acc, bias;
} tpu;

static inline void tpu_begin(void)
{
  engine_begin();
  engine_memory_begin(&tpu.ub, "ub", (24 << 20) / ROW, ROW);
  engine_memory_begin(&tpu.tiles, "tiles", 2, TILE);
  engine_memory_begin(&tpu.acc, "acc", 4096, 4 * ROW);
  engine_memory_begin(&tpu.bias, "bias", 64, 4 * ROW);
}

static inline void tpu_end(void) { engine_run(TPU_UNITS, 15); }

static inline tpu_buffer tpu_allocate(int64_t bytes) { return engine_allocate(bytes); }
static inline void tpu_free(tpu_buffer b) { engine_free(b); }
static inline void tpu_upload(tpu_buffer b, const void *h, int64_t n) { engine_upload(b, h, n); }
static inline void tpu_download(void *h, tpu_buffer b, int64_t n) { engine_download(h, b, n); }

static inline void tpu_signal(int source, int target, int64_t event)
{
  engine_sync(1, source, target, event, 8);
}

static inline void tpu_wait(int source, int target, int64_t event)
{
  engine_sync(0, source, target, event, 8);
}

static inline int tpu_lengths(int64_t y, int64_t x)
{
  return engine_field("outer length", y, 1, 65535) && engine_field("inner length", x, 1, 65535);
}

static inline void tpu_in(const engine_operation *o)
{
  engine_load_box(o, &tpu.ub, ROW);
}

static inline void tpu_read_host_memory(int64_t dst, tpu_buffer buffer, int64_t address, int64_t y,
                                        int64_t dst_step, int64_t src_step, int64_t x)
{
  if (!tpu_lengths(y, x))
    return;
  engine_operation *o = engine_call(HOST_INTERFACE, "read_host_memory", tpu_in);
  ENGINE_ARGUMENTS(o, dst, address, y, dst_step, src_step, x);
  o->buffer = buffer;
}

static inline void tpu_out(const engine_operation *o)
{
  engine_store_box(o, &tpu.ub, ROW);
}

static inline void tpu_write_host_memory(tpu_buffer buffer, int64_t address, int64_t src, int64_t y,
                                         int64_t dst_step, int64_t src_step, int64_t x)
{
  if (!tpu_lengths(y, x))
    return;
  engine_operation *o = engine_call(HOST_INTERFACE, "write_host_memory", tpu_out);
  ENGINE_ARGUMENTS(o, address, src, y, dst_step, src_step, x);
  o->buffer = buffer;
}

static inline void tpu_bias_in(const engine_operation *o)
{
  engine_load_box(o, &tpu.bias, 4 * ROW);
}

static inline void tpu_read_bias(int64_t dst, tpu_buffer buffer, int64_t address, int64_t x)
{
  engine_operation *o = engine_call(HOST_INTERFACE, "read_bias", tpu_bias_in);
  ENGINE_ARGUMENTS(o, dst, address, 1, 0, 0, x);
  o->buffer = buffer;
}

static inline void tpu_tile_in(const engine_operation *o)
{
  memcpy(engine_at(&tpu.tiles, o->a[0], 1), engine_off_chip(o->buffer, o->a[1], TILE), TILE);
}

static inline void tpu_read_weights(int64_t dst, tpu_buffer buffer, int64_t address)
{
  engine_operation *o = engine_call(WEIGHT_FETCHER, "read_weights", tpu_tile_in);
  o->a[0] = dst;
  o->a[1] = address;
  o->buffer = buffer;
}

static inline void tpu_multiply(const engine_operation *o)
{
  const int64_t *a = o->a;
  const int8_t *w = engine_at(&tpu.tiles, a[2], 0);
  for (int64_t y = 0; y < a[3]; ++y)
    for (int64_t x = 0; x < a[6]; ++x) {
      const int8_t *in = engine_at(&tpu.ub, a[1] + y * a[5] + x * a[8], 0);
      engine_at(&tpu.acc, a[0] + y * a[4] + x * a[7], 0);
      uint32_t *sums = engine_at(&tpu.acc, a[0] + y * a[4] + x * a[7], 1);
      for (int c = 0; c < ROW; ++c)
        for (int r = 0; r < ROW; ++r)
          sums[c] += (uint32_t)(in[r] * w[c * ROW + r]);
    }
}

static inline void tpu_matrix_multiply(int64_t dst, int64_t src, int64_t tile, int64_t y, int64_t yd,
                                       int64_t ys, int64_t x, int64_t xd, int64_t xs)
{
  if (!tpu_lengths(y, x))
    return;
  engine_operation *o = engine_call(MATRIX, "matrix_multiply", tpu_multiply);
  ENGINE_ARGUMENTS(o, dst, src, tile, y, yd, ys, x, xd, xs);
}

static inline void tpu_zero(const engine_operation *o)
{
  const int64_t *a = o->a;
  for (int64_t y = 0; y < a[1]; ++y)
    for (int64_t x = 0; x < a[3]; ++x)
      memset(engine_at(&tpu.acc, a[0] + y * a[2] + x * a[4], 1), 0, 4 * ROW);
}

static inline void tpu_clear(int64_t dst, int64_t y, int64_t yd, int64_t x, int64_t xd)
{
  if (!tpu_lengths(y, x))
    return;
  engine_operation *o = engine_call(MATRIX, "clear", tpu_zero);
  ENGINE_ARGUMENTS(o, dst, y, yd, x, xd);
}

static inline int8_t tpu_saturated(int64_t value)
{
  return (int8_t)(value < -128 ? -128 : value > 127 ? 127 : value);
}

/* Right shift towards minus infinity. */
static inline int64_t tpu_shifted(int64_t value, int64_t by)
{
  int64_t scale = (int64_t)1 << by;
  return value / scale - (value % scale < 0);
}

/* The adder has 32 bits and wraps around. */
static inline int64_t tpu_sum(int32_t a, int32_t b)
{
  uint32_t bits = (uint32_t)a + (uint32_t)b;
  return bits & 0x80000000u ? (int64_t)bits - ((int64_t)1 << 32) : (int64_t)bits;
}

static inline void tpu_narrow(const engine_operation *o)
{
  const int64_t *a = o->a;
  for (int64_t y = 0; y < a[5]; ++y)
    for (int64_t x = 0; x < a[9]; ++x) {
      const int32_t *s = engine_at(&tpu.acc, a[2] + y * a[7] + x * a[11], 0), *b = 0;
      int8_t *d = engine_at(&tpu.ub, a[1] + y * a[6] + x * a[10], 1);
      if (a[0] == TPU_BIAS)
        b = engine_at(&tpu.bias, a[3] + y * a[8] + x * a[12], 0);
      for (int c = 0; c < ROW; ++c)
        d[c] = a[0] == TPU_LOW ? (int8_t)(uint8_t)((uint32_t)s[c] & 255)
                               : tpu_saturated(tpu_shifted(tpu_sum(s[c], b ? b[c] : 0), a[4]));
    }
}

static inline void tpu_activate(int64_t kind, int64_t dst, int64_t src, int64_t bias, int64_t shift,
                                int64_t y, int64_t yd, int64_t ys, int64_t yb, int64_t x,
                                int64_t xd, int64_t xs, int64_t xb)
{
  if (!tpu_lengths(y, x) || !engine_field("shift", shift, 0, 31))
    return;
  engine_operation *o = engine_call(ACTIVATION, "activate", tpu_narrow);
  ENGINE_ARGUMENTS(o, kind, dst, src, bias, shift, y, yd, ys, yb, x, xd, xs, xb);
}

static inline void tpu_vectors(const engine_operation *o)
{
  const int64_t *a = o->a;
  for (int64_t n = 0; n < a[4]; ++n) {
    int8_t result[ROW];
    const int8_t *x = engine_at(&tpu.ub, a[2] + n * a[6], 0), *y = 0;
    if (a[0] == TPU_ADD)
      y = engine_at(&tpu.ub, a[3] + n * a[7], 0);
    for (int c = 0; c < ROW; ++c)
      result[c] = y ? tpu_saturated(x[c] + y[c]) : x[c] > 0 ? x[c] : 0;
    memcpy(engine_at(&tpu.ub, a[1] + n * a[5], 1), result, sizeof result);
  }
}

static inline void tpu_vector(int64_t kind, int64_t dst, int64_t x, int64_t y, int64_t n, int64_t nd,
                              int64_t nx, int64_t ny)
{
  if (!engine_field("length", n, 1, 65535))
    return;
  engine_operation *o = engine_call(ACTIVATION, "vector", tpu_vectors);
  ENGINE_ARGUMENTS(o, kind, dst, x, y, n, nd, nx, ny);
}

#endif
