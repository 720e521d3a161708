/* Small programs that the shim must accept or refuse; prints one line per case. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vta/runtime/runtime.h>

#define CHECK(condition) \
  do { \
    if (!(condition)) { \
      printf("wrong: %s; ", #condition); \
      wrong = 1; \
    } \
  } while (0)

static VTACommandHandle cmd;
static void *a_buffer, *w_buffer, *b_buffer, *c_buffer; /* INP, WGT, ACC and OUT data */
static int8_t a[64 * 16], w[16 * 256], c[64 * 16];
static int32_t b[64 * 16];
static int wrong;

static void begin(void)
{
  cmd = VTATLSCommandHandle();
  for (int i = 0; i < 64 * 16; ++i) {
    a[i] = (int8_t)(i * 7 - 31);
    b[i] = i * 129 - 4000;
    c[i] = 0x5A;
  }
  for (int i = 0; i < 16 * 256; ++i)
    w[i] = (int8_t)(i * 11 + 5);
  a_buffer = VTABufferAlloc(sizeof a);
  w_buffer = VTABufferAlloc(sizeof w);
  b_buffer = VTABufferAlloc(sizeof b);
  c_buffer = VTABufferAlloc(sizeof c);
  VTABufferCopy(a, 0, a_buffer, 0, sizeof a, 1);
  VTABufferCopy(w, 0, w_buffer, 0, sizeof w, 1);
  VTABufferCopy(b, 0, b_buffer, 0, sizeof b, 1);
}

static void end(void)
{
  VTASynchronize(cmd, 1u << 31);
  VTABufferCopy(c_buffer, 0, c, 0, sizeof c, 2);
}

static void give_back(void)
{
  VTABufferFree(a_buffer);
  VTABufferFree(w_buffer);
  VTABufferFree(b_buffer);
  VTABufferFree(c_buffer);
}

static void load(uint32_t memory, uint32_t sram, uint32_t count)
{
  void *buffer = memory == 1 ? w_buffer : memory == 2 ? a_buffer : b_buffer;
  VTALoadBuffer2D(cmd, buffer, 0, count, 1, count, 0, 0, 0, 0, sram, memory);
}

static void store(uint32_t sram, uint32_t count)
{
  VTAStoreBuffer2D(cmd, sram, 4, c_buffer, 0, count, 1, count);
}

/* One micro-op in one loop; the op is given by globals so that each case can choose. */
static struct {
  uint32_t extent, dst_factor, src_factor, mode, reset, dst, src, wgt, opcode, use_imm;
  int32_t imm;
} op;
static int built;

static int build(void *signature)
{
  (void)signature;
  ++built;
  VTAUopLoopBegin(op.extent, op.dst_factor, op.src_factor, 0);
  VTAUopPush(op.mode, op.reset, op.dst, op.src, op.wgt, op.opcode, op.use_imm, op.imm);
  VTAUopLoopEnd();
  return 0;
}

static void push_op(void)
{
  void *handle = NULL;
  if (op.mode == 0)
    VTAPushGEMMOp(&handle, build, NULL, 0);
  else
    VTAPushALUOp(&handle, build, NULL, 0);
}

static void alu_imm(uint32_t opcode, int32_t imm, uint32_t dst, uint32_t extent)
{
  memset(&op, 0, sizeof op);
  op.extent = extent;
  op.dst_factor = op.src_factor = 1;
  op.mode = 1;
  op.dst = op.src = dst;
  op.opcode = opcode;
  op.use_imm = 1;
  op.imm = imm;
  push_op();
}

static void gemm(uint32_t reset, uint32_t dst, uint32_t src, uint32_t wgt)
{
  memset(&op, 0, sizeof op);
  op.extent = 1;
  op.reset = reset;
  op.dst = dst;
  op.src = src;
  op.wgt = wgt;
  push_op();
}

static void compute_then_store(uint32_t sram, uint32_t count)
{
  VTADepPush(cmd, 2, 3);
  VTADepPop(cmd, 2, 3);
  store(sram, count);
}

/* --- accepted --- */

static void gemm_is_exact(void)
{
  load(2, 3, 1);
  load(1, 5, 1);
  VTADepPush(cmd, 1, 2);
  VTADepPop(cmd, 1, 2);
  gemm(1, 9, 0, 0);
  gemm(0, 9, 3, 5);
  compute_then_store(9, 1);
  end();
  for (int o = 0; o < 16; ++o) {
    int sum = 0;
    for (int i = 0; i < 16; ++i)
      sum += a[i] * w[o * 16 + i];
    CHECK(c[o] == (int8_t)(sum & 0xFF ? (sum & 0xFF) - (sum & 0x80 ? 256 : 0) : 0));
  }
}

static void store_truncates(void)
{
  load(3, 0, 4);
  alu_imm(2, 0, 0, 4);
  compute_then_store(0, 4);
  end();
  for (int i = 0; i < 64; ++i)
    CHECK((uint8_t)c[i] == ((uint32_t)b[i] & 0xFF));
}

static void alu_operations(void)
{
  load(3, 0, 4);
  alu_imm(3, 4, 0, 4);
  alu_imm(1, -128, 0, 4);
  alu_imm(0, 127, 0, 4);
  compute_then_store(0, 4);
  end();
  for (int i = 0; i < 64; ++i) {
    int v = b[i] >= 0 ? b[i] / 16 : -((-b[i] + 15) / 16);
    CHECK(c[i] == (v < -128 ? -128 : v > 127 ? 127 : v));
  }
}

static void loads_pad_with_zero(void)
{
  /* 2 x 2 entries, padded to 4 x 5. */
  VTALoadBuffer2D(cmd, b_buffer, 0, 2, 2, 3, 1, 1, 1, 2, 0, 3);
  alu_imm(2, 0, 0, 20);
  compute_then_store(0, 20);
  end();
  for (int row = 0; row < 5; ++row)
    for (int column = 0; column < 4; ++column)
      for (int lane = 0; lane < 16; ++lane) {
        int inside = row >= 1 && row < 3 && column >= 1 && column < 3;
        int32_t v = inside ? b[((row - 1) * 3 + column - 1) * 16 + lane] : 0;
        CHECK((uint8_t)c[(row * 4 + column) * 16 + lane] == ((uint32_t)v & 0xFF));
      }
}

static void stride_zero_broadcasts(void)
{
  VTALoadBuffer2D(cmd, b_buffer, 1, 1, 3, 0, 0, 0, 0, 0, 0, 3);
  alu_imm(2, 0, 0, 3);
  compute_then_store(0, 3);
  end();
  for (int i = 0; i < 48; ++i)
    CHECK((uint8_t)c[i] == ((uint32_t)b[16 + i % 16] & 0xFF));
}

static void empty_load_does_nothing(void)
{
  load(3, 0, 1);
  VTALoadBuffer2D(cmd, b_buffer, 0, 0, 1, 0, 1, 1, 1, 1, 0, 3);
  alu_imm(2, 0, 0, 1);
  compute_then_store(0, 1);
  end();
  CHECK((uint8_t)c[0] == ((uint32_t)b[0] & 0xFF));
}

static void sram_persists(void)
{
  load(3, 0, 1);
  VTASynchronize(cmd, 0);
  alu_imm(2, 0, 0, 1);
  compute_then_store(0, 1);
  end();
  CHECK((uint8_t)c[0] == ((uint32_t)b[0] & 0xFF));
}

static void micro_kernels_are_cached(void)
{
  static void *handle = NULL;
  int signature = 98, fresh = handle == NULL;
  built = 0;
  memset(&op, 0, sizeof op);
  op.extent = op.dst_factor = op.reset = 1;
  for (int i = 0; i < 3; ++i) {
    VTAPushGEMMOp(&handle, build, &signature, 4);
    VTASynchronize(cmd, 0);
  }
  CHECK(built == fresh);
  signature = 0;
  VTAPushGEMMOp(&handle, build, &signature, 4);
  CHECK(built == 2 * fresh);
  VTASynchronize(cmd, 0);
}

static void pushes_add_empty_instructions(void)
{
  load(2, 0, 1); /* takes the first push; the second needs an instruction of its own */
  VTADepPush(cmd, 1, 2);
  VTADepPush(cmd, 1, 2);
  VTADepPop(cmd, 1, 2);
  VTADepPush(cmd, 2, 1); /* commits the pop, and takes the push itself */
  VTADepPop(cmd, 2, 1);
  load(2, 0, 1);
  VTADepPop(cmd, 1, 2);
  gemm(1, 0, 0, 0); /* its micro-op load takes the pop */
  end();
  /* load, NOP; NOP with pop and push; load; micro-op load, GEMM; the end: one NOP a stage, FINISH */
  CHECK(VTAShimInstructions() == 10);
}

static int two_micro_ops_apart(void *signature)
{
  (void)signature;
  for (uint32_t i = 0; i < 6; ++i)
    VTAUopPush(1, 0, i % 3, i % 3, 0, 2, 1, 1);
  return 0;
}

static void distance_three_is_fine(void)
{
  void *handle = NULL;
  load(3, 0, 3);
  VTAPushALUOp(&handle, two_micro_ops_apart, NULL, 0);
  compute_then_store(0, 3);
  end();
  CHECK((uint8_t)c[0] == ((uint32_t)(b[0] + 2) & 0xFF));
}

/* --- refused --- */

static void missing_push(void)
{
  VTADepPop(cmd, 1, 2);
  gemm(1, 0, 0, 0);
  end();
}

static void surplus_push(void)
{
  load(2, 0, 1);
  VTADepPush(cmd, 1, 2);
  end();
}

static void distant_stages(void) { VTADepPush(cmd, 1, 3); }

static void pop_twice(void)
{
  VTADepPop(cmd, 1, 2);
  VTADepPop(cmd, 1, 2);
}

static void queue_of_512(void)
{
  /* The load that gives the token stands behind more stores than the queue holds. */
  gemm(1, 0, 0, 0);
  VTADepPush(cmd, 2, 3);
  VTADepPop(cmd, 2, 3);
  store(0, 1);
  VTADepPop(cmd, 2, 3);
  for (int i = 0; i < 600; ++i)
    store(0, 1);
  gemm(1, 0, 0, 0);
  VTADepPush(cmd, 2, 3);
  end();
}

static void unordered_load(void)
{
  load(2, 0, 1);
  load(1, 0, 1);
  VTASynchronize(cmd, 0);
  load(2, 0, 1);
  gemm(1, 0, 0, 0);
  gemm(0, 0, 0, 0);
  end();
}

static void overwritten_while_read(void)
{
  load(2, 0, 1);
  load(1, 0, 1);
  VTADepPush(cmd, 1, 2);
  VTADepPop(cmd, 1, 2);
  gemm(1, 0, 0, 0);
  gemm(0, 0, 0, 0);
  load(2, 0, 1);
  end();
}

static void store_before_compute(void)
{
  gemm(1, 0, 0, 0);
  VTASynchronize(cmd, 0);
  gemm(1, 0, 0, 0);
  store(0, 1);
  end();
}

static void raw_pointer(void)
{
  VTALoadBuffer2D(cmd, a, 0, 1, 1, 1, 0, 0, 0, 0, 0, 2);
}

static void data_pointer(void)
{
  void *data = VTABufferCPUPtr(cmd, a_buffer);
  VTALoadBuffer2D(cmd, data, 0, 1, 1, 1, 0, 0, 0, 0, 0, 2);
}

static void copy_between_handles(void) { VTABufferCopy(a_buffer, 0, b_buffer, 0, 16, 1); }
static void copy_past_end(void) { VTABufferCopy(a, 0, a_buffer, 8, sizeof a, 1); }

static void freed_twice(void)
{
  void *other = VTABufferAlloc(64);
  VTABufferFree(other);
  VTABufferFree(other);
}

static void freed_too_early(void)
{
  void *other = VTABufferAlloc(64);
  VTABufferCopy(a, 0, other, 0, 64, 1);
  VTALoadBuffer2D(cmd, other, 0, 1, 1, 1, 0, 0, 0, 0, 0, 2);
  VTABufferFree(other);
  end();
}

static void load_past_buffer(void)
{
  VTALoadBuffer2D(cmd, a_buffer, 60, 5, 1, 5, 0, 0, 0, 0, 0, 2);
}

static void store_past_buffer(void) { VTAStoreBuffer2D(cmd, 0, 4, c_buffer, 63, 1, 2, 1); }
static void load_past_sram(void) { load(2, 2047, 2); }
static void wgt_past_sram(void) { load(1, 1020, 8); }
static void store_past_sram(void) { store(2048, 1); }

static void gemm_past_sram(void)
{
  memset(&op, 0, sizeof op);
  op.extent = 2;
  op.dst_factor = 2000;
  op.reset = 1;
  op.dst = 100;
  push_op();
  end();
}

static void wide_load(void)
{
  VTALoadBuffer2D(cmd, a_buffer, 0, 65536, 1, 1, 0, 0, 0, 0, 0, 2);
}

static void wide_stride(void)
{
  VTALoadBuffer2D(cmd, a_buffer, 0, 1, 1, 65536, 0, 0, 0, 0, 0, 2);
}

static void wide_pad(void) { VTALoadBuffer2D(cmd, a_buffer, 0, 1, 1, 1, 16, 0, 0, 0, 0, 2); }
static void loaded_out(void) { VTALoadBuffer2D(cmd, c_buffer, 0, 1, 1, 1, 0, 0, 0, 0, 0, 4); }
static void loaded_acc_8bit(void) { VTALoadBuffer2D(cmd, a_buffer, 0, 1, 1, 1, 0, 0, 0, 0, 0, 5); }
static void stored_acc(void) { VTAStoreBuffer2D(cmd, 0, 3, c_buffer, 0, 1, 1, 1); }

static void long_loop(void) { alu_imm(2, 0, 0, 16384); }

static void wide_factor(void)
{
  memset(&op, 0, sizeof op);
  op.extent = 2;
  op.dst_factor = 2048;
  op.reset = 1;
  push_op();
}

static void wide_imm(void) { alu_imm(2, 40000, 0, 1); }
static void multiply(void) { alu_imm(4, 2, 0, 1); }

static void wide_signature(void)
{
  void *handle = NULL;
  int signature = 99;
  memset(&op, 0, sizeof op);
  op.extent = 1;
  VTAPushGEMMOp(&handle, build, &signature, 4);
}

static int three_loops(void *signature)
{
  (void)signature;
  for (int i = 0; i < 3; ++i)
    VTAUopLoopBegin(1, 0, 0, 0);
  return 0;
}

static int late_loop(void *signature)
{
  (void)signature;
  VTAUopPush(0, 1, 0, 0, 0, 0, 0, 0);
  VTAUopLoopBegin(1, 0, 0, 0);
  return 0;
}

static int open_loop(void *signature)
{
  (void)signature;
  VTAUopLoopBegin(1, 0, 0, 0);
  VTAUopPush(0, 1, 0, 0, 0, 0, 0, 0);
  return 0;
}

static int mixed_reset(void *signature)
{
  (void)signature;
  VTAUopPush(0, 1, 0, 0, 0, 0, 0, 0);
  VTAUopPush(0, 0, 1, 0, 0, 0, 0, 0);
  return 0;
}

static int mixed_mode(void *signature)
{
  (void)signature;
  VTAUopPush(0, 0, 0, 0, 0, 0, 0, 0);
  VTAUopPush(1, 0, 1, 0, 0, 0, 0, 0);
  return 0;
}

static int mixed_imm(void *signature)
{
  (void)signature;
  VTAUopPush(1, 0, 0, 0, 0, 2, 1, 1);
  VTAUopPush(1, 0, 1, 0, 0, 2, 1, 2);
  return 0;
}

static int rewrites(void *signature)
{
  (void)signature;
  VTAUopPush(0, 1, 0, 0, 0, 0, 0, 0);
  VTAUopPush(0, 1, 1, 0, 0, 0, 0, 0);
  VTAUopPush(0, 1, 0, 0, 0, 0, 0, 0);
  return 0;
}

static int many_micro_ops(void *signature)
{
  int first = *(int *)signature * 1000;
  for (int i = 0; i < 1000; ++i)
    VTAUopPush(0, 1, (uint32_t)(first + i) % 2048, 0, 0, 0, 0, 0);
  return 0;
}

static void with_kernel(int (*finit)(void *))
{
  void *handle = NULL;
  VTAPushGEMMOp(&handle, finit, NULL, 0);
}

static void a_third_loop(void) { with_kernel(three_loops); }
static void a_late_loop(void) { with_kernel(late_loop); }
static void an_open_loop(void) { with_kernel(open_loop); }
static void mixing_reset(void) { with_kernel(mixed_reset); }
static void mixing_mode(void) { with_kernel(mixed_mode); }
static void rewriting(void) { with_kernel(rewrites); }

static void mixing_imm(void)
{
  void *handle = NULL;
  VTAPushALUOp(&handle, mixed_imm, NULL, 0);
}

static void pushed_outside(void) { VTAUopPush(0, 1, 0, 0, 0, 0, 0, 0); }

static void alu_as_gemm(void)
{
  void *handle = NULL;
  VTAPushGEMMOp(&handle, two_micro_ops_apart, NULL, 0);
}

static void too_many_micro_ops(void)
{
  void *handle = NULL;
  for (int signature = 0; signature < 3; ++signature)
    VTAPushGEMMOp(&handle, many_micro_ops, &signature, 4);
}

static void alu_in_place(void)
{
  load(3, 0, 1);
  memset(&op, 0, sizeof op);
  op.extent = 2; /* with a factor of 0: twice the same entry */
  op.mode = op.use_imm = op.imm = 1;
  op.opcode = 2;
  push_op();
  end();
}

static void alu_reads_previous(void)
{
  /* dst 0, 1, 2 with src one behind: src of each is dst of the one before. */
  load(3, 0, 8);
  memset(&op, 0, sizeof op);
  op.extent = 3;
  op.dst_factor = 1;
  op.mode = 1;
  op.dst = 1;
  op.src = 1;
  op.opcode = 2;
  push_op(); /* src factor is 0: iteration 1 reads entry 1, which iteration 0 wrote */
  end();
}

static void store_after_load(void)
{
  load(3, 0, 1);
  compute_then_store(0, 1);
  end();
}

static void unwritten_operand(void)
{
  load(1, 0, 1);
  VTADepPush(cmd, 1, 2);
  VTADepPop(cmd, 1, 2);
  gemm(1, 0, 0, 0);
  gemm(0, 0, 7, 0);
  end();
}

static void unwritten_accumulator(void)
{
  alu_imm(2, 1, 5, 1);
  end();
}

static void immediate_of_another_entry(void)
{
  load(3, 0, 2);
  alu_imm(2, 1, 0, 1);
  op.src = 1; /* as a micro-op that leaves src 0 has it, from entry 1 on */
  push_op();
  end();
}

static void immediate_that_does_not_follow(void)
{
  load(3, 0, 4);
  alu_imm(2, 1, 0, 2);
  op.src_factor = 0;
  push_op();
  end();
}

static void shift_to_the_left(void)
{
  load(3, 0, 1);
  alu_imm(3, -1, 0, 1);
  end();
}

static void unwritten_buffer(void)
{
  VTALoadBuffer2D(cmd, c_buffer, 0, 1, 1, 1, 0, 0, 0, 0, 0, 2);
  end();
}

static void too_many_instructions(void)
{
  for (int i = 0; i < 2000001; ++i)
    load(2, 0, 1);
}

static const struct {
  const char *name;
  int expected;
  void (*run)(void);
} cases[] = {
#define CASE(code, name) {#name, VTA_SHIM_##code, name}
    CASE(OK, gemm_is_exact),
    CASE(OK, store_truncates),
    CASE(OK, alu_operations),
    CASE(OK, loads_pad_with_zero),
    CASE(OK, stride_zero_broadcasts),
    CASE(OK, empty_load_does_nothing),
    CASE(OK, sram_persists),
    CASE(OK, micro_kernels_are_cached),
    CASE(OK, pushes_add_empty_instructions),
    CASE(OK, distance_three_is_fine),
    CASE(DEADLOCK, missing_push),
    CASE(LEFTOVER, surplus_push),
    CASE(TOKEN, distant_stages),
    CASE(TOKEN, pop_twice),
    CASE(DEADLOCK, queue_of_512),
    CASE(RACE, unordered_load),
    CASE(RACE, overwritten_while_read),
    CASE(RACE, store_before_compute),
    CASE(HANDLE, raw_pointer),
    CASE(HANDLE, data_pointer),
    CASE(HANDLE, copy_between_handles),
    CASE(DRAM, copy_past_end),
    CASE(HANDLE, freed_twice),
    CASE(HANDLE, freed_too_early),
    CASE(DRAM, load_past_buffer),
    CASE(DRAM, store_past_buffer),
    CASE(SRAM, load_past_sram),
    CASE(SRAM, wgt_past_sram),
    CASE(SRAM, store_past_sram),
    CASE(SRAM, gemm_past_sram),
    CASE(FIELD, wide_load),
    CASE(FIELD, wide_stride),
    CASE(FIELD, wide_pad),
    CASE(MEMORY_TYPE, loaded_out),
    CASE(MEMORY_TYPE, loaded_acc_8bit),
    CASE(MEMORY_TYPE, stored_acc),
    CASE(FIELD, long_loop),
    CASE(FIELD, wide_factor),
    CASE(FIELD, wide_imm),
    CASE(UNSUPPORTED, multiply),
    CASE(FIELD, wide_signature),
    CASE(UOP, a_third_loop),
    CASE(UOP, a_late_loop),
    CASE(UOP, an_open_loop),
    CASE(UOP, mixing_reset),
    CASE(UOP, mixing_mode),
    CASE(UOP, mixing_imm),
    CASE(UOP, pushed_outside),
    CASE(UOP, alu_as_gemm),
    CASE(REWRITE, rewriting),
    CASE(CAPACITY, too_many_micro_ops),
    CASE(CAPACITY, too_many_instructions),
    CASE(ALU_HAZARD, alu_in_place),
    CASE(ALU_HAZARD, alu_reads_previous),
    CASE(ALU_HAZARD, immediate_that_does_not_follow),
    CASE(TWO_READINGS, immediate_of_another_entry),
    CASE(UNSUPPORTED, shift_to_the_left),
    CASE(STALE_STORE, store_after_load),
    CASE(UNINITIALISED, unwritten_operand),
    CASE(UNINITIALISED, unwritten_accumulator),
    CASE(UNINITIALISED, unwritten_buffer),
#undef CASE
};

int main(void)
{
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    for (int order = VTA_SHIM_COMPUTE_FIRST; order <= VTA_SHIM_RANDOM; ++order) {
      if (order && cases[i].run == too_many_instructions)
        break;
      VTAShimReset(order, (uint32_t)i + 1);
      wrong = 0;
      begin();
      printf("%s %d %d ", cases[i].name, order, cases[i].expected);
      cases[i].run();
      printf("%d %d %s\n", VTAShimStatus(), wrong, VTAShimMessage());
      VTAShimReset(order, 0);
      give_back();
    }
  }
  return VTAShimLiveBuffers() != 0;
}
