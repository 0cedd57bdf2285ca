// SPDX-License-Identifier: Apache-2.0
// Sparse rows as all kernels see them. Compiled once per instruction set, so no standard templates here.
#pragma once
#include "compiler.h"
#include "kernel_table.h"

namespace steepest {
namespace STEEPEST_ISA {

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t row_at(const Rows& rows, int64_t q) { return rows.order ? rows.order[q] : q; }
static inline double weight_at(const Rows& rows, int64_t row) { return rows.weight ? rows.weight[row] : 1.0; }

// One row of the block.
struct Row {
  const int32_t* index;
  const float* value;
  int64_t n;
};

static inline Row get_row(const Rows& rows, int64_t row) {
  const int64_t start = rows.indptr[row];
  return {rows.indices + start, rows.values + start, rows.indptr[row + 1] - start};
}

// The q-th row to be visited.
static inline Row row_in_turn(const Rows& rows, int64_t q) { return get_row(rows, row_at(rows, q)); }

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

}  // namespace STEEPEST_ISA
}  // namespace steepest
