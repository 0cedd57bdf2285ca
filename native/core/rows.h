// SPDX-License-Identifier: Apache-2.0
// Sparse rows as all kernels see them: a CSR block, what belongs to its rows, and the order in which to visit
// them. Kernels are compiled once per instruction set, so functions are static and no standard templates are
// used.
#pragma once
#include <stdint.h>

#include "core/compiler.h"

namespace steepest {

// Arrays belong to the caller.
struct Rows {
  const int64_t* indptr;
  const int32_t* indices;
  const float* values;
  const double* y;       // n_targets per row; null: none
  const double* weight;  // null: all ones
  const double* time;    // when each row was, in half-lives; null: unknown
  const int64_t* order;  // the rows to visit; null: 0, 1, ..., n - 1
  int64_t n;             // visits
  int64_t n_features;    // indices must be below it; kernels check them row by row
  int64_t n_targets;     // columns of y
};

// n rows of a block without targets and weights.
static inline Rows plain_rows(const int64_t* indptr, const int32_t* indices, const float* values, int64_t n,
                              int64_t n_features) {
  return {indptr, indices, values, nullptr, nullptr, nullptr, nullptr, n, n_features, 0};
}

// One row of the block.
struct Row {
  const int32_t* index;
  const float* value;
  int64_t n;
};

enum Status { kFine = 0, kBadIndex = 1, kNotFinite = 2 };  // not finite: a score or a loss

struct Outcome {
  int64_t rows_done;  // rows learned, or where the row in trouble is: its batch taught nothing
  int32_t status;
  double loss_sum;  // weighted sum of the losses before learning
  double weight_sum;
};

static inline void add_sums(const Outcome& part, Outcome& total) {
  total.loss_sum += part.loss_sum;
  total.weight_sum += part.weight_sum;
}

// One of `n` that share the work on some rows.
struct Share {
  int64_t part, n;
};

constexpr int64_t kFloatsPerLine = 16;  // of a cache line

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// The row of visit q.
static inline int64_t row_at(const Rows& rows, int64_t q) { return rows.order ? rows.order[q] : q; }
static inline double weight_at(const Rows& rows, int64_t row) { return rows.weight ? rows.weight[row] : 1.0; }
// What output k should be: a number of its own, or whether it is the class that the row names.
static inline double target_at(const Rows& rows, bool codes, int64_t row, int64_t k) {
  if (!codes) return rows.y[row * rows.n_targets + k];
  return rows.y[row] == static_cast<double>(k) ? 1.0 : -1.0;
}

static inline Row get_row(const Rows& rows, int64_t row) {
  const int64_t start = rows.indptr[row];
  return {rows.indices + start, rows.values + start, rows.indptr[row + 1] - start};
}
static inline Row row_in_turn(const Rows& rows, int64_t q) { return get_row(rows, row_at(rows, q)); }

// Visits first .. last as rows of their own.
static inline Rows slice(Rows rows, int64_t first, int64_t last) {
  rows.n = last - first;
  if (rows.order) {
    rows.order += first;
    return rows;
  }
  rows.indptr += first;
  if (rows.y) rows.y += first * rows.n_targets;
  if (rows.weight) rows.weight += first;
  if (rows.time) rows.time += first;
  return rows;
}

// Entries of the visited rows.
static inline int64_t entries_in(const Rows& rows) {
  if (!rows.order) return rows.n > 0 ? rows.indptr[rows.n] - rows.indptr[0] : 0;
  int64_t n = 0;
  for (int64_t q = 0; q < rows.n; ++q) n += rows.indptr[rows.order[q] + 1] - rows.indptr[rows.order[q]];
  return n;
}

// Four sums, since one would wait for each addition.
static inline double squared_length(const float* x, int64_t n) {
  double sum[4] = {};
  int64_t k = 0;
  for (; k + 4 <= n; k += 4)
    for (int lane = 0; lane < 4; ++lane) sum[lane] += static_cast<double>(x[k + lane]) * x[k + lane];
  for (; k < n; ++k) sum[0] += static_cast<double>(x[k]) * x[k];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Inlined by force: to gcc a function that only prefetches has no effect, and it drops the call.
static ALWAYS_INLINE void fetch_entries(const Row& row) {
  for (int64_t k = 0; k < row.n; k += kFloatsPerLine) {
    PREFETCH(row.index + k);
    PREFETCH(row.value + k);
  }
}

// Asks for rows to come in a list of n: the third next with its entries, three further on with its place.
static ALWAYS_INLINE void fetch_ahead(const Rows& rows, const int64_t* list, int64_t q, int64_t n) {
  if (q + 6 < n) PREFETCH(rows.indptr + list[q + 6]);
  if (q + 3 < n) fetch_entries(get_row(rows, list[q + 3]));
}

// Whether every index is below n_features; a negative one is a huge unsigned one.
static inline bool indices_fit(const Row& row, int64_t n_features) {
#if defined(__AVX2__)
  if (row.n >= 8 && n_features > 0) {
    const __m256i limit = _mm256_set1_epi32(static_cast<int32_t>(n_features - 1));
    __m256i largest = limit;
    for (int64_t k = 0; k < row.n - 8; k += 8)
      largest =
          _mm256_max_epu32(largest, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.index + k)));
    const int32_t* last = row.index + row.n - 8;  // overlaps what was seen before, so that no tail is left
    largest = _mm256_max_epu32(largest, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(last)));
    return _mm256_movemask_epi8(_mm256_cmpeq_epi32(largest, limit)) == -1;
  }
#endif
  uint32_t largest = 0;
  for (int64_t k = 0; k < row.n; ++k) {
    const uint32_t j = static_cast<uint32_t>(row.index[k]);
    largest = j > largest ? j : largest;
  }
  return row.n == 0 || static_cast<int64_t>(largest) < n_features;
}

}  // namespace steepest
