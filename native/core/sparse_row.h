// SPDX-License-Identifier: Apache-2.0
// What the loops of linear models over the non-zeros of sparse rows are made of: a row's product with a table
// of weights, and its addition to one. Compiled once per instruction set, so no standard templates here.
#pragma once
#include <math.h>

#include "core/rows.h"
#include "core/simd.h"

namespace steepest {
namespace STEEPEST_ISA {

// Towards zero by `amount`, and no further; without a branch, since signs and sizes are hard to predict.
template <typename W>
static inline W soft_threshold(W value, W amount) {
  const W left = static_cast<W>(fabs(value)) - amount;
  return static_cast<W>(copysign(left > 0 ? left : 0, value));
}

// Sum of v[j] x_j, where the weights are kStride entries apart.
template <int kStride = 1, typename W>
static inline double dot(const W* v, const Row& row) {
  double a = 0, b = 0;
  int64_t k = 0;
  for (; k + 2 <= row.n; k += 2) {
    a += static_cast<double>(v[kStride * static_cast<int64_t>(row.index[k])]) * row.value[k];
    b += static_cast<double>(v[kStride * static_cast<int64_t>(row.index[k + 1])]) * row.value[k + 1];
  }
  if (k < row.n) a += static_cast<double>(v[kStride * static_cast<int64_t>(row.index[k])]) * row.value[k];
  return a + b;
}

// Whether all indices are below n_features; if so, the sum as `dot` finds it.
template <int kStride = 1, typename W>
static inline bool dot_if_fits(const W* v, const Row& row, int64_t n_features, double& sum) {
  if (!indices_fit(row, n_features)) return false;
  sum = dot<kStride>(v, row);
  return true;
}

#if defined(__AVX2__)
// The check is made on the way, which costs next to nothing: an index beyond the last is taken for it, so
// that nothing outside is read, and the sum is of no use.
template <int kStride, bool kCheck>
static inline bool gather_dot(const float* v, const Row& row, int64_t n_features, double& total) {
  total = 0;
  if (kCheck && n_features <= 0) return row.n == 0;
  const __m256i limit = _mm256_set1_epi32(static_cast<int32_t>(n_features - 1));
  __m256i largest = limit;
  const auto gather = [&](__m256i index) {
    if (kCheck) {
      largest = _mm256_max_epu32(largest, index);
      index = _mm256_min_epu32(index, limit);
    }
    return _mm256_i32gather_ps(v, index, kStride * sizeof(float));
  };
  const auto indices = [&](int64_t k) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.index + k));
  };
  Float8 a = all(0.0f), b = all(0.0f);
  int64_t k = 0;
  for (; k + 16 <= row.n; k += 16) {
    a = fma(gather(indices(k)), load(row.value + k), a);
    b = fma(gather(indices(k + 8)), load(row.value + k + 8), b);
  }
  if (k + 8 <= row.n) {
    a = fma(gather(indices(k)), load(row.value + k), a);
    k += 8;
  }
  if (k < row.n) {  // the last entries under a mask: index 0 with value 0 stands for those that are not there
    const __m256i mask = lanes_on(row.n - k);
    const Float8 value = _mm256_maskload_ps(row.value + k, mask);
    b = fma(gather(_mm256_maskload_epi32(row.index + k, mask)), value, b);
  }
  total = sum(add(a, b));
  return !kCheck || _mm256_movemask_epi8(_mm256_cmpeq_epi32(largest, limit)) == -1;
}

template <int kStride = 1>
static inline double dot(const float* v, const Row& row) {
  double total;
  gather_dot<kStride, false>(v, row, 0, total);
  return total;
}

template <int kStride = 1>
static inline bool dot_if_fits(const float* v, const Row& row, int64_t n_features, double& sum) {
  return gather_dot<kStride, true>(v, row, n_features, sum);
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
