/* Runs kernels on given arrays and compares what they leave with what is expected.
 *
 * PROGRAM DATA FIRST REPEATS TIMED: the kernels from number FIRST on, each REPEATS times; with
 * TIMED its time as well. A line before each kernel and one after it, so that whoever reads them
 * knows which one ended the process. Allocations and copies of the kernels go through here: memory
 * begins poisoned, and a kernel is timed by its launches alone, on arrays that stay. */
#ifndef HARNESS_H
#define HARNESS_H

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <vector>

enum Kind { I8, U8, I16, U16, I32, U32, I64, F16, BF16, F32, F64 };
static const size_t kind_bytes[] = {1, 1, 2, 2, 4, 4, 8, 2, 2, 4, 8};

/* `stored` elements from byte `at` of the data on: an input's first ones, which the others repeat;
 * an output's every `step`-th. Of a `bounded` output doubles, and then how far each may be off. */
struct Array {
  const char *name;
  bool output;
  Kind kind;
  size_t count, at, stored, step;
  bool bounded;
};

struct Case {
  void (*call)(void **);
  const Array *arrays;
  int count;
};

/* What kernels do on the host */

static enum { PLAIN, RECORD, REPLAY } host_mode;
static std::vector<void *> host_held;
static size_t host_next;
static bool host_poison;

static cudaError_t host_malloc(void **at, size_t bytes) {
  if (host_mode == REPLAY) {
    *at = host_held[host_next++ % host_held.size()];
    return cudaSuccess;
  }
  cudaError_t status = cudaMalloc(at, bytes);
#ifndef SHIM_CUDA_RUNTIME_H
  if (status == cudaSuccess && host_poison) status = cudaMemset(*at, 0xA5, bytes);
#endif
  if (host_mode == RECORD) host_held.push_back(*at);
  return status;
}

static cudaError_t host_free(void *at) { return host_mode == PLAIN ? cudaFree(at) : cudaSuccess; }

static cudaError_t host_copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  return host_mode == REPLAY ? cudaSuccess : cudaMemcpy(to, from, bytes, kind);
}

static cudaError_t host_wait() {
  return host_mode == REPLAY ? cudaSuccess : cudaDeviceSynchronize();
}

/* Values */

static double value_of(const void *from, Kind kind, size_t n) {
  switch (kind) {
    case I8: return ((const int8_t *)from)[n];
    case U8: return ((const uint8_t *)from)[n];
    case I16: return ((const int16_t *)from)[n];
    case U16: return ((const uint16_t *)from)[n];
    case I32: return ((const int32_t *)from)[n];
    case U32: return ((const uint32_t *)from)[n];
    case I64: return (double)((const int64_t *)from)[n];
    case F32: return ((const float *)from)[n];
    case F64: return ((const double *)from)[n];
    case BF16: {
      uint32_t bits = (uint32_t)((const uint16_t *)from)[n] << 16;
      float value;
      memcpy(&value, &bits, 4);
      return value;
    }
    case F16: break;
  }
  int bits = ((const uint16_t *)from)[n], e = bits >> 10 & 31, m = bits & 1023;
  double value = e == 31 ? (m ? NAN : INFINITY) : ldexp((double)(e ? m + 1024 : m), (e ? e : 1) - 25);
  return bits >> 15 ? -value : value;
}

/* What is wrong with one array; writes it into `text`. */
static bool wrong(const Array &a, const void *found, const unsigned char *data, char *text) {
  size_t bad = 0, width = kind_bytes[a.kind];
  for (size_t n = 0; n < a.stored; ++n) {
    size_t at = n * a.step;
    double x = value_of(found, a.kind, at), v, error = 0;
    bool differs;
    if (a.bounded) {
      v = ((const double *)(data + a.at))[n];
      error = ((const double *)(data + a.at))[a.stored + n];
      bool same = x == v || (x != x && v != v);
      differs = !(fabs(x - v) <= error) && !same && isfinite(error);
    } else {
      v = value_of(data + a.at, a.kind, n);
      differs = memcmp((const char *)found + at * width, data + a.at + n * width, width) != 0;
    }
    if (differs && bad++ == 0)
      snprintf(text, 200, "%s %zu is %.9g, not %.9g +- %.3g", a.name, at, x, v, error);
  }
  if (bad) snprintf(text + strlen(text), 80, ", %zu of %zu differ", bad, a.stored);
  return bad != 0;
}

/* Times */

static double seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

#ifndef SHIM_CUDA_RUNTIME_H
static void need(cudaError_t status) {
  if (status == cudaSuccess) return;
  fprintf(stderr, "harness: %s\n", cudaGetErrorString(status));
  abort();
}

/* Milliseconds of the launches of one call: median of 20 runs, each of several calls in a row. */
static double launch_ms(const Case &c, void **arrays) {
  cudaEvent_t start, stop;
  need(cudaEventCreate(&start));
  need(cudaEventCreate(&stop));
  host_mode = RECORD;
  host_held.clear();
  c.call(arrays);
  host_mode = REPLAY;
  std::vector<float> found;
  int times = 1;
  for (int run = -2; run < 20; ++run) {
    need(cudaEventRecord(start));
    for (int n = 0; n < times; ++n) {
      host_next = 0;
      c.call(arrays);
    }
    need(cudaEventRecord(stop));
    need(cudaEventSynchronize(stop));
    float ms;
    need(cudaEventElapsedTime(&ms, start, stop));
    if (run >= 0) found.push_back(ms / times);
    if (run == -1) times = std::min(100, std::max(1, (int)(5 / std::max(ms, 1e-3f))));
  }
  host_mode = PLAIN;
  for (void *at : host_held) need(cudaFree(at));
  std::sort(found.begin(), found.end());
  return found[found.size() / 2];
}
#endif

/* Of whole calls, with their allocations and copies. */
static double call_ms(const Case &c, void **arrays) {
  std::vector<double> found;
  host_poison = false;
  for (int run = 0; run < 7; ++run) {
    double before = seconds();
    c.call(arrays);
    found.push_back((seconds() - before) * 1e3);
  }
  std::sort(found.begin(), found.end());
  return found[found.size() / 2];
}

/* One case */

static void run(const Case &c, int number, const unsigned char *data, int repeats, bool timed) {
  std::vector<std::vector<unsigned char>> held;
  std::vector<void *> arrays;
  for (int n = 0; n < c.count; ++n) {
    const Array &a = c.arrays[n];
    size_t width = kind_bytes[a.kind];
    held.emplace_back(a.count * width + 64);
    for (size_t e = 0; !a.output && e < a.count; e += a.stored)
      memcpy(held[n].data() + e * width, data + a.at, std::min(a.stored, a.count - e) * width);
    arrays.push_back(held[n].data());
  }
  char text[400] = "";
  for (int again = 0; again < repeats && !text[0]; ++again) {
    for (int n = 0; n < c.count; ++n)
      if (c.arrays[n].output) memset(held[n].data(), 0xA5, held[n].size());
#ifdef SHIM_CUDA_RUNTIME_H
    shim_message[0] = 0;
    shim_seed = again;
#endif
    c.call(arrays.data());
#ifdef SHIM_CUDA_RUNTIME_H
    strcpy(text, shim_message);
#endif
    for (int n = 0; n < c.count && !text[0]; ++n)
      if (c.arrays[n].output) wrong(c.arrays[n], held[n].data(), data, text);
  }
  printf("end %d %s\n", number, text[0] ? text : "ok");
  fflush(stdout);
  if (!timed || text[0]) return;
  double launches = 0;
#ifndef SHIM_CUDA_RUNTIME_H
  launches = launch_ms(c, arrays.data());
#endif
  printf("time %d %.6f %.6f\n", number, launches, call_ms(c, arrays.data()));
  fflush(stdout);
}

static int harness(const Case *cases, int count, int argc, char **argv) {
  if (argc != 5) return 2;
  std::vector<unsigned char> data;
  FILE *file = fopen(argv[1], "rb");
  if (!file) return 2;
  fseek(file, 0, SEEK_END);
  data.resize(ftell(file) + 1);
  rewind(file);
  if (fread(data.data(), 1, data.size() - 1, file) != data.size() - 1) return 2;
  fclose(file);
  for (int n = atoi(argv[2]); n < count; ++n) {
    if (cases[n].call == NULL) continue;
    printf("begin %d\n", n);
    fflush(stdout);
    host_poison = getenv("HARNESS_NO_POISON") == NULL;
    run(cases[n], n, data.data(), atoi(argv[3]), atoi(argv[4]) != 0);
  }
  return 0;
}

#define cudaMalloc host_malloc
#define cudaFree host_free
#define cudaMemcpy host_copy
#define cudaDeviceSynchronize host_wait

#endif
