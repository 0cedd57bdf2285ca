// SPDX-License-Identifier: Apache-2.0
// Outputs that are learned one against the rest do not know of each other: threads share them out, and each
// goes through all rows for its own. Weights, biases and losses have the bits of a single thread.
#pragma once
#include "kernel_table.h"

namespace steepest {

// With fewer each, threads would write to the same cache lines too often: measured, 29 outputs a thread gain
// a third at best and lose half at worst, 350 gain all.
constexpr int64_t kOutputsAThread = 48;
// In a table that no cache holds they seldom meet, and each waits for memory of its own: 24 and 29 outputs
// take 0.6 to 0.7 of the time of one thread from 100,000 features on, 0.9 for 20,000, and more than it for
// 2,000.
constexpr int64_t kOutputsAThreadOfLarge = 24;
constexpr int64_t kLargeEntries = int64_t{1} << 22;

// Whether there is anything to share out.
bool has_parts_by_outputs(const Rows& rows, const Choices& choices, const LinearState& state,
                          int64_t n_threads);

Outcome learn_by_outputs(const LearnFunction& learn, int type, const Rows& rows, const Choices& choices,
                         const LinearState& state, int64_t n_threads);

}  // namespace steepest
