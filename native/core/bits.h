// SPDX-License-Identifier: Apache-2.0
// Bits of words and floats.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(_MSC_VER)
#include <intrin.h>
#endif

namespace steepest {

// Of a word that is not zero.
inline int trailing_zeros(uint64_t word) {
#if defined(_MSC_VER)
  unsigned long position;
  _BitScanForward64(&position, word);
  return static_cast<int>(position);
#else
  return __builtin_ctzll(word);
#endif
}

inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace steepest
