/* Executes a kernel's calls as a chip with several in-order units would, in one of several orders.
 *
 * The header of a chip records each call with `engine_call`, each synchronisation with `engine_signal`
 * and `engine_wait`. `engine_run` then executes what every unit was given: a unit in order, units side by
 * side. Vector clocks travel with the flags, so two accesses to one entry that nothing orders are found in
 * every order. Memories begin poisoned. The first fault is kept; nothing is executed after it. */
#ifndef ENGINE_H
#define ENGINE_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNITS = 8, FLAGS = 32, ARGUMENTS = 16, POISON = 0xA5 };

typedef struct {
  unsigned char *data;
  int64_t bytes;
} engine_buffer;

typedef struct {
  int32_t writer, written, read[UNITS];
} engine_stamp;

typedef struct {
  const char *name;
  int64_t entries, entry_bytes;
  unsigned char *data;
  engine_stamp *stamps;
} engine_memory;

typedef struct engine_operation {
  void (*run)(const struct engine_operation *);
  const char *name;
  int unit, other, flag;
  engine_buffer *buffer;
  int64_t a[ARGUMENTS];
  double number;
} engine_operation;

typedef struct {
  int count, sent, taken;
  int32_t (*clocks)[UNITS];
} engine_flag;

static struct {
  int status, order, maximum, units, buffers;
  uint32_t seed;
  char text[256];
  engine_operation *operations;
  int64_t count, room;
  engine_flag flags[UNITS][UNITS][FLAGS];
  int32_t clock[UNITS][UNITS];
  int unit;
} engine;

int shim_status(void);
const char *shim_message(void);
void shim_order(int order, unsigned seed);
int shim_buffers(void);
long shim_operations(void);

int shim_status(void) { return engine.status; }
const char *shim_message(void) { return engine.text; }
int shim_buffers(void) { return engine.buffers; }
long shim_operations(void) { return (long)engine.count; }

/* 0: the first unit that can; 1: the last; 2: in turn; 3: drawn. */
void shim_order(int order, unsigned seed)
{
  engine.order = order;
  engine.seed = seed;
}

static inline void engine_fail(const char *format, ...)
{
  va_list arguments;
  if (engine.status)
    return;
  engine.status = 1;
  va_start(arguments, format);
  vsnprintf(engine.text, sizeof engine.text, format, arguments);
  va_end(arguments);
}

/* Whether a field is within what the instruction can hold. */
static inline int engine_field(const char *name, int64_t value, int64_t low, int64_t high)
{
  if (value >= low && value <= high)
    return 1;
  engine_fail("%s is %lld, not in %lld..%lld", name, (long long)value, (long long)low,
              (long long)high);
  return 0;
}

static inline engine_operation *engine_new(int unit)
{
  if (engine.count == engine.room) {
    engine.room = engine.room ? 2 * engine.room : 1024;
    engine.operations =
        realloc(engine.operations, (size_t)engine.room * sizeof *engine.operations);
    if (!engine.operations)
      abort();
  }
  engine_operation *o = &engine.operations[engine.count++];
  memset(o, 0, sizeof *o);
  o->unit = unit;
  return o;
}

static inline engine_operation *engine_call(int unit, const char *name,
                                            void (*run)(const engine_operation *))
{
  engine_operation *o = engine_new(unit);
  o->name = name;
  o->run = run;
  return o;
}

static inline void engine_sync(int signal, int source, int target, int64_t flag, int flags)
{
  if (!engine_field("flag", flag, 0, flags - 1))
    return;
  engine_operation *o = engine_new(signal ? source : target);
  o->name = signal ? "signal" : "wait";
  o->other = signal ? target : source;
  o->flag = (int)flag;
}

static inline void engine_memory_begin(engine_memory *m, const char *name, int64_t entries,
                                       int64_t entry_bytes)
{
  m->name = name;
  m->entries = entries;
  m->entry_bytes = entry_bytes;
  free(m->data);
  free(m->stamps);
  m->data = malloc((size_t)(entries * entry_bytes));
  m->stamps = calloc((size_t)entries, sizeof *m->stamps);
  if (!m->data || !m->stamps)
    abort();
  memset(m->data, POISON, (size_t)(entries * entry_bytes));
}

/* The entry at an address, for reading or writing by the unit that is at work. */
static inline void *engine_at(engine_memory *m, int64_t address, int write)
{
  static uint64_t nowhere[1 << 14];
  int unit = engine.unit;
  if (address < 0 || address >= m->entries) {
    engine_fail("%s[%lld] is outside the memory", m->name, (long long)address);
    return nowhere;
  }
  engine_stamp *s = &m->stamps[address];
  const int32_t *known = engine.clock[unit];
  if (!write && !s->written)
    engine_fail("%s[%lld] is read and was never written", m->name, (long long)address);
  if (s->written && s->writer != unit && known[s->writer] < s->written)
    engine_fail("%s[%lld]: unit %d does not wait for its write by unit %d", m->name,
                (long long)address, unit, s->writer);
  for (int other = 0; write && other < UNITS; ++other)
    if (other != unit && known[other] < s->read[other])
      engine_fail("%s[%lld]: unit %d does not wait for its read by unit %d", m->name,
                  (long long)address, unit, other);
  if (write) {
    s->writer = unit;
    s->written = known[unit];
  } else {
    s->read[unit] = known[unit];
  }
  return m->data + address * m->entry_bytes;
}

static inline void *engine_off_chip(engine_buffer *b, int64_t entry, int64_t bytes)
{
  static uint64_t nowhere[1 << 14];
  if (entry >= 0 && (entry + 1) * bytes <= b->bytes)
    return b->data + entry * bytes;
  engine_fail("off-chip entry %lld of %lld bytes is outside its buffer of %lld bytes",
              (long long)entry, (long long)bytes, (long long)b->bytes);
  return nowhere;
}

/* Executes one operation; 0 where it has to wait. */
static inline int engine_step(const engine_operation *o)
{
  int32_t *mine = engine.clock[o->unit];
  engine.unit = o->unit;
  if (o->run) {
    ++mine[o->unit];
    o->run(o);
    return 1;
  }
  if (o->name[0] == 's') {
    engine_flag *f = &engine.flags[o->unit][o->other][o->flag];
    if (f->count == engine.maximum) {
      engine_fail("flag %d from %d to %d is set again before it was taken", o->flag, o->unit,
                  o->other);
      return 1;
    }
    f->clocks = realloc(f->clocks, (size_t)(f->sent + 1) * sizeof *f->clocks);
    if (!f->clocks)
      abort();
    memcpy(f->clocks[f->sent++], mine, sizeof *f->clocks);
    ++f->count;
    return 1;
  }
  engine_flag *f = &engine.flags[o->other][o->unit][o->flag];
  if (!f->count)
    return 0;
  --f->count;
  for (int u = 0; u < UNITS; ++u)
    if (mine[u] < f->clocks[f->taken][u])
      mine[u] = f->clocks[f->taken][u];
  ++f->taken;
  return 1;
}

static inline int engine_first(int turn)
{
  switch (engine.order) {
  case 2:
    return turn % engine.units;
  case 3:
    engine.seed = engine.seed * 1664525u + 1013904223u;
    return (int)((engine.seed >> 16) % (unsigned)engine.units);
  default:
    return 0;
  }
}

static inline void engine_run(int units, int maximum)
{
  int64_t *queue[UNITS], length[UNITS] = {0}, next[UNITS] = {0}, left = engine.count;
  engine.units = units;
  engine.maximum = maximum;
  memset(engine.clock, 0, sizeof engine.clock);
  for (int u = 0; u < units; ++u) {
    queue[u] = malloc((size_t)(engine.count + 1) * sizeof *queue[u]);
    if (!queue[u])
      abort();
  }
  for (int64_t i = 0; i < engine.count; ++i) {
    int u = engine.operations[i].unit;
    queue[u][length[u]++] = i;
  }
  for (int turn = 0; left && !engine.status; ++turn) {
    int done = 0, start = engine_first(turn);
    for (int n = 0; n < units && !done; ++n) {
      int u = engine.order == 1 ? units - 1 - n : (start + n) % units;
      if (next[u] < length[u] && engine_step(&engine.operations[queue[u][next[u]]])) {
        ++next[u];
        --left;
        done = 1;
      }
    }
    if (!done)
      engine_fail("deadlock: %lld operations are left", (long long)left);
  }
  for (int s = 0; s < units; ++s)
    for (int t = 0; t < units; ++t)
      for (int f = 0; f < FLAGS; ++f) {
        if (engine.flags[s][t][f].count)
          engine_fail("flag %d from %d to %d is left over", f, s, t);
        free(engine.flags[s][t][f].clocks);
      }
  memset(engine.flags, 0, sizeof engine.flags);
  for (int u = 0; u < units; ++u)
    free(queue[u]);
}

static inline void engine_begin(void)
{
  engine.status = 0;
  engine.text[0] = 0;
  engine.count = 0;
}

static inline engine_buffer *engine_allocate(int64_t bytes)
{
  engine_buffer *b = malloc(sizeof *b);
  if (!b)
    return 0;
  b->bytes = bytes;
  b->data = malloc((size_t)bytes);
  if (!b->data)
    abort();
  memset(b->data, POISON, (size_t)bytes);
  ++engine.buffers;
  return b;
}

static inline void engine_free(engine_buffer *b)
{
  if (!b)
    return;
  --engine.buffers;
  free(b->data);
  free(b);
}

#endif
