// SPDX-License-Identifier: Apache-2.0
// What every loop over the non-zeros of sparse rows is made of: a row, its product with a table of weights,
// and its addition to one. Compiled once per instruction set, so no standard templates here.
#pragma once
#include <math.h>

#include "compiler.h"
#include "kernel_table.h"

namespace steepest {
namespace STEEPEST_ISA {

constexpr int64_t kFloatsPerLine = 16;

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t row_at(const Rows& rows, int64_t q) { return rows.order ? rows.order[q] : q; }
static inline double weight_at(const Rows& rows, int64_t row) { return rows.weight ? rows.weight[row] : 1.0; }

// Towards zero by `amount`, and no further; without a branch, since signs and sizes are hard to predict.
template <typename W>
static inline W soft_threshold(W value, W amount) {
  const W left = static_cast<W>(fabs(value)) - amount;
  return static_cast<W>(copysign(left > 0 ? left : 0, value));
}

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

// Sum of v[j] x_j.
template <typename W>
static inline double dot(const W* v, const Row& row) {
  double a = 0, b = 0;
  int64_t k = 0;
  for (; k + 2 <= row.n; k += 2) {
    a += static_cast<double>(v[row.index[k]]) * row.value[k];
    b += static_cast<double>(v[row.index[k + 1]]) * row.value[k + 1];
  }
  if (k < row.n) a += static_cast<double>(v[row.index[k]]) * row.value[k];
  return a + b;
}

#if defined(__AVX2__)
static inline float sum_lanes(__m256 a) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 quarter = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}

static const int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};  // eight lanes on, then eight off

template <>
inline double dot<float>(const float* v, const Row& row) {
  __m256 a = _mm256_setzero_ps(), b = _mm256_setzero_ps();
  int64_t k = 0;
  for (; k + 16 <= row.n; k += 16) {
    const __m256i i = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.index + k));
    const __m256i j = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.index + k + 8));
    a = _mm256_fmadd_ps(_mm256_i32gather_ps(v, i, 4), _mm256_loadu_ps(row.value + k), a);
    b = _mm256_fmadd_ps(_mm256_i32gather_ps(v, j, 4), _mm256_loadu_ps(row.value + k + 8), b);
  }
  if (k + 8 <= row.n) {
    const __m256i i = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.index + k));
    a = _mm256_fmadd_ps(_mm256_i32gather_ps(v, i, 4), _mm256_loadu_ps(row.value + k), a);
    k += 8;
  }
  if (k < row.n) {  // the last entries under a mask: index 0 with value 0 stands for those that are not there
    const __m256i mask = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - (row.n - k)));
    const __m256i i = _mm256_maskload_epi32(row.index + k, mask);
    b = _mm256_fmadd_ps(_mm256_i32gather_ps(v, i, 4), _mm256_maskload_ps(row.value + k, mask), b);
  }
  return sum_lanes(_mm256_add_ps(a, b));
}
#endif

// v[j] += step x_j; AVX2 has no scatter, so this stays scalar.
template <typename W>
static inline void add_row(W* v, const Row& row, double step) {
  const W s = static_cast<W>(step);
  for (int64_t k = 0; k < row.n; ++k) v[row.index[k]] += s * static_cast<W>(row.value[k]);
}

#if defined(__AVX2__)
// The products four at a time, the additions one by one: the same bits as above.
template <>
inline void add_row<float>(float* v, const Row& row, double step) {
  const float s = static_cast<float>(step);
  int64_t k = 0;
  for (; k + 4 <= row.n; k += 4) {
    float change[4];
    _mm_storeu_ps(change, _mm_mul_ps(_mm_set1_ps(s), _mm_loadu_ps(row.value + k)));
    for (int lane = 0; lane < 4; ++lane) v[row.index[k + lane]] += change[lane];
  }
  for (; k < row.n; ++k) v[row.index[k]] += s * row.value[k];
}
#endif

}  // namespace STEEPEST_ISA
}  // namespace steepest
