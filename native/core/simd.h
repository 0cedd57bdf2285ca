// SPDX-License-Identifier: Apache-2.0
// Vectors of eight floats or four doubles. With AVX2 a vector is a register, and `fma` rounds once; otherwise
// it is two halves, which gcc and clang make into SSE2 or NEON registers, and `fma` rounds twice. Loads and
// stores need no alignment. Lanes never meet but in `sum`, whose order is the same everywhere. Compiled once
// per instruction set, so no standard templates.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/compiler.h"

namespace steepest {
namespace STEEPEST_ISA {

constexpr int64_t kVectorBytes = 32;

#if defined(__AVX2__)
typedef __m256 Float8;
typedef __m256d Double4;
constexpr int kVectorRegisters = 1;
static ALWAYS_INLINE Float8 load(const float* from) { return _mm256_loadu_ps(from); }
static ALWAYS_INLINE Double4 load(const double* from) { return _mm256_loadu_pd(from); }
static ALWAYS_INLINE void store(float* to, Float8 a) { _mm256_storeu_ps(to, a); }
static ALWAYS_INLINE void store(double* to, Double4 a) { _mm256_storeu_pd(to, a); }
static ALWAYS_INLINE Float8 all(float a) { return _mm256_set1_ps(a); }
static ALWAYS_INLINE Double4 all(double a) { return _mm256_set1_pd(a); }
static ALWAYS_INLINE Float8 add(Float8 a, Float8 b) { return _mm256_add_ps(a, b); }
static ALWAYS_INLINE Double4 add(Double4 a, Double4 b) { return _mm256_add_pd(a, b); }
static ALWAYS_INLINE Float8 sub(Float8 a, Float8 b) { return _mm256_sub_ps(a, b); }
static ALWAYS_INLINE Float8 mul(Float8 a, Float8 b) { return _mm256_mul_ps(a, b); }
static ALWAYS_INLINE Double4 mul(Double4 a, Double4 b) { return _mm256_mul_pd(a, b); }
static ALWAYS_INLINE Float8 fma(Float8 a, Float8 b, Float8 c) { return _mm256_fmadd_ps(a, b, c); }
static ALWAYS_INLINE Float8 fnma(Float8 a, Float8 b, Float8 c) { return _mm256_fnmadd_ps(a, b, c); }
static ALWAYS_INLINE Float8 max(Float8 a, Float8 b) { return _mm256_max_ps(a, b); }
static ALWAYS_INLINE Float8 min(Float8 a, Float8 b) { return _mm256_min_ps(a, b); }
static ALWAYS_INLINE float sum(Float8 a) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 quarter = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}
// One bit per lane: a > b.
static ALWAYS_INLINE int above(Float8 a, Float8 b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
static const int32_t kLaneMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};  // eight lanes on, then eight off

// A mask of the first n lanes, 0 to 8.
static ALWAYS_INLINE __m256i lanes_on(int64_t n) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kLaneMasks + 8 - n));
}
// to[j] = scale / sqrt(of[j]) for four numbers at once: four scalar roots and divisions cost half an update.
static ALWAYS_INLINE void inverse_roots(float a, float b, float c, float d, float scale, float* to) {
  _mm_storeu_ps(to, _mm_div_ps(_mm_set1_ps(scale), _mm_sqrt_ps(_mm_setr_ps(a, b, c, d))));
}
#else
#if defined(__GNUC__)
typedef float Float4 __attribute__((vector_size(16)));
typedef double Double2 __attribute__((vector_size(16)));
#else
template <typename W, int N>
struct Half {
  W lane[N];
  W& operator[](int j) { return lane[j]; }
  W operator[](int j) const { return lane[j]; }
};
#define EACH_LANE(operation)                                                                     \
  template <typename W, int N>                                                                   \
  static ALWAYS_INLINE Half<W, N> operator operation(const Half<W, N>& a, const Half<W, N>& b) { \
    Half<W, N> r;                                                                                \
    for (int j = 0; j < N; ++j) r[j] = a[j] operation b[j];                                      \
    return r;                                                                                    \
  }
EACH_LANE(+)
EACH_LANE(-)
EACH_LANE(*)
#undef EACH_LANE
typedef Half<float, 4> Float4;
typedef Half<double, 2> Double2;
#endif
template <typename H>
struct Halves {
  H low, high;
};
typedef Halves<Float4> Float8;
typedef Halves<Double2> Double4;
constexpr int kVectorRegisters = 2;
static ALWAYS_INLINE Float8 load(const float* from) {
  Float8 r;
  memcpy(&r, from, sizeof r);
  return r;
}
static ALWAYS_INLINE Double4 load(const double* from) {
  Double4 r;
  memcpy(&r, from, sizeof r);
  return r;
}
static ALWAYS_INLINE void store(float* to, Float8 a) { memcpy(to, &a, sizeof a); }
static ALWAYS_INLINE void store(double* to, Double4 a) { memcpy(to, &a, sizeof a); }
static ALWAYS_INLINE Float8 all(float a) {
  const Float4 half = {a, a, a, a};
  return {half, half};
}
static ALWAYS_INLINE Double4 all(double a) {
  const Double2 half = {a, a};
  return {half, half};
}
template <typename H>
static ALWAYS_INLINE Halves<H> add(Halves<H> a, Halves<H> b) {
  return {a.low + b.low, a.high + b.high};
}
template <typename H>
static ALWAYS_INLINE Halves<H> sub(Halves<H> a, Halves<H> b) {
  return {a.low - b.low, a.high - b.high};
}
template <typename H>
static ALWAYS_INLINE Halves<H> mul(Halves<H> a, Halves<H> b) {
  return {a.low * b.low, a.high * b.high};
}
static ALWAYS_INLINE Float8 fma(Float8 a, Float8 b, Float8 c) { return add(mul(a, b), c); }   // a b + c
static ALWAYS_INLINE Float8 fnma(Float8 a, Float8 b, Float8 c) { return sub(c, mul(a, b)); }  // c - a b
template <typename Choose>
static ALWAYS_INLINE Float8 by_lane(Float8 a, Float8 b, Choose choose) {
  for (int j = 0; j < 4; ++j) {
    a.low[j] = choose(a.low[j], b.low[j]);
    a.high[j] = choose(a.high[j], b.high[j]);
  }
  return a;
}
static ALWAYS_INLINE Float8 max(Float8 a, Float8 b) {
  return by_lane(a, b, [](float x, float y) { return x > y ? x : y; });
}
static ALWAYS_INLINE Float8 min(Float8 a, Float8 b) {
  return by_lane(a, b, [](float x, float y) { return x < y ? x : y; });
}
static ALWAYS_INLINE float sum(Float8 a) {
  const Float4 half = a.low + a.high;
  return (half[0] + half[2]) + (half[1] + half[3]);
}
static ALWAYS_INLINE int above(Float8 a, Float8 b) {
  int bits = 0;
  for (int j = 0; j < 4; ++j)
    bits |= (a.low[j] > b.low[j] ? 1 : 0) << j | (a.high[j] > b.high[j] ? 16 : 0) << j;
  return bits;
}
static ALWAYS_INLINE void inverse_roots(float a, float b, float c, float d, float scale, float* to) {
  to[0] = scale / sqrtf(a);
  to[1] = scale / sqrtf(b);
  to[2] = scale / sqrtf(c);
  to[3] = scale / sqrtf(d);
}
#endif
static ALWAYS_INLINE float root(float x) { return sqrtf(x); }
static ALWAYS_INLINE double root(double x) { return sqrt(x); }
static ALWAYS_INLINE Float8 all(int a) { return all(static_cast<float>(a)); }

}  // namespace STEEPEST_ISA
}  // namespace steepest
