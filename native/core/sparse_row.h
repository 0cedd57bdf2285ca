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

#if defined(__AVX2__)
static const int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};  // eight lanes on, then eight off

template <int kStride = 1>
static inline double dot(const float* v, const Row& row) {
  const auto gather = [&](__m256i index) { return _mm256_i32gather_ps(v, index, kStride * sizeof(float)); };
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
    const __m256i mask = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - (row.n - k)));
    const Float8 value = _mm256_maskload_ps(row.value + k, mask);
    b = fma(gather(_mm256_maskload_epi32(row.index + k, mask)), value, b);
  }
  return sum(add(a, b));
}
#endif

static inline double squared_length(const Row& row) {
  double sum[4] = {};
  int64_t k = 0;
  for (; k + 4 <= row.n; k += 4)
    for (int lane = 0; lane < 4; ++lane)
      sum[lane] += static_cast<double>(row.value[k + lane]) * row.value[k + lane];
  for (; k < row.n; ++k) sum[0] += static_cast<double>(row.value[k]) * row.value[k];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

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
