// SPDX-License-Identifier: Apache-2.0
// splitmix64: numbers that depend on a seed and a place alone, whatever chunk or thread they are drawn in.
#pragma once
#include <stdint.h>

namespace steepest {

static inline uint64_t splitmix64(uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// The next number of a sequence.
static inline uint64_t next_random(uint64_t* state) {
  const uint64_t random = splitmix64(*state);
  *state += 0x9E3779B97F4A7C15u;
  return random;
}

}  // namespace steepest
