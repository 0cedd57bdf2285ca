// SPDX-License-Identifier: Apache-2.0
// Eight floats that move together: AVX2 and FMA where the file is compiled for them, else what the compiler
// makes of it. Loads and stores need no alignment. Compiled once per instruction set, so no standard
// templates.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "compiler.h"

namespace steepest {
namespace STEEPEST_ISA {

#if defined(__AVX2__)
typedef __m256 Eight;
static ALWAYS_INLINE Eight load(const float* from) { return _mm256_loadu_ps(from); }
static ALWAYS_INLINE void store(float* to, Eight a) { _mm256_storeu_ps(to, a); }
static ALWAYS_INLINE Eight all(float a) { return _mm256_set1_ps(a); }
static ALWAYS_INLINE Eight mul(Eight a, Eight b) { return _mm256_mul_ps(a, b); }
static ALWAYS_INLINE Eight add(Eight a, Eight b) { return _mm256_add_ps(a, b); }
static ALWAYS_INLINE Eight fma(Eight a, Eight b, Eight c) { return _mm256_fmadd_ps(a, b, c); }    // a b + c
static ALWAYS_INLINE Eight fnma(Eight a, Eight b, Eight c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a b
static ALWAYS_INLINE Eight larger(Eight a, Eight b) { return _mm256_max_ps(a, b); }
static ALWAYS_INLINE Eight smaller(Eight a, Eight b) { return _mm256_min_ps(a, b); }
static ALWAYS_INLINE float sum(Eight a) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 quarter = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}
// to[j] = scale / sqrt(of[j]) for four numbers at once: four scalar roots and divisions cost half an update.
static ALWAYS_INLINE void inverse_roots(float a, float b, float c, float d, float scale, float* to) {
  _mm_storeu_ps(to, _mm_div_ps(_mm_set1_ps(scale), _mm_sqrt_ps(_mm_setr_ps(a, b, c, d))));
}
static ALWAYS_INLINE int above(Eight a, Eight b) {  // one bit a lane: a > b
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
#else
struct Eight {
  float lane[8];
};
#define LANES(expression)                               \
  Eight r;                                              \
  for (int j = 0; j < 8; ++j) r.lane[j] = (expression); \
  return r
static ALWAYS_INLINE Eight load(const float* from) {
  Eight r;
  memcpy(r.lane, from, sizeof r.lane);
  return r;
}
static ALWAYS_INLINE void store(float* to, Eight a) { memcpy(to, a.lane, sizeof a.lane); }
static ALWAYS_INLINE Eight all(float a) { LANES(a); }
static ALWAYS_INLINE Eight mul(Eight a, Eight b) { LANES(a.lane[j] * b.lane[j]); }
static ALWAYS_INLINE Eight add(Eight a, Eight b) { LANES(a.lane[j] + b.lane[j]); }
static ALWAYS_INLINE Eight fma(Eight a, Eight b, Eight c) { LANES(a.lane[j] * b.lane[j] + c.lane[j]); }
static ALWAYS_INLINE Eight fnma(Eight a, Eight b, Eight c) { LANES(c.lane[j] - a.lane[j] * b.lane[j]); }
static ALWAYS_INLINE Eight larger(Eight a, Eight b) { LANES(a.lane[j] > b.lane[j] ? a.lane[j] : b.lane[j]); }
static ALWAYS_INLINE Eight smaller(Eight a, Eight b) { LANES(a.lane[j] < b.lane[j] ? a.lane[j] : b.lane[j]); }
static ALWAYS_INLINE float sum(Eight a) {
  const float* x = a.lane;
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}
static ALWAYS_INLINE void inverse_roots(float a, float b, float c, float d, float scale, float* to) {
  to[0] = scale / sqrtf(a);
  to[1] = scale / sqrtf(b);
  to[2] = scale / sqrtf(c);
  to[3] = scale / sqrtf(d);
}
static ALWAYS_INLINE int above(Eight a, Eight b) {
  int bits = 0;
  for (int j = 0; j < 8; ++j) bits |= (a.lane[j] > b.lane[j] ? 1 : 0) << j;
  return bits;
}
#undef LANES
#endif

}  // namespace STEEPEST_ISA
}  // namespace steepest
