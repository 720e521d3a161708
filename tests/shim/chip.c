/* The chip half of the shim: executes an instruction stream in a chosen legal interleaving.
 *
 * Instructions are fetched in order into one queue per stage; a stage runs its head when the
 * tokens it pops are there. Every access to on-chip memory is checked against vector clocks that
 * travel with the tokens, so that a missing token is found in every interleaving.
 */
#include <stdlib.h>
#include <string.h>

#include "shim.h"
#include "vta/runtime/runtime.h"

#define QUEUE_ENTRIES 512
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define MOST_ENTRIES \
  LARGER(LARGER(INP_ENTRIES, WGT_ENTRIES), LARGER(ACC_ENTRIES, UOP_ENTRIES))

struct clock {
  uint64_t at[4]; /* by stage: instructions known to have ended */
};

/* Tokens in flight on one edge, each with the clock of its push. */
struct tokens {
  struct clock *item;
  size_t first, last, room;
};

/* Who touched an entry last. */
struct touched {
  uint64_t write_time;
  int write_stage; /* 0: never written */
  int by_load;     /* the last write was a load */
  uint64_t read_time[4];
};

static int8_t inp[INP_ENTRIES][VTA_BATCH][VTA_BLOCK_IN];
static int8_t wgt[WGT_ENTRIES][VTA_BLOCK_OUT][VTA_BLOCK_IN];
static int32_t acc[ACC_ENTRIES][VTA_BATCH][VTA_BLOCK_OUT];
static struct uop uops[UOP_ENTRIES];
static struct touched touched[4][MOST_ENTRIES];

static struct clock clocks[4];
static struct tokens edges[4][4]; /* [from][to] */
static int order;
static uint32_t random_state;

uint32_t memory_entries(uint32_t memory)
{
  switch (memory) {
  case MEM_UOP: return UOP_ENTRIES;
  case MEM_WGT: return WGT_ENTRIES;
  case MEM_INP: return INP_ENTRIES;
  default: return ACC_ENTRIES;
  }
}

uint32_t entry_bytes(uint32_t memory)
{
  switch (memory) {
  case MEM_UOP: return 4;
  case MEM_WGT: return WGT_LANES;
  case MEM_INP: return INP_LANES;
  case MEM_OUT: return ACC_LANES;
  default: return 4 * ACC_LANES;
  }
}

void chip_reset(int wanted, uint32_t seed)
{
  memset(inp, 0xA5, sizeof inp);
  memset(wgt, 0xA5, sizeof wgt);
  memset(acc, 0xA5, sizeof acc);
  memset(uops, 0xA5, sizeof uops);
  memset(touched, 0, sizeof touched);
  memset(clocks, 0, sizeof clocks);
  for (int from = 0; from < 4; ++from)
    for (int to = 0; to < 4; ++to)
      edges[from][to].first = edges[from][to].last = 0;
  order = wanted;
  random_state = seed ? seed : 0x9E3779B9u;
}

/* --- tokens --- */

static size_t waiting(int from, int to) { return edges[from][to].last - edges[from][to].first; }

static void push(int from, int to)
{
  struct tokens *edge = &edges[from][to];
  if (edge->last == edge->room) {
    edge->room = edge->room ? 2 * edge->room : 64;
    edge->item = realloc(edge->item, edge->room * sizeof *edge->item);
    if (!edge->item)
      abort();
  }
  edge->item[edge->last++] = clocks[from];
}

static void pop(int from, int to)
{
  struct tokens *edge = &edges[from][to];
  const struct clock *other = &edge->item[edge->first++];
  for (int stage = LOAD; stage <= STORE; ++stage)
    if (other->at[stage] > clocks[to].at[stage])
      clocks[to].at[stage] = other->at[stage];
  if (edge->first == edge->last)
    edge->first = edge->last = 0;
}

/* --- access checks --- */

static int ordered(int stage, int other, uint64_t time, uint32_t memory, uint32_t entry)
{
  if (other == stage || clocks[stage].at[other] >= time)
    return 1;
  shim_fail(VTA_SHIM_RACE, "memory %u entry %u: stage %d does not wait for stage %d", memory,
            entry, stage, other);
  return 0;
}

static int may_read(int stage, uint32_t memory, uint64_t entry)
{
  if (entry >= memory_entries(memory)) {
    shim_fail(VTA_SHIM_SRAM, "memory %u entry %llu is read, it has %u", memory,
              (unsigned long long)entry, memory_entries(memory));
    return 0;
  }
  struct touched *t = &touched[memory][entry];
  if (!t->write_stage) {
    shim_fail(VTA_SHIM_UNINITIALISED, "memory %u entry %llu is read before it is written", memory,
              (unsigned long long)entry);
    return 0;
  }
  t->read_time[stage] = clocks[stage].at[stage];
  return ordered(stage, t->write_stage, t->write_time, memory, (uint32_t)entry);
}

static int may_write(int stage, uint32_t memory, uint64_t entry, int by_load)
{
  if (entry >= memory_entries(memory)) {
    shim_fail(VTA_SHIM_SRAM, "memory %u entry %llu is written, it has %u", memory,
              (unsigned long long)entry, memory_entries(memory));
    return 0;
  }
  struct touched *t = &touched[memory][entry];
  if (t->write_stage && !ordered(stage, t->write_stage, t->write_time, memory, (uint32_t)entry))
    return 0;
  for (int other = LOAD; other <= STORE; ++other)
    if (t->read_time[other] &&
        !ordered(stage, other, t->read_time[other], memory, (uint32_t)entry))
      return 0;
  t->write_stage = stage;
  t->write_time = clocks[stage].at[stage];
  t->by_load = by_load;
  return 1;
}

/* --- instructions --- */

static void *entry_data(uint32_t memory, uint64_t entry)
{
  switch (memory) {
  case MEM_WGT: return wgt[entry];
  case MEM_INP: return inp[entry];
  default: return acc[entry];
  }
}

static int buffer_alive(const struct insn *i)
{
  if (!i->buffer->live)
    shim_fail(VTA_SHIM_HANDLE, "a buffer was freed before the synchronisation");
  return i->buffer->live;
}

static void run_load(const struct insn *i)
{
  uint32_t bytes = entry_bytes(i->memory), entry = i->sram;
  if (i->x == 0 || !buffer_alive(i))
    return;
  uint32_t rows = i->pad[1] + i->y + i->pad[3], columns = i->pad[0] + i->x + i->pad[2];
  for (uint32_t row = 0; row < rows; ++row)
    for (uint32_t column = 0; column < columns; ++column, ++entry) {
      if (!may_write(i->stage, i->memory, entry, 1))
        return;
      void *to = entry_data(i->memory, entry);
      int inside = row >= i->pad[1] && row < i->pad[1] + i->y && column >= i->pad[0] &&
                   column < i->pad[0] + i->x;
      if (!inside) {
        memset(to, 0, bytes);
        continue;
      }
      uint64_t at = i->offset + ((uint64_t)(row - i->pad[1]) * i->stride + column - i->pad[0]) *
                                    (uint64_t)bytes;
      if (memchr(i->buffer->defined + at, 0, bytes)) {
        shim_fail(VTA_SHIM_UNINITIALISED, "byte %llu of a buffer is loaded before it is written",
                  (unsigned long long)at);
        return;
      }
      memcpy(to, i->buffer->data + at, bytes);
    }
}

static void run_store(const struct insn *i)
{
  uint32_t bytes = entry_bytes(MEM_OUT), entry = i->sram;
  if (i->x == 0 || i->y == 0 || !buffer_alive(i))
    return;
  for (uint32_t row = 0; row < i->y; ++row)
    for (uint32_t column = 0; column < i->x; ++column, ++entry) {
      uint64_t at = i->offset + ((uint64_t)row * i->stride + column) * bytes;
      if (!may_read(i->stage, MEM_ACC, entry))
        return;
      if (touched[MEM_ACC][entry].by_load) {
        shim_fail(VTA_SHIM_STALE_STORE, "entry %u is stored after a load, without an operation",
                  entry);
        return;
      }
      const int32_t *from = &acc[entry][0][0];
      for (uint32_t lane = 0; lane < ACC_LANES; ++lane)
        i->buffer->data[at + lane] = (unsigned char)((uint32_t)from[lane] & 0xFFu);
      memset(i->buffer->defined + at, 1, bytes);
    }
}

static void run_load_uop(const struct insn *i)
{
  for (uint32_t n = 0; n < i->x; ++n) {
    if (!may_write(COMPUTE, MEM_UOP, i->sram + n, 1))
      return;
    uops[i->sram + n] = i->kernel->ops[n];
  }
}

static void gemm(const struct kernel *k, uint64_t dst, uint64_t src, uint64_t weight)
{
  if (k->reset) {
    if (may_write(COMPUTE, MEM_ACC, dst, 0))
      memset(acc[dst], 0, sizeof acc[dst]);
    return;
  }
  if (!may_read(COMPUTE, MEM_ACC, dst) || !may_read(COMPUTE, MEM_INP, src) ||
      !may_read(COMPUTE, MEM_WGT, weight) || !may_write(COMPUTE, MEM_ACC, dst, 0))
    return;
  for (int b = 0; b < VTA_BATCH; ++b)
    for (int o = 0; o < VTA_BLOCK_OUT; ++o) {
      uint32_t sum = (uint32_t)acc[dst][b][o];
      for (int i = 0; i < VTA_BLOCK_IN; ++i)
        sum += (uint32_t)(inp[src][b][i] * wgt[weight][o][i]);
      acc[dst][b][o] = (int32_t)sum;
    }
}

static int32_t alu_op(int opcode, int32_t a, int32_t b)
{
  switch (opcode) {
  case ALU_MIN: return a < b ? a : b;
  case ALU_MAX: return a > b ? a : b;
  case ALU_ADD: return (int32_t)((uint32_t)a + (uint32_t)b);
  default: break;
  }
  if (b <= -32 || b >= 32) {
    shim_fail(VTA_SHIM_FIELD, "shift by %d", (int)b);
    return 0;
  }
  if (b < 0) { /* to the left in the runtime's simulator; the HLS version has no such shifts */
    shim_fail(VTA_SHIM_UNSUPPORTED, "shift by %d", (int)b);
    return 0;
  }
  return a < 0 ? ~(~a >> b) : a >> b;
}

/* With an immediate the functional simulator reads acc[dst], the RTL acc[src]: both are computed. */
static void alu(const struct kernel *k, uint64_t dst, uint64_t src)
{
  if (!may_read(COMPUTE, MEM_ACC, dst) || !may_read(COMPUTE, MEM_ACC, src) ||
      !may_write(COMPUTE, MEM_ACC, dst, 0))
    return;
  for (int b = 0; b < VTA_BATCH; ++b)
    for (int o = 0; o < VTA_BLOCK_OUT; ++o) {
      int32_t left = acc[dst][b][o], right = acc[src][b][o];
      int32_t simulated = alu_op(k->opcode, left, k->use_imm ? k->imm : right);
      int32_t rtl = k->use_imm ? alu_op(k->opcode, right, k->imm) : simulated;
      if (simulated != rtl) {
        shim_fail(VTA_SHIM_TWO_READINGS,
                  "ALU with an immediate: entry %llu becomes %d by itself and %d from entry %llu",
                  (unsigned long long)dst, (int)simulated, (int)rtl, (unsigned long long)src);
        return;
      }
      acc[dst][b][o] = rtl;
    }
}

static void run_kernel(const struct insn *i)
{
  const struct kernel *k = i->kernel;
  uint32_t outer = k->loops > 0 ? k->loop[0].extent : 1;
  uint32_t inner = k->loops > 1 ? k->loop[1].extent : 1;
  uint64_t previous = UINT64_MAX;
  for (uint32_t a = 0; a < outer; ++a)
    for (uint32_t b = 0; b < inner; ++b)
      for (uint32_t n = 0; n < k->count; ++n) {
        if (!may_read(COMPUTE, MEM_UOP, k->sram + n))
          return;
        const struct uop *u = &uops[k->sram + n];
        uint64_t dst = u->dst + (uint64_t)a * k->loop[0].dst + (uint64_t)b * k->loop[1].dst;
        uint64_t src = u->src + (uint64_t)a * k->loop[0].src + (uint64_t)b * k->loop[1].src;
        uint64_t weight = u->wgt + (uint64_t)a * k->loop[0].wgt + (uint64_t)b * k->loop[1].wgt;
        if (i->kind == GEMM) {
          gemm(k, dst, src, weight);
        } else {
          if (dst == previous || src == previous)
            shim_fail(VTA_SHIM_ALU_HAZARD, "ALU: entry %llu right after it was written",
                      (unsigned long long)previous);
          previous = dst;
          if (!shim_failed())
            alu(k, dst, src);
        }
        if (shim_failed())
          return;
      }
}

static void run(const struct insn *i)
{
  int stage = i->stage;
  if (i->pop_prev)
    pop(stage - 1, stage);
  if (i->pop_next)
    pop(stage + 1, stage);
  ++clocks[stage].at[stage];
  switch (i->kind) {
  case LOAD_DATA: run_load(i); break;
  case STORE_DATA: run_store(i); break;
  case LOAD_UOP: run_load_uop(i); break;
  case GEMM:
  case ALU: run_kernel(i); break;
  case NOP:
  case FINISH: break;
  }
  if (i->push_prev)
    push(stage, stage - 1);
  if (i->push_next)
    push(stage, stage + 1);
}

/* --- interleaving --- */

static uint32_t next_random(void)
{
  random_state ^= random_state << 13;
  random_state ^= random_state >> 17;
  random_state ^= random_state << 5;
  return random_state;
}

/* Which of the ready stages runs; `ready` has a bit per stage, `last` ran before. */
static int choose(unsigned ready, int last)
{
  static const int preference[3][3] = {
      {COMPUTE, LOAD, STORE}, {LOAD, COMPUTE, STORE}, {STORE, COMPUTE, LOAD}};
  if (order == VTA_SHIM_RANDOM) {
    int stage;
    do
      stage = (int)(next_random() % 3) + 1;
    while (!(ready >> stage & 1));
    return stage;
  }
  if (order == VTA_SHIM_ROUND_ROBIN) {
    do
      last = last % 3 + 1;
    while (!(ready >> last & 1));
    return last;
  }
  for (int n = 0; n < 3; ++n)
    if (ready >> preference[order][n] & 1)
      return preference[order][n];
  return 0;
}

void chip_execute(const struct insn *stream, size_t count)
{
  static size_t queue[4][QUEUE_ENTRIES];
  size_t head[4] = {0}, tail[4] = {0}, fetched = 0, done = 0;
  int last = STORE;
  while (done < count && !shim_failed()) {
    while (fetched < count) {
      int stage = stream[fetched].stage;
      if (tail[stage] - head[stage] == QUEUE_ENTRIES)
        break;
      queue[stage][tail[stage]++ % QUEUE_ENTRIES] = fetched++;
    }
    unsigned ready = 0;
    for (int stage = LOAD; stage <= STORE; ++stage) {
      if (head[stage] == tail[stage])
        continue;
      const struct insn *i = &stream[queue[stage][head[stage] % QUEUE_ENTRIES]];
      if ((!i->pop_prev || waiting(stage - 1, stage)) &&
          (!i->pop_next || waiting(stage + 1, stage)))
        ready |= 1u << stage;
    }
    if (!ready) {
      shim_fail(VTA_SHIM_DEADLOCK, "deadlock: %zu of %zu instructions wait for tokens",
                count - done, count);
      return;
    }
    last = choose(ready, last);
    run(&stream[queue[last][head[last]++ % QUEUE_ENTRIES]]);
    ++done;
  }
  for (int from = LOAD; from <= STORE; ++from)
    for (int to = LOAD; to <= STORE; ++to)
      if (waiting(from, to))
        shim_fail(VTA_SHIM_LEFTOVER, "%zu tokens from stage %d to stage %d are left over",
                  waiting(from, to), from, to);
  /* Whatever comes next comes after everything so far. */
  for (int stage = LOAD; stage <= STORE; ++stage)
    for (int other = LOAD; other <= STORE; ++other)
      clocks[stage].at[other] = clocks[other].at[other];
}
