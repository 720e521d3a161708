/* The clock of a program that times a kernel. */
#include <stdint.h>
#include <time.h>
static double timed_seconds(void)
{
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
/* Seconds of a cycle: each addition waits for the one before it. */
#define timed_ADD sum += step; __asm__ volatile("" : "+r"(sum), "+r"(step));
static double timed_cycle(void)
{
  double best = 1;
  uint64_t sum = 1, step = 3;
  for (int n = 0; n < 20; ++n) {
    double start = timed_seconds();
    for (int i = 0; i < 40000; ++i) {
      timed_ADD timed_ADD timed_ADD timed_ADD timed_ADD timed_ADD timed_ADD timed_ADD
    }
    double each = (timed_seconds() - start) / 320000;
    best = each < best ? each : best;
  }
  return best;
}
