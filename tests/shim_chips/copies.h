/* What the chips of this folder have in common: the host's buffers, and copies of boxes of entries. */
#ifndef COPIES_H
#define COPIES_H

#include "engine.h"

static inline void engine_upload(engine_buffer *b, const void *host, int64_t bytes)
{
  memcpy(b->data, host, (size_t)bytes);
}

static inline void engine_download(void *host, engine_buffer *b, int64_t bytes)
{
  memcpy(host, b->data, (size_t)bytes);
}

/* What an operation's `run` is given. */
#define ENGINE_ARGUMENTS(operation, ...) \
  memcpy((operation)->a, (int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}))

/* Boxes: first entry of the target and of the source, rows, steps between rows of the target and of
 * the source, entries of a row. */
static inline void engine_load_box(const engine_operation *o, engine_memory *to, int64_t bytes)
{
  const int64_t *a = o->a;
  for (int64_t y = 0; y < a[2]; ++y)
    for (int64_t x = 0; x < a[5]; ++x)
      memcpy(engine_at(to, a[0] + y * a[3] + x, 1),
             engine_off_chip(o->buffer, a[1] + y * a[4] + x, bytes), (size_t)bytes);
}

static inline void engine_store_box(const engine_operation *o, engine_memory *from, int64_t bytes)
{
  const int64_t *a = o->a;
  for (int64_t y = 0; y < a[2]; ++y)
    for (int64_t x = 0; x < a[5]; ++x)
      memcpy(engine_off_chip(o->buffer, a[0] + y * a[3] + x, bytes),
             engine_at(from, a[1] + y * a[4] + x, 0), (size_t)bytes);
}

#endif
