/* The runtime half of the shim: buffers, micro-kernels, tokens; builds the instruction stream. */
#include "vta/runtime/runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

#define MAX_INSTRUCTIONS 2000000
#define MAX_SIGNATURE 98

static int error_code;
static char error_text[400];

static struct buffer **buffers;
static size_t buffer_count;
static uint64_t next_address = 1 << 20;
static int allocations_left = -1;

static struct insn *stream;
static size_t stream_count, stream_room;
static unsigned pending_pop_prev[4], pending_pop_next[4];
static uint64_t epoch = 1; /* counts synchronisations and resets */
static uint32_t uops_loaded;
static struct kernel *recording;
static uint64_t instructions;
static FILE *trace;

void shim_fail(int code, const char *format, ...)
{
  va_list arguments;
  if (error_code)
    return;
  error_code = code;
  va_start(arguments, format);
  vsnprintf(error_text, sizeof error_text, format, arguments);
  va_end(arguments);
}

int shim_failed(void) { return error_code != 0; }
int VTAShimStatus(void) { return error_code; }
const char *VTAShimMessage(void) { return error_code ? error_text : ""; }
uint64_t VTAShimInstructions(void) { return instructions; }

void VTAShimReset(int order, uint32_t seed)
{
  error_code = 0;
  instructions = 0;
  stream_count = 0;
  memset(pending_pop_prev, 0, sizeof pending_pop_prev);
  memset(pending_pop_next, 0, sizeof pending_pop_next);
  uops_loaded = 0;
  recording = NULL;
  ++epoch;
  chip_reset(order, seed);
}

void VTAShimTrace(const char *path)
{
  if (trace)
    fclose(trace);
  trace = path ? fopen(path, "w") : NULL;
  if (path && !trace)
    shim_fail(VTA_SHIM_HANDLE, "cannot write the trace to %s", path);
}

static void *checked_alloc(void *old, size_t size)
{
  void *made = realloc(old, size);
  if (!made) {
    fputs("shim: out of memory\n", stderr);
    abort();
  }
  return made;
}

/* --- buffers --- */

static struct buffer *find_buffer(const void *handle)
{
  for (size_t i = 0; i < buffer_count; ++i)
    if (buffers[i] == handle)
      return buffers[i];
  return NULL;
}

static struct buffer *live_buffer(const void *handle, const char *what)
{
  struct buffer *buffer = find_buffer(handle);
  if (!buffer)
    shim_fail(VTA_SHIM_HANDLE, "%s: not a handle from VTABufferAlloc", what);
  else if (!buffer->live)
    shim_fail(VTA_SHIM_HANDLE, "%s: the buffer has been freed", what);
  else
    return buffer;
  return NULL;
}

VTACommandHandle VTATLSCommandHandle(void) { return &stream; }

static int right_handle(VTACommandHandle cmd)
{
  if (cmd != (VTACommandHandle)&stream)
    shim_fail(VTA_SHIM_HANDLE, "the command handle is not the one that VTATLSCommandHandle gives");
  return !shim_failed();
}

void VTAShimFailAllocation(int more) { allocations_left = more; }

void *VTABufferAlloc(size_t size)
{
  if (allocations_left == 0)
    return NULL;
  if (allocations_left > 0)
    --allocations_left;
  struct buffer *buffer = checked_alloc(NULL, sizeof *buffer);
  buffer->data = checked_alloc(NULL, size ? size : 1);
  memset(buffer->data, 0xA5, size);
  buffer->defined = checked_alloc(NULL, size ? size : 1);
  memset(buffer->defined, 0, size);
  buffer->size = size;
  buffer->live = 1;
  buffer->address = next_address;
  next_address += (size + 4095) / 4096 * 4096 + 4096;
  buffers = checked_alloc(buffers, (buffer_count + 1) * sizeof *buffers);
  buffers[buffer_count++] = buffer;
  return buffer;
}

void VTABufferFree(void *handle)
{
  struct buffer *buffer = live_buffer(handle, "VTABufferFree");
  if (!buffer)
    return;
  free(buffer->data);
  free(buffer->defined);
  buffer->data = buffer->defined = NULL;
  buffer->live = 0;
}

size_t VTAShimLiveBuffers(void)
{
  size_t count = 0;
  for (size_t i = 0; i < buffer_count; ++i)
    count += buffers[i]->live != 0;
  return count;
}

void *VTABufferCPUPtr(VTACommandHandle cmd, void *handle)
{
  struct buffer *buffer = live_buffer(handle, "VTABufferCPUPtr");
  if (!right_handle(cmd) || !buffer)
    return NULL;
  memset(buffer->defined, 1, buffer->size); /* the host may write what it likes */
  return buffer->data;
}

void VTABufferCopy(const void *from, size_t from_offset, void *to, size_t to_offset, size_t size,
                   int kind_mask)
{
  if (shim_failed())
    return;
  if (kind_mask != 1 && kind_mask != 2) {
    shim_fail(VTA_SHIM_HANDLE, "VTABufferCopy: kind %d is neither 1 nor 2", kind_mask);
    return;
  }
  int up = kind_mask == 1;
  struct buffer *buffer = live_buffer(up ? to : from, "VTABufferCopy");
  size_t offset = up ? to_offset : from_offset;
  if (!buffer)
    return;
  if (find_buffer(up ? from : to)) {
    shim_fail(VTA_SHIM_HANDLE, "VTABufferCopy: a handle stands where a host pointer belongs");
    return;
  }
  if (offset > buffer->size || size > buffer->size - offset) {
    shim_fail(VTA_SHIM_DRAM, "VTABufferCopy: %zu bytes at %zu of a buffer of %zu", size, offset,
              buffer->size);
    return;
  }
  if (up) {
    memcpy(buffer->data + offset, (const char *)from + from_offset, size);
    memset(buffer->defined + offset, 1, size);
  } else {
    memcpy((char *)to + to_offset, buffer->data + offset, size);
  }
}

/* --- the stream --- */

static int within(uint64_t value, uint64_t limit, const char *call, const char *field)
{
  if (value <= limit)
    return 1;
  shim_fail(VTA_SHIM_FIELD, "%s: %s is %llu, the field ends at %llu", call, field,
            (unsigned long long)value, (unsigned long long)limit);
  return 0;
}

/* A new last instruction; it takes the pops that wait for one of its stage. */
static struct insn *append(enum kind kind, int stage)
{
  if (stream_count >= MAX_INSTRUCTIONS)
    shim_fail(VTA_SHIM_CAPACITY, "the runtime would synchronise by itself after %d instructions",
              MAX_INSTRUCTIONS);
  if (stream_count == stream_room) {
    stream_room = stream_room ? 2 * stream_room : 1024;
    stream = checked_alloc(stream, stream_room * sizeof *stream);
  }
  struct insn *insn = &stream[stream_count++];
  memset(insn, 0, sizeof *insn);
  insn->kind = kind;
  insn->stage = stage;
  insn->pop_prev = pending_pop_prev[stage];
  insn->pop_next = pending_pop_next[stage];
  pending_pop_prev[stage] = pending_pop_next[stage] = 0;
  return insn;
}

static int neighbours(int from, int to)
{
  int good = from >= LOAD && from <= STORE && to >= LOAD && to <= STORE &&
             (from - to == 1 || to - from == 1);
  if (!good)
    shim_fail(VTA_SHIM_TOKEN, "no token goes from stage %d to stage %d", from, to);
  return good;
}

/* Pops that wait for an instruction get an empty one. */
static void commit_pops(int stage)
{
  if (pending_pop_prev[stage] || pending_pop_next[stage])
    append(NOP, stage);
}

int VTADepPush(VTACommandHandle cmd, int from, int to)
{
  if (!right_handle(cmd) || !neighbours(from, to))
    return 0;
  commit_pops(from);
  struct insn *last = stream_count ? &stream[stream_count - 1] : NULL;
  if (!last || last->stage != from || (to > from ? last->push_next : last->push_prev))
    last = append(NOP, from);
  if (to > from)
    last->push_next = 1;
  else
    last->push_prev = 1;
  return 0;
}

int VTADepPop(VTACommandHandle cmd, int from, int to)
{
  if (!right_handle(cmd) || !neighbours(from, to))
    return 0;
  unsigned *pending = from < to ? &pending_pop_prev[to] : &pending_pop_next[to];
  if (*pending)
    shim_fail(VTA_SHIM_TOKEN, "two pops from stage %d wait for one instruction of stage %d", from,
              to);
  *pending = 1;
  return 0;
}

static int in_dram(const struct buffer *buffer, uint64_t offset, uint32_t x, uint32_t y,
                   uint32_t stride, uint32_t memory, const char *call)
{
  uint64_t last = offset + (uint64_t)(y - 1) * stride + x;
  if (last * entry_bytes(memory) <= buffer->size)
    return 1;
  shim_fail(VTA_SHIM_DRAM, "%s: reaches byte %llu of a buffer of %zu", call,
            (unsigned long long)(last * entry_bytes(memory)), buffer->size);
  return 0;
}

static int in_sram(uint64_t first, uint64_t count, uint32_t memory, const char *call)
{
  if (first + count <= memory_entries(memory))
    return 1;
  shim_fail(VTA_SHIM_SRAM, "%s: entries %llu to %llu of memory %u, which has %u", call,
            (unsigned long long)first, (unsigned long long)(first + count - 1), memory,
            memory_entries(memory));
  return 0;
}

void VTALoadBuffer2D(VTACommandHandle cmd, void *src, uint32_t offset, uint32_t x, uint32_t y,
                     uint32_t stride, uint32_t x_before, uint32_t y_before, uint32_t x_after,
                     uint32_t y_after, uint32_t sram, uint32_t memory)
{
  static const char *const call = "VTALoadBuffer2D";
  if (!right_handle(cmd))
    return;
  struct buffer *buffer = live_buffer(src, call);
  if (!buffer)
    return;
  if (memory != MEM_WGT && memory != MEM_INP && memory != MEM_ACC) {
    shim_fail(VTA_SHIM_MEMORY_TYPE, "%s: memory %u cannot be loaded here", call, memory);
    return;
  }
  if (!within(x, 65535, call, "x_size") || !within(y, 65535, call, "y_size") ||
      !within(stride, 65535, call, "x_stride") || !within(x_before, 15, call, "x_pad_before") ||
      !within(y_before, 15, call, "y_pad_before") || !within(x_after, 15, call, "x_pad_after") ||
      !within(y_after, 15, call, "y_pad_after"))
    return;
  if (x && y && !in_dram(buffer, offset, x, y, stride, memory, call))
    return;
  uint64_t entries = (uint64_t)(x + x_before + x_after) * (y + y_before + y_after);
  if (x && !in_sram(sram, entries, memory, call))
    return;
  struct insn *insn = append(LOAD_DATA, memory == MEM_ACC ? COMPUTE : LOAD);
  insn->memory = memory;
  insn->sram = sram;
  insn->x = x;
  insn->y = y;
  insn->stride = stride;
  insn->pad[0] = x_before;
  insn->pad[1] = y_before;
  insn->pad[2] = x_after;
  insn->pad[3] = y_after;
  insn->buffer = buffer;
  insn->offset = (uint64_t)offset * entry_bytes(memory);
}

void VTAStoreBuffer2D(VTACommandHandle cmd, uint32_t sram, uint32_t memory, void *dst,
                      uint32_t offset, uint32_t x, uint32_t y, uint32_t stride)
{
  static const char *const call = "VTAStoreBuffer2D";
  if (!right_handle(cmd))
    return;
  struct buffer *buffer = live_buffer(dst, call);
  if (!buffer)
    return;
  if (memory != MEM_OUT) {
    shim_fail(VTA_SHIM_MEMORY_TYPE, "%s: memory %u cannot be stored", call, memory);
    return;
  }
  if (!within(x, 65535, call, "x_size") || !within(y, 65535, call, "y_size") ||
      !within(stride, 65535, call, "x_stride"))
    return;
  if (x && y &&
      (!in_dram(buffer, offset, x, y, stride, memory, call) ||
       !in_sram(sram, (uint64_t)x * y, memory, call)))
    return;
  struct insn *insn = append(STORE_DATA, STORE);
  insn->memory = memory;
  insn->sram = sram;
  insn->x = x;
  insn->y = y;
  insn->stride = stride;
  insn->buffer = buffer;
  insn->offset = (uint64_t)offset * entry_bytes(memory);
}

/* --- micro-kernels --- */

struct kernel_map {
  struct kernel *plain;
  struct kernel *by_signature[MAX_SIGNATURE + 1];
};

static int is_recording(const char *call)
{
  if (!recording)
    shim_fail(VTA_SHIM_UOP, "%s outside the building of a micro-kernel", call);
  return recording && !shim_failed();
}

void VTAUopLoopBegin(uint32_t extent, uint32_t dst, uint32_t src, uint32_t wgt)
{
  static const char *const call = "VTAUopLoopBegin";
  if (!is_recording(call))
    return;
  if (recording->count)
    shim_fail(VTA_SHIM_UOP, "%s after the first micro-op", call);
  if (recording->loops == 2)
    shim_fail(VTA_SHIM_UOP, "%s: a third loop", call);
  if (extent == 0)
    shim_fail(VTA_SHIM_FIELD, "%s: a loop of no iterations", call);
  if (!within(extent, 16383, call, "extent") || !within(dst, 2047, call, "dst_factor") ||
      !within(src, 2047, call, "src_factor") || !within(wgt, 1023, call, "wgt_factor") ||
      shim_failed())
    return;
  int level = recording->loops++;
  ++recording->open_loops;
  recording->loop[level].extent = extent;
  recording->loop[level].dst = dst;
  recording->loop[level].src = src;
  recording->loop[level].wgt = wgt;
}

void VTAUopLoopEnd(void)
{
  if (!is_recording("VTAUopLoopEnd"))
    return;
  if (recording->open_loops == 0)
    shim_fail(VTA_SHIM_UOP, "VTAUopLoopEnd without a loop");
  else
    --recording->open_loops;
}

void VTAUopPush(uint32_t mode, uint32_t reset, uint32_t dst, uint32_t src, uint32_t wgt,
                uint32_t opcode, uint32_t use_imm, int32_t imm)
{
  static const char *const call = "VTAUopPush";
  struct kernel *k = recording;
  if (!is_recording(call))
    return;
  if (!within(mode, 1, call, "mode") || !within(reset, 1, call, "reset") ||
      !within(dst, 2047, call, "dst") || !within(src, 2047, call, "src") ||
      !within(wgt, 1023, call, "wgt") || !within(use_imm, 1, call, "use_imm"))
    return;
  if (mode == 1 && opcode >= ALU_MUL) {
    shim_fail(VTA_SHIM_UNSUPPORTED, "%s: opcode %u does not exist here", call, opcode);
    return;
  }
  if (imm < -32768 || imm > 32767) {
    shim_fail(VTA_SHIM_FIELD, "%s: imm %d does not fit 16 bits", call, (int)imm);
    return;
  }
  if (k->count == 0) {
    k->mode = (int)mode;
    k->reset = (int)reset;
    k->opcode = (int)opcode;
    k->use_imm = (int)use_imm;
    k->imm = imm;
  } else if (k->mode != (int)mode || k->reset != (int)reset || k->opcode != (int)opcode ||
             k->use_imm != (int)use_imm || k->imm != imm) {
    shim_fail(VTA_SHIM_UOP, "%s: mode, reset, opcode or imm differs within a micro-kernel", call);
    return;
  }
  for (uint32_t back = 1; back <= 2 && back <= k->count; ++back)
    if (k->ops[k->count - back].dst == dst) {
      shim_fail(VTA_SHIM_REWRITE, "%s: dst %u again after %u micro-ops", call, dst, back);
      return;
    }
  if (k->count >= 8192) {
    shim_fail(VTA_SHIM_CAPACITY, "%s: more than 8192 micro-ops in one micro-kernel", call);
    return;
  }
  if (k->count == k->room) {
    k->room = k->room ? 2 * k->room : 16;
    k->ops = checked_alloc(k->ops, k->room * sizeof *k->ops);
  }
  k->ops[k->count].dst = dst;
  k->ops[k->count].src = src;
  k->ops[k->count].wgt = wgt;
  ++k->count;
}

static struct kernel *record(int (*finit)(void *), void *signature)
{
  struct kernel *k = checked_alloc(NULL, sizeof *k);
  memset(k, 0, sizeof *k);
  recording = k;
  if (finit(signature) != 0)
    shim_fail(VTA_SHIM_UOP, "building a micro-kernel failed");
  recording = NULL;
  if (!shim_failed() && k->open_loops)
    shim_fail(VTA_SHIM_UOP, "a loop of a micro-kernel was not ended");
  if (!shim_failed() && k->count == 0)
    shim_fail(VTA_SHIM_UOP, "a micro-kernel without micro-ops");
  if (!shim_failed())
    return k;
  free(k->ops);
  free(k);
  return NULL;
}

static int push_op(int mode, void **handle, int (*finit)(void *), void *signature, int nbytes)
{
  if (shim_failed())
    return 0;
  if (recording) {
    shim_fail(VTA_SHIM_UOP, "an operation is pushed while a micro-kernel is built");
    return 0;
  }
  if (nbytes != 0 && nbytes != 4) {
    shim_fail(VTA_SHIM_UOP, "a signature of %d bytes", nbytes);
    return 0;
  }
  int number = 0;
  if (nbytes == 4)
    memcpy(&number, signature, 4);
  if (number < 0 || number > MAX_SIGNATURE) {
    shim_fail(VTA_SHIM_FIELD, "signature %d is not in 0..%d", number, MAX_SIGNATURE);
    return 0;
  }
  if (!*handle) {
    *handle = checked_alloc(NULL, sizeof(struct kernel_map));
    memset(*handle, 0, sizeof(struct kernel_map));
  }
  struct kernel_map *map = *handle;
  struct kernel **slot = nbytes ? &map->by_signature[number] : &map->plain;
  if (!*slot)
    *slot = record(finit, signature);
  struct kernel *k = *slot;
  if (!k)
    return 0;
  if (k->mode != mode) {
    shim_fail(VTA_SHIM_UOP, "a micro-kernel of mode %d is pushed as mode %d", k->mode, mode);
    return 0;
  }
  if (k->loaded != epoch) {
    if (uops_loaded + k->count > UOP_ENTRIES) {
      shim_fail(VTA_SHIM_CAPACITY, "%u distinct micro-ops since the synchronisation, %d fit",
                uops_loaded + k->count, UOP_ENTRIES);
      return 0;
    }
    k->loaded = epoch;
    k->sram = uops_loaded;
    uops_loaded += k->count;
    struct insn *load = append(LOAD_UOP, COMPUTE);
    load->memory = MEM_UOP;
    load->sram = k->sram;
    load->offset = 4 * (uint64_t)k->sram;
    load->x = k->count;
    load->y = 1;
    load->stride = k->count;
    load->kernel = k;
  }
  append(mode == 0 ? GEMM : ALU, COMPUTE)->kernel = k;
  return 0;
}

int VTAPushGEMMOp(void **handle, int (*finit)(void *), void *signature, int nbytes)
{
  return push_op(0, handle, finit, signature, nbytes);
}

int VTAPushALUOp(void **handle, int (*finit)(void *), void *signature, int nbytes)
{
  return push_op(1, handle, finit, signature, nbytes);
}

/* --- synchronisation --- */

static void trace_insn(const struct insn *i)
{
  static const char *const kinds[] = {"nop", "load_uop", "load", "store", "gemm", "alu", "finish"};
  uint64_t n = 0;
  if (i->kernel) {
    n = i->kernel->count;
    for (int level = 0; level < i->kernel->loops; ++level)
      n *= i->kernel->loop[level].extent;
  }
  fprintf(trace,
          "{\"kind\": \"%s\", \"stage\": %d, \"pop\": [%u, %u], \"push\": [%u, %u], "
          "\"memory\": %u, \"address\": %llu, \"entry_bytes\": %u, \"x\": %u, \"y\": %u, "
          "\"stride\": %u, \"pads\": [%u, %u, %u, %u], \"iterations\": %llu, \"operands\": %d}\n",
          kinds[i->kind], i->stage, i->pop_prev, i->pop_next, i->push_prev, i->push_next,
          i->memory, (unsigned long long)(i->offset + (i->buffer ? i->buffer->address : 0)),
          entry_bytes(i->memory), i->x, i->y, i->stride, i->pad[0], i->pad[1], i->pad[2],
          i->pad[3], (unsigned long long)n, i->kernel && i->kernel->use_imm ? 1 : 2);
}

void VTASynchronize(VTACommandHandle cmd, uint32_t wait_cycles)
{
  (void)wait_cycles;
  VTADepPush(cmd, STORE, COMPUTE);
  VTADepPush(cmd, LOAD, COMPUTE);
  VTADepPop(cmd, STORE, COMPUTE);
  VTADepPop(cmd, LOAD, COMPUTE);
  if (shim_failed())
    return;
  commit_pops(COMPUTE);
  append(FINISH, COMPUTE);
  for (int stage = LOAD; stage <= STORE; ++stage)
    if (pending_pop_prev[stage] || pending_pop_next[stage])
      shim_fail(VTA_SHIM_TOKEN, "a pop of stage %d waits for an instruction at the end", stage);
  if (trace)
    for (size_t i = 0; i < stream_count; ++i)
      trace_insn(&stream[i]);
  if (trace)
    fflush(trace);
  if (!shim_failed())
    chip_execute(stream, stream_count);
  instructions += stream_count;
  stream_count = 0;
  uops_loaded = 0;
  ++epoch;
}
