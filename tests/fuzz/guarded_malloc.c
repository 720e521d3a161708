/* What compiled kernels allocate, next to a page that may be neither read nor written. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CANARY = 0xA5, MALLOC_ALIGNS = 16, MOST = 4096 };

/* Where the page directly next to an allocation is: after its end, or before its start. */
int guarded_before = 0;

static struct { char *base, *start; size_t bytes, size; } rooms[MOST];

/* Kernels allocate on all their threads. */
static volatile char taken;

static void lock(void)
{
  while (__atomic_test_and_set(&taken, __ATOMIC_ACQUIRE))
    ;
}

static void unlock(void)
{
  __atomic_clear(&taken, __ATOMIC_RELEASE);
}

static void stop(const char *why)
{
  fprintf(stderr, "%s\n", why);
  exit(1);
}

void *guarded_aligned_alloc(size_t align, size_t bytes)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (bytes + page - 1) / page * page;
  int n = 0;
  lock();
  while (n < MOST && rooms[n].start)
    ++n;
  if (n == MOST)
    stop("too many allocations");
  char *base = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED || (size && mprotect(base + page, size, PROT_READ | PROT_WRITE)))
    stop("no pages");
  memset(base + page, CANARY, size);
  rooms[n].base = base;
  rooms[n].size = size;
  rooms[n].bytes = bytes;
  rooms[n].start = base + page + (guarded_before ? 0 : (size - bytes) / align * align);
  void *start = rooms[n].start;
  unlock();
  return start;
}

void *guarded_malloc(size_t bytes)
{
  return guarded_aligned_alloc(MALLOC_ALIGNS, bytes);
}

void guarded_free(void *start)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  int n = 0;
  if (!start)
    return;
  lock();
  while (n < MOST && rooms[n].start != (char *)start)
    ++n;
  if (n == MOST)
    stop("what was never allocated is freed");
  const char *from = rooms[n].base + page, *end = from + rooms[n].size;
  for (const char *c = from; c < end; ++c)
    if ((c < rooms[n].start || c >= rooms[n].start + rooms[n].bytes) && (unsigned char)*c != CANARY)
      stop("bytes next to an allocation are written");
  munmap(rooms[n].base, rooms[n].size + 2 * page);
  rooms[n].start = NULL;
  unlock();
}

/* How many allocations are left. */
int guarded_left(void)
{
  int left = 0;
  for (int n = 0; n < MOST; ++n)
    left += rooms[n].start != NULL;
  return left;
}
