// SPDX-License-Identifier: Apache-2.0
// Rows of factors: where they lie, their product, and how they are fetched ahead of their turn. Compiled once
// per instruction set, so no standard templates.
#pragma once
#include "factor_table.h"
#include "lanes.h"

// Ranks that are compiled in, up to kMostFixedRank.
// clang-format off
#define FIXED_RANKS(RANK) \
  RANK(8) RANK(16) RANK(24) RANK(32) RANK(40) RANK(48) RANK(56) RANK(64) \
  RANK(72) RANK(80) RANK(88) RANK(96) RANK(104) RANK(112) RANK(120) RANK(128)
// clang-format on

namespace steepest {
namespace STEEPEST_ISA {

constexpr int64_t kAhead = 4;  // entries between a prefetch and its use; measured, 2 to 8 tie

static ALWAYS_INLINE bool outside(int32_t row, int64_t n) { return static_cast<uint32_t>(row) >= n; }

static ALWAYS_INLINE void prefetch_row(const float* row, int64_t n_floats) {
  for (int64_t j = 0; j < n_floats; j += 16) PREFETCH(row + j);
}

static ALWAYS_INLINE float* row_of(const Table& table, int32_t row, int64_t padded) {
  return table.rows + row * (padded + kTail);
}

static ALWAYS_INLINE float dot(const float* p, const float* q, int64_t padded) {
  Eight a = all(0), b = all(0);
  int64_t j = 0;
  for (; j + 16 <= padded; j += 16) {
    a = fma(load(p + j), load(q + j), a);
    b = fma(load(p + j + 8), load(q + j + 8), b);
  }
  if (j < padded) a = fma(load(p + j), load(q + j), a);
  return sum(add(a, b));
}

// The entries of one block, whose rows keep their steps from its start to its end; see
// factor_block_kernels.cpp.
FactorOutcome sgd_block(const Entries&, const Stripes&, const Table& users, const Table& items,
                        const FactorChoices&);

}  // namespace STEEPEST_ISA
}  // namespace steepest
