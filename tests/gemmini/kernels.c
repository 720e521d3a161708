/* Hand-written kernels that keep every rule; mutations.py breaks them one rule at a time. */
#include "include/gemmini.h"

#define ACC 0x80000000u
#define ADD 0x40000000u
#define FULL 0x20000000u

/* C = relu(scale(A B + bias)): 32 x 48 x 32 in full tiles; one bias row for all rows. */
void gemm_ws(const int8_t *A, const int8_t *B, const int32_t *bias, int8_t *C)
{
  gemmini_flush(0);
  gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0);
  gemmini_extended3_config_ld(32, MVIN_SCALE_IDENTITY, false, 0);
  gemmini_extended3_config_ld(48, MVIN_SCALE_IDENTITY, false, 1);
  gemmini_extended3_config_ld(0, MVIN_SCALE_IDENTITY, false, 2);
  gemmini_extended_config_st(48, RELU, 0.0078125f);
  for (int i = 0; i < 2; ++i)
    gemmini_extended_mvin(A + i * 16 * 32, 32 * i, 32, 16);
  for (int k = 0; k < 2; ++k)
    gemmini_extended_mvin2(B + k * 16 * 48, 1000 + 48 * k, 48, 16);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j) {
      uint32_t c = ACC + (uint32_t)(3 * i + j) * 16;
      gemmini_extended_mvin3(bias + 16 * j, c, 16, 16);
      for (int k = 0; k < 2; ++k) {
        gemmini_preload(1000 + 48 * k + 16 * j, c | ADD);
        gemmini_compute_preloaded(32 * i + 16 * k, GARBAGE_ADDR);
      }
    }
  for (int i = 0; i < 2; ++i)
    gemmini_extended_mvout(C + i * 16 * 48, ACC + (uint32_t)(48 * i), 48, 16);
  gemmini_fence();
}

/* C = A B in int32, 21 x 37 x 19: tails everywhere; B's tile is kept for all rows of A. */
void gemm_tails(const int8_t *A, const int8_t *B, int32_t *C)
{
  gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0);
  gemmini_extended3_config_ld(19, MVIN_SCALE_IDENTITY, false, 0);
  gemmini_extended3_config_ld(37, MVIN_SCALE_IDENTITY, false, 1);
  gemmini_config_st(37 * 4);
  for (int j = 0; j < 37; j += 16)
    for (int k = 0; k < 19; k += 16) {
      int n = 37 - j < 16 ? 37 - j : 16, d = 19 - k < 16 ? 19 - k : 16;
      gemmini_extended_mvin2(B + k * 37 + j, 16383 - 15, n, d);
      for (int i = 0; i < 21; i += 16) {
        int m = 21 - i < 16 ? 21 - i : 16;
        gemmini_extended_mvin(A + i * 19 + k, 0, d, m);
        uint32_t c = ACC + (uint32_t)i;
        gemmini_extended_preload(i ? GARBAGE_ADDR : 16368u, k ? c | ADD : c, n, d, n, m);
        if (i)
          gemmini_extended_compute_accumulated(0, GARBAGE_ADDR, d, m, 16, 16);
        else
          gemmini_extended_compute_preloaded(0, GARBAGE_ADDR, d, m, 16, 16);
        if (k + 16 >= 19)
          gemmini_extended_mvout(C + i * 37 + j, c | FULL, n, m);
      }
    }
  gemmini_fence();
}

/* C = A B + D in int32, output-stationary, 14 x 11 x 40, D int8 preloaded. */
void gemm_os(const int8_t *A, const int8_t *B, const int8_t *D, int32_t *C)
{
  gemmini_config_ex(OUTPUT_STATIONARY, NO_ACTIVATION, 0);
  gemmini_extended3_config_ld(40, MVIN_SCALE_IDENTITY, false, 0);
  gemmini_extended3_config_ld(11, MVIN_SCALE_IDENTITY, false, 1);
  gemmini_config_st(11 * 4);
  gemmini_extended_mvin(A, 0, 40, 14);
  for (int k = 0; k < 40; k += 16)
    gemmini_extended_mvin2(B + k * 11, 100 + k, 11, 40 - k < 16 ? 40 - k : 16);
  gemmini_extended_mvin2(D, 200, 11, 14);
  gemmini_extended_preload(200, GARBAGE_ADDR, 11, 14, 11, 14);
  gemmini_extended_compute_preloaded(0, 100, 16, 14, 11, 16);
  gemmini_extended_preload(GARBAGE_ADDR, GARBAGE_ADDR, 16, 16, 11, 14);
  gemmini_extended_compute_accumulated(16, 116, 16, 14, 11, 16);
  gemmini_extended_preload(GARBAGE_ADDR, ACC + 1000, 16, 16, 11, 14);
  gemmini_extended_compute_accumulated(32, 132, 8, 14, 11, 8);
  gemmini_extended_mvout(C, ACC + FULL + 1000, 11, 14);
  gemmini_fence();
}

/* C = A^T B, then + A^T again from the kept array, weight-stationary; A is stored 13 x 9. */
void ws_a_transposed(const int8_t *A, const int8_t *B, int32_t *C)
{
  gemmini_extended_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0, 1, 1, 0);
  gemmini_extended3_config_ld(9, MVIN_SCALE_IDENTITY, false, 0);
  gemmini_extended3_config_ld(5, MVIN_SCALE_IDENTITY, false, 1);
  gemmini_config_st(5 * 4);
  gemmini_extended_mvin(A, 16371, 9, 13);
  gemmini_extended_mvin2(B, 0, 5, 13);
  gemmini_extended_preload(0, ACC, 5, 13, 5, 9);
  gemmini_extended_compute_preloaded(16371, GARBAGE_ADDR, 13, 9, 1, 1);
  gemmini_extended_mvout(C, ACC + FULL, 5, 9);
  gemmini_fence();
}

/* C = A B^T + D, weight-stationary with an int8 addend; A's rows lie two rows apart. */
void ws_b_transposed(const int8_t *A, const int8_t *B, const int8_t *D, int32_t *C)
{
  gemmini_extended_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0, 2, 0, 1);
  gemmini_extended3_config_ld(13, MVIN_SCALE_IDENTITY, false, 0);
  gemmini_extended3_config_ld(5, MVIN_SCALE_IDENTITY, false, 1);
  gemmini_config_st(5 * 4);
  for (int i = 0; i < 9; ++i)
    gemmini_extended_mvin(A + 13 * i, 500 + 2 * i, 13, 1);
  gemmini_extended_mvin(B, 0, 13, 5);
  gemmini_extended_mvin2(D, 30, 5, 7);
  gemmini_extended_preload(0, ACC, 5, 13, 5, 9);
  gemmini_extended_compute_preloaded(500, 30, 13, 9, 5, 7);
  gemmini_extended_mvout(C, ACC + FULL, 5, 9);
  gemmini_fence();
}

/* C = A^T B^T, output-stationary; A is stored 13 x 9, B 5 x 13. */
void os_transposed(const int8_t *A, const int8_t *B, int32_t *C)
{
  gemmini_extended_config_ex(OUTPUT_STATIONARY, NO_ACTIVATION, 0, 1, 1, 1);
  gemmini_extended3_config_ld(9, MVIN_SCALE_IDENTITY, false, 0);
  gemmini_extended3_config_ld(13, MVIN_SCALE_IDENTITY, false, 1);
  gemmini_config_st(5 * 4);
  gemmini_extended_mvin(A, 0, 9, 13);
  gemmini_extended_mvin2(B, 20, 13, 5);
  gemmini_extended_preload(GARBAGE_ADDR, ACC, 16, 16, 5, 9);
  gemmini_extended_compute_preloaded(0, 20, 13, 9, 5, 13);
  gemmini_extended_mvout(C, ACC + FULL, 5, 9);
  gemmini_fence();
}

/* A 7 x 57 copy scaled by 1/2 on the way in, through four blocks, and one of 8 x 40 in blocks
 * 8 rows apart. */
void blocks(const int8_t *X, const int8_t *Y, int8_t *U, int8_t *V)
{
  gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0);
  gemmini_extended_config_ld(57, 0.5f);
  gemmini_extended4_config_ld(40, MVIN_SCALE_IDENTITY, false, 8, 1);
  gemmini_extended_config_st(57, RELU, 3.0f);
  gemmini_extended_mvin(X, 16384 - 16 * 3 - 7, 57, 7);
  gemmini_extended_mvout(U, 16384 - 16 * 3 - 7, 57, 7);
  gemmini_extended_mvin2(Y, 0, 40, 8);
  gemmini_config_st(40);
  gemmini_extended_mvout(V, 0, 16, 8);
  gemmini_extended_mvout(V + 16, 8, 16, 8);
  gemmini_extended_mvout(V + 32, 16, 8, 8);
  gemmini_fence();
}

/* Accumulator loads: X + X + 0 wraps; the row beside keeps what it held; Y is widened; the
 * second store repeats what the first one wrote, loaded after a fence. */
void acc_moves(const int32_t *X, const int8_t *Y, int32_t *U, int8_t *V, int32_t *W)
{
  gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0);
  gemmini_extended_config_ld(6 * 4, 0.5f);
  gemmini_extended3_config_ld(40, MVIN_SCALE_IDENTITY, true, 1);
  gemmini_config_st(6 * 4);
  gemmini_extended_mvin(X, ACC + 1021, 6, 3);
  gemmini_extended_mvin(X, ACC + ADD + 1021, 6, 3);
  gemmini_extended_mvin(0, ACC + ADD + 1021, 6, 3);
  gemmini_extended_mvin(0, ACC + 1022, 2, 1);
  gemmini_extended_mvout(U, ACC + ADD + FULL + 1021, 6, 3);
  gemmini_extended_mvin2(Y, ACC, 40, 2);
  gemmini_extended_config_st(40, NO_ACTIVATION, 1.5f);
  gemmini_extended_mvout(V, ACC, 40, 2);
  gemmini_fence();
  gemmini_extended_mvin(U, ACC + 60, 6, 3);
  gemmini_config_st(6 * 4);
  gemmini_extended_mvout(W, ACC + FULL + 60, 6, 3);
  gemmini_fence();
}

/* Only 5 columns of A exist and only 5 rows of B; the array meets the rest with zeros. B's row 4
 * is a load of zeros, against which A's missing column 4 does not matter. */
void masked(const int8_t *A, const int8_t *B, int32_t *C)
{
  gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0);
  gemmini_extended3_config_ld(4, MVIN_SCALE_IDENTITY, false, 0);
  gemmini_extended3_config_ld(16, MVIN_SCALE_IDENTITY, false, 1);
  gemmini_config_st(16 * 4);
  gemmini_extended_mvin(A, 0, 4, 16);
  gemmini_extended_mvin2(B, 16, 16, 4);
  gemmini_extended_mvin2(0, 20, 16, 1);
  gemmini_extended_preload(16, ACC, 16, 5, 16, 16);
  gemmini_extended_compute_preloaded(0, GARBAGE_ADDR, 16, 16, 16, 16);
  gemmini_extended_mvout(C, ACC + FULL, 16, 16);
  gemmini_fence();
}

/* Operands whose memory holds more than their sizes say: the array sees zeros there, and writes
 * them where C is wider. The output-stationary product starts from 4 x 3 elements of B. */
void padded(const int8_t *A, const int8_t *B, int32_t *C, int32_t *E)
{
  gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0);
  gemmini_config_ld(16);
  gemmini_config_st(16 * 4);
  gemmini_mvin(A, 0);
  gemmini_mvin(B, 16);
  gemmini_extended_preload(16, ACC, 9, 16, 16, 16);
  gemmini_extended_compute_preloaded(0, GARBAGE_ADDR, 5, 16, 16, 16);
  gemmini_mvout(C, ACC + FULL);
  gemmini_config_ex(OUTPUT_STATIONARY, NO_ACTIVATION, 0);
  gemmini_extended_preload(16, ACC, 3, 4, 16, 16);
  gemmini_extended_compute_preloaded(0, 16, 16, 16, 9, 7);
  gemmini_mvout(E, ACC + FULL);
  gemmini_fence();
}

/* Switching between the dataflows: each loads the array anew. */
void both(const int8_t *A, const int8_t *B, int32_t *C)
{
  gemmini_config_ex(OUTPUT_STATIONARY, NO_ACTIVATION, 0);
  gemmini_config_ld(16);
  gemmini_config_st(16 * 4);
  gemmini_mvin(A, 0);
  gemmini_mvin(B, 16);
  gemmini_preload_zeros(ACC);
  gemmini_compute_preloaded(0, 16);
  gemmini_config_ex(WEIGHT_STATIONARY, NO_ACTIVATION, 0);
  gemmini_preload(16, ACC + ADD);
  gemmini_compute_preloaded(0, GARBAGE_ADDR);
  gemmini_preload_zeros(ACC + ADD);
  gemmini_compute_accumulated(0, GARBAGE_ADDR);
  gemmini_mvout(C, ACC + FULL);
  gemmini_fence();
}
