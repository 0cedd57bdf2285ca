// SPDX-License-Identifier: Apache-2.0
// Several threads on one linear model. To learn, they share out the outputs; or learn replicas apart, which
// then add up what they have learned; or all write to one table (hogwild).
#pragma once
#include <utility>

#include "linear/linear_table.h"

namespace steepest {

struct LinearParallel {
  int64_t n_threads;   // results do not depend on it, unless hogwild
  int64_t n_replicas;  // what the result depends on; 0: hogwild, 1: threads share out the outputs
  int64_t rows_each;   // rows that a replica learns between two sums
  double gain;         // changes that more than so many replicas made are scaled down to the sum of so many
  void* v;             // n_replicas tables, one behind the other
  void* average;       // likewise, or null
  bool synced;         // the tables hold the common weights already
};

// Outputs of which a thread must have as many. With fewer each, threads would write to the same cache lines
// too often: measured, 29 outputs per thread gain a third at best and lose half at worst, 350 gain all.
constexpr int64_t kOutputsPerThread = 48;
// In a table that no cache holds they seldom meet, and each waits for memory of its own: 24 and 29 outputs
// take 0.6 to 0.7 of the time of one thread from 100,000 features on, 0.9 for 20,000, and more than it for
// 2,000.
constexpr int64_t kOutputsPerThreadOfLarge = 24;
constexpr int64_t kLargeEntries = int64_t{1} << 22;

// Learns all rows. Where replicas meet a row in trouble, the outcome is the start of its round, of which
// nothing was learned.
Outcome learn_linear(const Rows&, const LinearChoices&, const LinearState&, const LinearParallel&);

// Scores of rows: the first row with an index out of range and the first with a score that is not finite, or
// n. Each row's score does not depend on how rows are cut.
std::pair<int64_t, int64_t> score_linear(const Rows&, const ScoreTable&, double* scores, int64_t n_threads);

// The norms of means, as if they were written out and blocks of `rows_each` rows added up one after the
// other.
Norms mean_norms(const AverageTable&, int64_t rows_each, int64_t n_threads);

}  // namespace steepest
