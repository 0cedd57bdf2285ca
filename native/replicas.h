// SPDX-License-Identifier: Apache-2.0
// Several threads on one linear model: replicas that learn apart and add up what they have learned, or one
// table that all write to (hogwild).
#pragma once
#include "kernel_table.h"

namespace steepest {

struct ParallelChoices {
  int64_t n_replicas;    // what the result depends on; 0: hogwild, 1: threads share out the outputs
  int64_t rows_each;     // rows that a replica learns between two sums
  double gain;           // changes that more than so many replicas made are scaled down to the sum of so many
  int64_t n_threads;     // what only the time depends on, unless hogwild
  int64_t accumulators;  // entries a weight: 1, or 2 for the adaptive rules
};

struct ReplicaTables {
  void* v;        // n_replicas tables, one behind the other
  void* average;  // likewise, or null
  bool synced;    // they hold the common weights already
};

// Learns all rows. Where a row is in trouble, the outcome tells the start of its round, of which nothing was
// learned; rows_done counts the rows before it.
Outcome learn_replicas(const LearnFunction& learn, const SettleFunction& settle, int type, const Rows& rows,
                       const Choices& choices, const LinearState& state, const ParallelChoices& parallel,
                       ReplicaTables& tables);
Outcome learn_hogwild(const LearnFunction& learn, const SettleFunction& settle, const Rows& rows,
                      const Choices& choices, const LinearState& state, const ParallelChoices& parallel);

}  // namespace steepest
