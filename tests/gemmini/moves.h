/* The second half of machine.h: data movement, matrix products, synchronisation, reports. */
#ifndef SHIM_MOVES_H
#define SHIM_MOVES_H

static inline void shim_mvin(int id, uintptr_t dram, uint64_t address, uint64_t cols,
                             uint64_t rows)
{
  shim_issue(SHIM_MVIN + id);
  shim_check(shim.ld[id].set, "CONFIG", "%s before a config_ld of id %d",
             shim_kind_name(SHIM_MVIN + id), id);
  shim_place to = shim_decode("a load's target", address, SHIM_ACCUMULATOR | SHIM_ACCUMULATE);
  int wide = to.accumulator && !shim.ld[id].shrunk;
  uint64_t block_stride = shim.ld[id].block_stride;
  shim_size("a load's rows", "ROWS", rows, SHIM_N);
  shim_size("a load's cols", "COLS", cols, wide ? SHIM_N : SHIM_MAX_COLS);
  shim_check(!to.accumulator || wide || shim.ld[id].scale == 1.0f, "CONFIG_VALUE",
             "a shrunk accumulator load with a scale other than 1");
  uint64_t blocks = (cols + SHIM_N - 1) / SHIM_N;
  shim_check(blocks == 1 || block_stride >= rows, "BLOCK_STRIDE",
             "blocks %lu rows apart, for a load of %lu rows", (unsigned long)block_stride,
             (unsigned long)rows);
  shim_range("a load", to, (blocks - 1) * block_stride + rows);
  shim_place held = shim.preload.bd;
  for (uint64_t b = 0; shim.preload.set && !held.garbage && !to.accumulator && b < blocks; ++b) {
    uint64_t row = to.row + b * block_stride;
    shim_check(row + rows <= held.row || held.row + shim.preload.bd_stored_rows <= row,
               "PRELOAD_OVERWRITTEN", "a load to rows %lu to %lu, preloaded and not yet used",
               (unsigned long)row, (unsigned long)(row + rows - 1));
  }
  size_t size = wide ? 4 : 1, offset = 0;
  shim_buffer *from = NULL;
  if (dram)
    from = shim_dram("a load", dram, shim.ld[id].stride, rows, cols * size, &offset);
  for (uint64_t r = 0; r < rows; ++r) {
    const unsigned char *data = NULL;
    if (from)
      data = shim_dram_read(from, offset + (size_t)(r * shim.ld[id].stride), (size_t)cols * size);
    for (uint64_t c = 0; c < cols; ++c) {
      shim_cell *cell = &shim_row(to, c / SHIM_N * block_stride + r)[c % SHIM_N];
      shim_cell found = {0, SHIM_ZERO};
      if (data && wide)
        memcpy(&found.value, data + 4 * c, 4);
      else if (data)
        found.value = shim_scaled(data[c] < 128 ? data[c] : data[c] - 256, shim.ld[id].scale);
      if (data)
        found.state = SHIM_DATA;
      *cell = to.accumulate ? shim_add(*cell, found) : found;
    }
  }
}

static inline void shim_mvout(uintptr_t dram, uint64_t address, uint64_t cols, uint64_t rows)
{
  shim_issue(SHIM_MVOUT);
  shim_place from = shim_decode("a store's source", address,
                                SHIM_ACCUMULATOR | SHIM_ACCUMULATE | SHIM_FULL);
  shim_size("a store's rows", "ROWS", rows, SHIM_N);
  shim_size("a store's cols", "COLS", cols, from.full ? SHIM_N : SHIM_MAX_COLS);
  shim_range("a store", from, (cols - 1) / SHIM_N * SHIM_N + rows);
  size_t size = from.full ? 4 : 1, offset = 0;
  shim_check(rows == 1 || shim.st.stride >= cols * size, "STRIDE",
             "rows of %lu bytes stored %lu bytes apart", (unsigned long)(cols * size),
             (unsigned long)shim.st.stride);
  shim_buffer *to = shim_dram("a store", dram, shim.st.stride, rows, cols * size, &offset);
  for (uint64_t r = 0; r < rows; ++r) {
    unsigned char *data =
      shim_dram_write(to, offset + (size_t)(r * shim.st.stride), (size_t)cols * size);
    for (uint64_t c = 0; c < cols; ++c) {
      uint64_t row = c / SHIM_N * SHIM_N + r;
      shim_cell cell = shim_row(from, row)[c % SHIM_N];
      shim_check(cell.state != SHIM_POISON, "POISON",
                 "%s row %lu column %lu is stored and depends on data that was never written",
                 from.accumulator ? "accumulator" : "scratchpad", (unsigned long)(from.row + row),
                 (unsigned long)(c % SHIM_N));
      if (from.full) {
        memcpy(data + 4 * c, &cell.value, 4);
        continue;
      }
      int32_t value = from.accumulator ? shim_scaled(cell.value, shim.st.scale) : cell.value;
      if (from.accumulator && shim.st.relu && value < 0)
        value = 0;
      data[c] = (unsigned char)value;
    }
  }
}

/* ---- Matrix products ------------------------------------------------------------------------- */

/* An operand as the array sees it: zeros beyond rows x cols, which count after transposition. */
static inline void shim_operand(shim_cell out[SHIM_N][SHIM_N], shim_place p, uint64_t rows,
                                uint64_t cols, uint64_t stride, int transposed)
{
  for (uint64_t i = 0; i < SHIM_N; ++i)
    for (uint64_t j = 0; j < SHIM_N; ++j) {
      shim_cell zero = {0, SHIM_ZERO};
      if (p.garbage || i >= rows || j >= cols)
        out[i][j] = zero;
      else
        out[i][j] = transposed ? shim_row(p, j)[i] : shim_row(p, i * stride)[j];
    }
}

/* Checks and decodes an operand in the scratchpad; `optional` ones may be GARBAGE_ADDR. */
static inline shim_place shim_source(const char *what, uint64_t address, int optional,
                                     uint64_t stored_rows)
{
  shim_place p = {1, 0, 0, 0, 0};
  if (address == SHIM_GARBAGE) {
    shim_check(optional, "OPERAND", "%s is GARBAGE_ADDR", what);
    return p;
  }
  shim_check(address >> 31 != 1, "OPERAND", "%s is in the accumulator", what);
  p = shim_decode(what, address, 0);
  shim_range(what, p, stored_rows);
  return p;
}

static inline void shim_preload(uint64_t bd, uint64_t c, uint64_t bd_cols, uint64_t bd_rows,
                                uint64_t c_cols, uint64_t c_rows)
{
  shim_issue(SHIM_PRELOAD);
  shim_check(!shim.preload.set, "PRELOAD_TWICE", "two preloads without a compute between them");
  shim_size("the preloaded operand's rows", "ROWS", bd_rows, SHIM_N);
  shim_size("the preloaded operand's cols", "COLS", bd_cols, SHIM_N);
  shim_size("C's rows", "ROWS", c_rows, SHIM_N);
  shim_size("C's cols", "COLS", c_cols, SHIM_N);
  uint64_t stored = shim.ex.weights && shim.ex.b_transpose ? bd_cols : bd_rows;
  shim.preload.bd = shim_source("the preloaded operand", bd, 1, stored);
  shim_place place = {1, 0, 0, 0, 0};
  if (c != SHIM_GARBAGE) {
    place = shim_decode("C", c, SHIM_ACCUMULATOR | SHIM_ACCUMULATE | SHIM_FULL);
    shim_check(place.accumulator, "OPERAND", "C is in the scratchpad, which is not modelled");
    shim_range("C", place, c_rows);
  }
  shim.preload.c = place;
  shim.preload.bd_cols = bd_cols;
  shim.preload.bd_rows = bd_rows;
  shim.preload.bd_stored_rows = stored;
  shim.preload.c_cols = c_cols;
  shim.preload.c_rows = c_rows;
  shim.preload.set = 1;
}

static inline void shim_compute(int load_array, uint64_t a, uint64_t bd, uint64_t a_cols,
                                uint64_t a_rows, uint64_t bd_cols, uint64_t bd_rows)
{
  static shim_cell left[SHIM_N][SHIM_N], right[SHIM_N][SHIM_N], result[SHIM_N][SHIM_N];
  int weights = shim.ex.weights, b_transpose = shim.ex.b_transpose;
  shim_issue(load_array ? SHIM_COMPUTE_PRELOADED : SHIM_COMPUTE_ACCUMULATED);
  shim_check(shim.preload.set, "PRELOAD_MISSING", "a compute without a preload before it");
  shim_size("A's rows", "ROWS", a_rows, SHIM_N);
  shim_size("A's cols", "COLS", a_cols, SHIM_N);
  shim_size(weights ? "D's rows" : "B's rows", "ROWS", bd_rows, SHIM_N);
  shim_size(weights ? "D's cols" : "B's cols", "COLS", bd_cols, SHIM_N);
  shim_place c = shim.preload.c;
  shim_check(c.garbage || shim.preload.c_rows == a_rows, "C_ROWS",
             "C has %lu rows and A has %lu", (unsigned long)shim.preload.c_rows,
             (unsigned long)a_rows);
  shim_place first = shim_source(
    "A", a, 0, shim.ex.a_transpose ? a_cols : (a_rows - 1) * shim.ex.a_stride + 1);
  shim_place second = shim_source(weights ? "D" : "B", bd, weights,
                                  !weights && b_transpose ? bd_cols : bd_rows);
  if (load_array)
    shim_operand(shim.array, shim.preload.bd, shim.preload.bd_rows, shim.preload.bd_cols, 1,
                 weights && b_transpose);
  shim_operand(left, first, a_rows, a_cols, shim.ex.a_stride, shim.ex.a_transpose);
  shim_operand(right, second, bd_rows, bd_cols, 1, !weights && b_transpose);
  for (int i = 0; i < SHIM_N; ++i)
    for (int j = 0; j < SHIM_N; ++j) {
      shim_cell sum = weights ? right[i][j] : shim.array[i][j];
      for (int k = 0; k < SHIM_N; ++k)
        sum = shim_add(sum, shim_multiply(left[i][k], weights ? shim.array[k][j] : right[k][j]));
      result[i][j] = sum;
    }
  if (!weights)
    memcpy(shim.array, result, sizeof result);
  for (uint64_t i = 0; !c.garbage && i < shim.preload.c_rows; ++i)
    for (uint64_t j = 0; j < shim.preload.c_cols; ++j) {
      shim_cell *cell = &shim_row(c, i)[j];
      *cell = c.accumulate ? shim_add(*cell, result[i][j]) : result[i][j];
    }
  shim.preload.set = 0;
}

/* ---- Synchronisation and reports ------------------------------------------------------------- */

static inline void shim_fence(void)
{
  shim_issue(SHIM_FENCE);
  for (int i = 0; i < shim.buffer_count; ++i) {
    shim_buffer *b = &shim.buffers[i];
    for (size_t k = 0; b->dirty && k < b->bytes; ++k)
      if (b->stored[k])
        b->stored[k] = 2;
    b->dirty = 0;
  }
}

static inline void shim_flush(void)
{
  shim_issue(SHIM_FLUSH);
}

/* What must hold when a kernel has returned and its caller reads the outputs. */
static inline void shim_finish(void)
{
  shim_check(!shim.preload.set, "PRELOAD_LEFT", "the last preload has no compute");
  for (int i = 0; i < shim.buffer_count; ++i)
    shim_check(!shim.buffers[i].dirty, "FENCE_MISSING", "no fence after the last store to %s",
               shim.buffers[i].name);
}

/* One JSON object: instructions by kind, bytes read and written per buffer, in fixed order. */
static inline void shim_report(FILE *file)
{
  fprintf(file, "{\"instructions\": {");
  for (int i = 0; i < SHIM_KINDS; ++i)
    fprintf(file, "%s\"%s\": %lu", i ? ", " : "", shim_kind_name(i),
            (unsigned long)shim.counts[i]);
  fprintf(file, "}, \"traffic\": {");
  for (int i = 0; i < shim.buffer_count; ++i)
    fprintf(file, "%s\"%s\": [%lu, %lu]", i ? ", " : "", shim.buffers[i].name,
            (unsigned long)shim.buffers[i].bytes_read,
            (unsigned long)shim.buffers[i].bytes_written);
  fprintf(file, "}}\n");
}

#endif
