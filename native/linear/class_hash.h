// SPDX-License-Identifier: Apache-2.0
// The class hash, frozen under the name "classes-1": where the weight of a feature for a class is in a
// table that all of them share. Saved models depend on every bit of it, and a change needs a new id.
//
//   z = scramble((feature << 32 | class / 64) + golden ratio)      the finaliser of SplitMix64 (Steele et al.
//   2014) place = z mod 2^bits + class mod 64,  sign = bit 63 of z
//
// The 64 classes of a window are neighbours, so that they come with a few cache lines and are added
// up as vectors; any two weights still meet with a chance of 2^-bits. Tables are 63 entries longer than
// 2^bits, for the last windows. Functions are static: this header is compiled once per instruction set.
#pragma once
#include <stdint.h>

namespace steepest {

constexpr char kClassHashId[] = "classes-1";
constexpr int64_t kWindow = 64;
constexpr int kLeastTableBits = 6, kMostTableBits = 30;

struct ClassPlace {
  int64_t first;  // of the window's classes
  bool negative;
};

static inline ClassPlace place_classes(uint32_t feature, uint32_t window, uint64_t mask) {
  uint64_t z = (static_cast<uint64_t>(feature) << 32 | window) + 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  z ^= z >> 31;
  return {static_cast<int64_t>(z & mask), z >> 63 != 0};
}

static inline int64_t table_entries(int bits) { return (int64_t{1} << bits) + kWindow - 1; }

}  // namespace steepest
