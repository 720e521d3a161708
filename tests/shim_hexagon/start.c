/* What a kernel's program needs of a C library, on system calls of Linux: there is no such library here. */
#include <stddef.h>
#include <stdint.h>

enum { READ = 63, WRITE = 64, EXIT = 94, BREAK = 214 };

static long ask(long number, long a, long b, long c)
{
  register long r0 __asm__("r0") = a, r1 __asm__("r1") = b, r2 __asm__("r2") = c, r6 __asm__("r6") = number;
  __asm__ volatile("trap0(#1)" : "+r"(r0) : "r"(r1), "r"(r2), "r"(r6) : "memory");
  return r0;
}

static void transfer(long number, long file, char *at, size_t bytes)
{
  while (bytes > 0) {
    long done = ask(number, file, (long)at, (long)bytes);
    if (done <= 0)
      ask(EXIT, 3, 0, 0);
    at += done;
    bytes -= (size_t)done;
  }
}

void take(void *to, size_t bytes);
void give(void *from, size_t bytes);
int main(void);

void take(void *to, size_t bytes) { transfer(READ, 0, to, bytes); }
void give(void *from, size_t bytes) { transfer(WRITE, 1, from, bytes); }

__attribute__((noreturn)) void abort(void)
{
  for (;;)
    ask(EXIT, 4, 0, 0);
}

/* Nothing is given back: a program calls its kernel once or twice. */
void *aligned_alloc(size_t align, size_t bytes)
{
  uintptr_t at = (uintptr_t)ask(BREAK, 0, 0, 0);
  at = (at + align - 1) & ~(uintptr_t)(align - 1);
  return (uintptr_t)ask(BREAK, (long)(at + bytes), 0, 0) < at + bytes ? NULL : (void *)at;
}

void *malloc(size_t bytes) { return aligned_alloc(16, bytes); }
void free(void *at) { (void)at; }

void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
  for (size_t i = 0; i < bytes; ++i)
    ((volatile char *)to)[i] = ((const char *)from)[i];
  return to;
}

void *memset(void *to, int value, size_t bytes)
{
  for (size_t i = 0; i < bytes; ++i)
    ((volatile char *)to)[i] = (char)value;
  return to;
}

void _start(void) { ask(EXIT, main(), 0, 0); }
