/* The instructions that hw_specs/apple_amx.yaml uses, executed on any machine: what is described in
 * RegisterFile.md, ldst.md, fma.md, vecfp.md, extr_v.md and setclr.md of github.com/corsix/amx, under
 * the names of its aarch64.h. Whatever the file does not use ends the program. */
#ifndef AMX_AARCH64_H
#define AMX_AARCH64_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EMU_LDX, EMU_LDY, EMU_LDZ, EMU_STY, EMU_STZ, EMU_EXTRY, EMU_FMA32, EMU_VECFP, EMU_KINDS };

static struct {
  int on;
  unsigned char x[512], y[512], z[64][64];
  uint64_t executed[EMU_KINDS];
} emu;

#define EMU static inline __attribute__((unused))

EMU void emu_need(int condition, const char *what)
{
  if (!condition) {
    fprintf(stderr, "not emulated: %s\n", what);
    abort();
  }
}

EMU uint64_t emu_field(uint64_t operand, int from, int width)
{
  return operand >> from & ((1ull << width) - 1);
}

EMU void emu_begin(int kind)
{
  emu_need(emu.on, "an instruction before AMX_SET");
  emu.executed[kind] += 1;
}

EMU void emu_set(void)
{
  emu_need(!emu.on, "AMX_SET twice");
  memset(emu.x, 0, sizeof emu.x);
  memset(emu.y, 0, sizeof emu.y);
  memset(emu.z, 0, sizeof emu.z);
  emu.on = 1;
}

/* Registers are undefined from here on: numbers that show. */
EMU void emu_clear(void)
{
  emu_need(emu.on, "AMX_CLR before AMX_SET");
  memset(emu.x, 0xff, sizeof emu.x);
  memset(emu.y, 0xff, sizeof emu.y);
  memset(emu.z, 0xff, sizeof emu.z);
  emu.on = 0;
}

EMU void *emu_pointer(uint64_t operand)
{
  emu_need(emu_field(operand, 62, 1) == 0, "two registers at once");
  return (void *)(uintptr_t)emu_field(operand, 0, 56);
}

/* Which of 16 lanes take part: two bits of a mode above five of a number. */
EMU int emu_takes_part(uint64_t mode, uint64_t number, int lane)
{
  int n = (int)(number % 16);
  switch (mode) {
  case 0: return number == 0 || (number == 1 && lane % 2 == 1) || (number == 2 && lane % 2 == 0);
  case 1: return lane == n;
  case 2: return n == 0 || lane < n;
  default: return n == 0 || lane >= 16 - n;
  }
}

/* 64 bytes from any place on; behind the last byte comes the first. */
EMU void emu_span(float lanes[16], const unsigned char registers[512], uint64_t from)
{
  unsigned char bytes[64];
  for (int n = 0; n < 64; ++n)
    bytes[n] = registers[(from + (uint64_t)n) % 512];
  memcpy(lanes, bytes, sizeof bytes);
}

EMU void emu_fma32(uint64_t operand)
{
  float x[16], y[16], z[16];
  const uint64_t without = emu_field(operand, 27, 3);
  emu_begin(EMU_FMA32);
  emu_need(emu_field(operand, 63, 1) == 0, "fma32 of single rows");
  emu_need(emu_field(operand, 60, 2) == 0, "fma32 of float16");
  emu_span(x, emu.x, emu_field(operand, 10, 9));
  emu_span(y, emu.y, emu_field(operand, 0, 9));
  for (int j = 0; j < 16; ++j) {
    unsigned char *row = emu.z[4 * j + (int)emu_field(operand, 20, 2)];
    if (!emu_takes_part(emu_field(operand, 37, 2), emu_field(operand, 32, 5), j))
      continue;
    memcpy(z, row, sizeof z);
    for (int i = 0; i < 16; ++i) {
      if (!emu_takes_part(emu_field(operand, 46, 2), emu_field(operand, 41, 5), i))
        continue;
      switch (without) { /* 4: without X; 2: without Y; 1: without Z */
      case 0: z[i] = fmaf(x[i], y[j], z[i]); break;
      case 1: z[i] = x[i] * y[j]; break;
      case 2: z[i] = x[i] + z[i]; break;
      case 3: z[i] = x[i]; break;
      case 4: z[i] = y[j] + z[i]; break;
      case 5: z[i] = y[j]; break;
      case 6: break;
      default: z[i] = 0;
      }
    }
    memcpy(row, z, sizeof z);
  }
}

/* Of single rows, the larger of X and Z, as `fmax` of Arm gives it: NaN where one is, 0 above -0. */
EMU void emu_vecfp(uint64_t operand)
{
  float x[16], z[16];
  unsigned char *row = emu.z[emu_field(operand, 20, 6)];
  const uint64_t number = emu_field(operand, 32, 5);
  emu_begin(EMU_VECFP);
  emu_need(emu_field(operand, 53, 4) == 0, "vecfp with an indexed load");
  emu_need(emu_field(operand, 47, 6) == 7, "vecfp but for the maximum");
  emu_need(emu_field(operand, 42, 4) == 4, "vecfp but for float32");
  emu_need(emu_field(operand, 29, 3) == 0, "vecfp with a shuffle, or of several rows");
  emu_need(emu_field(operand, 38, 3) == 0 && (number == 0 || number == 4), "vecfp of some lanes");
  emu_span(x, emu.x, emu_field(operand, 10, 9));
  memcpy(z, row, sizeof z);
  for (int i = 0; i < 16; ++i) {
    const float other = number == 4 ? 0 : x[i];
    if (isnan(z[i]) || isnan(other))
      z[i] = NAN;
    else if (other > z[i] || (other == z[i] && signbit(z[i])))
      z[i] = other;
  }
  memcpy(row, z, sizeof z);
}

/* A column of every fourth row, to any place of Y. */
EMU void emu_extry(uint64_t operand)
{
  const uint64_t column = emu_field(operand, 20, 6), to = emu_field(operand, 0, 9);
  emu_begin(EMU_EXTRY);
  emu_need(emu_field(operand, 26, 2) == 0, "extry but from Z to Y");
  emu_need(emu_field(operand, 28, 2) == 1, "extry but for 32 bits");
  for (int j = 0; j < 16; ++j)
    if (emu_takes_part(emu_field(operand, 37, 2), emu_field(operand, 32, 5), j))
      for (uint64_t n = 0; n < 4; ++n)
        emu.y[(to + 4 * (uint64_t)j + n) % 512] = emu.z[4 * (uint64_t)j + column % 4][column / 4 * 4 + n];
}

/* One register of 64 bytes, of as many as a field of so many bits numbers. */
EMU void emu_load(int kind, unsigned char *registers, int bits, uint64_t operand)
{
  emu_begin(kind);
  memcpy(registers + 64 * emu_field(operand, 56, bits), emu_pointer(operand), 64);
}

EMU void emu_store(int kind, const unsigned char *registers, int bits, uint64_t operand)
{
  emu_begin(kind);
  memcpy(emu_pointer(operand), registers + 64 * emu_field(operand, 56, bits), 64);
}

#define AMX_SET() emu_set()
#define AMX_CLR() emu_clear()
#define AMX_LDX(operand) emu_load(EMU_LDX, emu.x, 3, operand)
#define AMX_LDY(operand) emu_load(EMU_LDY, emu.y, 3, operand)
#define AMX_LDZ(operand) emu_load(EMU_LDZ, emu.z[0], 6, operand)
#define AMX_STY(operand) emu_store(EMU_STY, emu.y, 3, operand)
#define AMX_STZ(operand) emu_store(EMU_STZ, emu.z[0], 6, operand)
#define AMX_FMA32(operand) emu_fma32(operand)
#define AMX_VECFP(operand) emu_vecfp(operand)
#define AMX_EXTRY(operand) emu_extry(operand)

#endif
