// SPDX-License-Identifier: Apache-2.0
// The links of networks: h = link(z) and what comes back through it. steepest.learners.network.graph holds
// the same definitions in NumPy, and the tests compare the two. Compiled once per instruction set, as
// losses.h is.
#pragma once
#include <math.h>
#include <stdint.h>

#include "core/compiler.h"

namespace steepest {
namespace STEEPEST_ISA {

enum LinkId { kTanh, kSigmoid, kRelu, kSign, kIdentity };

static inline double tanh_of(double z) { return tanh(z); }

// A ratio of polynomials, exact to a few units in the last place: the library's takes one number at a time.
// Beyond 7.9 the result is one in float. The coefficients are those of Eigen's generic_fast_tanh_float.
static inline float tanh_of(float z) {
  const float most = 7.90531110763549805f;
  const float high = z > most ? most : z, x = high < -most ? -most : high, s = x * x;
  float p = s * -2.76076847742355e-16f + 2.00018790482477e-13f;
  p = s * p + -8.60467152213735e-11f;
  p = s * p + 5.12229709037114e-08f;
  p = s * p + 1.48572235717979e-05f;
  p = s * p + 6.37261928875436e-04f;
  p = s * p + 4.89352455891786e-03f;
  float q = s * 1.19825839466702e-06f + 1.18534705686654e-04f;
  q = s * q + 2.26843463243900e-03f;
  q = s * q + 4.89352518554385e-03f;
  return x * p / q;
}

template <typename Each>
static ALWAYS_INLINE void for_each(int64_t n, const Each& each) {
  for (int64_t k = 0; k < n; ++k) each(k);
}

template <typename T>
static void apply_link(int32_t link, const T* z, int64_t n, T* h) {
  const T half = static_cast<T>(0.5);
  switch (link) {
    case kTanh:
      return for_each(n, [=](int64_t k) { h[k] = tanh_of(z[k]); });
    case kSigmoid:
      return for_each(n, [=](int64_t k) { h[k] = half * (1 + tanh_of(half * z[k])); });
    case kRelu:
      return for_each(n, [=](int64_t k) { h[k] = z[k] < 0 ? 0 : z[k]; });
    case kSign:
      return for_each(n, [=](int64_t k) { h[k] = z[k] < 0 ? T(-1) : T(1); });
    default:
      return for_each(n, [=](int64_t k) { h[k] = z[k]; });
  }
}

// gradient *= dh/dz; the sign takes that of clip(z, -1, 1).
template <typename T>
static void pass_back(int32_t link, const T* z, const T* h, int64_t n, T* gradient) {
  switch (link) {
    case kTanh:
      return for_each(n, [=](int64_t k) { gradient[k] *= 1 - h[k] * h[k]; });
    case kSigmoid:
      return for_each(n, [=](int64_t k) { gradient[k] *= h[k] * (1 - h[k]); });
    case kRelu:
      return for_each(n, [=](int64_t k) { gradient[k] = h[k] > 0 ? gradient[k] : 0; });
    case kSign:
      return for_each(n, [=](int64_t k) { gradient[k] = z[k] < -1 || z[k] > 1 ? 0 : gradient[k]; });
    default:
      return;
  }
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
