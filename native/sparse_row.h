// SPDX-License-Identifier: Apache-2.0
// What the loops of linear models over the non-zeros of sparse rows are made of: a row's product with a table
// of weights, and its addition to one. Compiled once per instruction set, so no standard templates here.
#pragma once
#include <math.h>

#include "row.h"

namespace steepest {
namespace STEEPEST_ISA {

constexpr int64_t kFloatsPerLine = 16;

// Towards zero by `amount`, and no further; without a branch, since signs and sizes are hard to predict.
template <typename W>
static inline W soft_threshold(W value, W amount) {
  const W left = static_cast<W>(fabs(value)) - amount;
  return static_cast<W>(copysign(left > 0 ? left : 0, value));
}

// Sum of v[j] x_j, where the weights stand kStride entries apart.
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
static inline float sum_lanes(__m256 a) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 quarter = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}

static const int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};  // eight lanes on, then eight off

template <int kStride = 1>
static inline double dot(const float* v, const Row& row) {
  constexpr int kBytes = kStride * sizeof(float);
  __m256 a = _mm256_setzero_ps(), b = _mm256_setzero_ps();
  int64_t k = 0;
  for (; k + 16 <= row.n; k += 16) {
    const __m256i i = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.index + k));
    const __m256i j = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.index + k + 8));
    a = _mm256_fmadd_ps(_mm256_i32gather_ps(v, i, kBytes), _mm256_loadu_ps(row.value + k), a);
    b = _mm256_fmadd_ps(_mm256_i32gather_ps(v, j, kBytes), _mm256_loadu_ps(row.value + k + 8), b);
  }
  if (k + 8 <= row.n) {
    const __m256i i = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row.index + k));
    a = _mm256_fmadd_ps(_mm256_i32gather_ps(v, i, kBytes), _mm256_loadu_ps(row.value + k), a);
    k += 8;
  }
  if (k < row.n) {  // the last entries under a mask: index 0 with value 0 stands for those that are not there
    const __m256i mask = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - (row.n - k)));
    const __m256i i = _mm256_maskload_epi32(row.index + k, mask);
    b = _mm256_fmadd_ps(_mm256_i32gather_ps(v, i, kBytes), _mm256_maskload_ps(row.value + k, mask), b);
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
