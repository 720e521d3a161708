/* What emitted host code gets in place of malloc, free and memcpy: memory that moves can reach.
 *
 * Heap memory can be loaded where the host has copied something to it or a store and a fence have
 * written it. The host itself may copy from and to memory that was stored to only after a fence.
 */
#ifndef SHIM_HOST_H
#define SHIM_HOST_H

#include "machine.h"

static inline void *shim_allocate(size_t bytes)
{
  static char names[SHIM_BUFFERS][16];
  int number = shim.buffer_count;
  void *data = malloc(bytes ? bytes : 1);
  shim_check(data != NULL, "HARNESS", "out of memory");
  memset(data, 0xA5, bytes ? bytes : 1);
  shim_register("", data, bytes, 0, 1);
  snprintf(names[number], sizeof names[number], "heap%d", number);
  shim.buffers[number].name = names[number];
  return data;
}

/* The registered range that holds an address, or NULL. */
static inline shim_buffer *shim_range_of(const void *data)
{
  for (int i = 0; i < shim.buffer_count; ++i) {
    shim_buffer *b = &shim.buffers[i];
    uintptr_t base = (uintptr_t)b->base, address = (uintptr_t)data;
    if (address >= base && address - base < b->bytes)
      return b;
  }
  return NULL;
}

static inline void shim_release(void *data)
{
  shim_buffer *b = data ? shim_range_of(data) : NULL;
  if (b) {
    shim_check(!b->dirty, "FENCE_MISSING", "%s is freed, stored to without a fence", b->name);
    b->bytes = 0; /* Its counts stay. */
  }
  free(data);
}

static inline void shim_host_access(const void *data, size_t bytes, int write)
{
  shim_buffer *b = shim_range_of(data);
  if (!b)
    return;
  size_t offset = (size_t)((const unsigned char *)data - b->base);
  shim_check(bytes <= b->bytes - offset, "DRAM_RANGE", "the host copies %lu bytes at byte %lu of %s",
             (unsigned long)bytes, (unsigned long)offset, b->name);
  for (size_t i = offset; i < offset + bytes; ++i) {
    shim_check(b->stored[i] != 1, "DRAM_FENCE",
               "byte %lu of %s is copied by the host, stored without a fence", (unsigned long)i,
               b->name);
    if (write)
      b->stored[i] = 2;
  }
}

static inline void *shim_copy(void *to, const void *from, size_t bytes)
{
  shim_host_access(from, bytes, 0);
  shim_host_access(to, bytes, 1);
  return memcpy(to, from, bytes);
}

/* What the host's own loops do to a heap buffer, as a whole: they write it, or read it. */
static inline void shim_host_loops(const void *data, int write)
{
  shim_buffer *b = shim_range_of(data);
  if (b)
    shim_host_access(data, b->bytes - (size_t)((const unsigned char *)data - b->base), write);
}

static inline void *shim_set(void *to, int value, size_t bytes)
{
  shim_host_access(to, bytes, 1);
  return memset(to, value, bytes);
}

#define memset(to, value, bytes) shim_set(to, value, bytes)
#define malloc(bytes) shim_allocate(bytes)
#define free(data) shim_release(data)
#define memcpy(to, from, bytes) shim_copy(to, from, bytes)

#endif
