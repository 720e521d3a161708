/* Runs the text of blocks and threads on the host. Threads of a block are fibres that run from one
 * barrier to the next in an order that shim_seed shuffles; memory starts poisoned; a barrier that
 * not every thread of a block reaches stops everything, with shim_message. */
#ifndef SHIM_CUDA_RUNTIME_H
#define SHIM_CUDA_RUNTIME_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <random>
#include <vector>

typedef int cudaError_t;
enum { cudaSuccess = 0 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };

struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

#define __global__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static __attribute__((section("shim_shared")))
#define __restrict__
#define __launch_bounds__(n)

/* Blocks have the function for floating point alone. */
double ldexp(int, int) = delete;

static __attribute__((section("shim_shared"), used)) unsigned char shim_first_shared[16];
extern "C" unsigned char __start_shim_shared[], __stop_shim_shared[];

static uint3 blockIdx, threadIdx;
static dim3 blockDim, gridDim;

struct shim_fibre {
  ucontext_t context;
  std::vector<char> stack;
  uint3 index;
  int line;
  bool done;
};
static std::vector<shim_fibre> shim_fibres;
static shim_fibre *shim_now;
static ucontext_t shim_scheduler;
static const std::function<void()> *shim_body;
static std::mt19937 shim_random;
extern "C" {
int shim_barriers;
int shim_seed;
char shim_message[200];
}

static void shim_fail(const char *what, int a, int b) {
  snprintf(shim_message, sizeof shim_message, "%s (%d, %d)", what, a, b);
}

static void shim_sync(int line) {
  shim_now->line = line;
  swapcontext(&shim_now->context, &shim_scheduler);
}
#define __syncthreads() shim_sync(__LINE__)

static void shim_enter() {
  (*shim_body)();
  shim_now->done = true;
  swapcontext(&shim_now->context, &shim_scheduler);
}

static void shim_block() {
  memset(__start_shim_shared, 0xA5, __stop_shim_shared - __start_shim_shared);
  size_t count = (size_t)blockDim.x * blockDim.y * blockDim.z;
  shim_fibres.clear();
  shim_fibres.resize(count);
  std::vector<size_t> order(count);
  for (size_t n = 0; n < count; ++n) {
    shim_fibre &fibre = shim_fibres[n];
    order[n] = n;
    fibre.stack.assign(1 << 16, (char)0xA5);
    fibre.index = {(unsigned)(n % blockDim.x), (unsigned)(n / blockDim.x % blockDim.y),
                   (unsigned)(n / blockDim.x / blockDim.y)};
    fibre.done = false;
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.data();
    fibre.context.uc_stack.ss_size = fibre.stack.size();
    fibre.context.uc_link = &shim_scheduler;
    makecontext(&fibre.context, shim_enter, 0);
  }
  for (;;) {
    for (size_t n = count; n > 1; --n) std::swap(order[n - 1], order[shim_random() % n]);
    size_t done = 0;
    int line = 0;
    for (size_t n : order) {
      shim_now = &shim_fibres[n];
      threadIdx = shim_now->index;
      swapcontext(&shim_scheduler, &shim_now->context);
      done += shim_now->done;
      if (!shim_now->done) {
        if (line != 0 && line != shim_now->line)
          shim_fail("threads wait at different barriers", line, shim_now->line);
        line = shim_now->line;
      }
    }
    if (done != 0 && done != count)
      shim_fail("some threads do not reach a barrier", (int)done, (int)count);
    if (done == count || shim_message[0]) return;
    ++shim_barriers;
  }
}

static inline void shim_launch(dim3 grid, dim3 block, const std::function<void()> &body) {
  shim_random.seed((unsigned)shim_seed);
  blockDim = block;
  gridDim = grid;
  shim_body = &body;
  size_t count = (size_t)grid.x * grid.y * grid.z;
  std::vector<size_t> order(count);
  for (size_t n = 0; n < count; ++n) order[n] = n;
  for (size_t n = count; n > 1; --n) std::swap(order[n - 1], order[shim_random() % n]);
  for (size_t n : order) {
    blockIdx = {(unsigned)(n % grid.x), (unsigned)(n / grid.x % grid.y),
                (unsigned)(n / grid.x / grid.y)};
    if (!shim_message[0]) shim_block();
  }
}

static inline cudaError_t cudaMalloc(void **at, size_t bytes) {
  *at = malloc(bytes ? bytes : 1);
  if (*at) memset(*at, 0xA5, bytes);
  return *at ? cudaSuccess : 2;
}
static inline cudaError_t cudaFree(void *at) { free(at); return cudaSuccess; }
static inline cudaError_t cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind) {
  memcpy(to, from, n);
  return cudaSuccess;
}
static inline cudaError_t cudaGetLastError() { return cudaSuccess; }
static inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
static inline const char *cudaGetErrorString(cudaError_t) { return "shim"; }

/* `asm volatile(...)` in device code is a hint only. */
#define asm
#define volatile(...) ((void)0)

#endif
