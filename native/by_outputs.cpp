// SPDX-License-Identifier: Apache-2.0
#include "by_outputs.h"

#include <cmath>
#include <vector>

#include "parts.h"

namespace steepest {
namespace {

constexpr int64_t kLeastRows = 32;  // worth the start of a thread
constexpr int64_t kLine = 8;        // doubles between the scratch of two threads

// The first row that no thread may learn, or n: were it found while learning, the outputs would stop at
// different rows.
Outcome first_refused(const Rows& rows) {
  for (int64_t q = 0; q < rows.n; ++q) {
    const int64_t row = rows.order ? rows.order[q] : q;
    for (int64_t k = rows.indptr[row]; k < rows.indptr[row + 1]; ++k) {
      if (rows.indices[k] < 0 || rows.indices[k] >= rows.n_features) return {q, kBadIndex, 0, 0};
      if (!std::isfinite(rows.values[k])) return {q, kNotFinite, 0, 0};
    }
  }
  return {rows.n, kFine, 0, 0};
}

int64_t count_parts(const Rows& rows, int64_t n_threads) {
  const bool large = rows.n_features * rows.stride >= kLargeEntries;
  return std::min(n_threads, rows.n_outputs / (large ? kOutputsAThreadOfLarge : kOutputsAThread));
}

void* moved(void* table, int type, int64_t entries) {
  if (!table) return nullptr;
  return static_cast<char*>(table) +
         entries * static_cast<int64_t>(type == 0 ? sizeof(float) : sizeof(double));
}

}  // namespace

bool has_parts_by_outputs(const Rows& rows, const Choices& choices, const LinearState& state,
                          int64_t n_threads) {
  return count_parts(rows, n_threads) > 1 && rows.n >= kLeastRows && !rows.table_bits &&
         choices.target_kind != kSoftmax && !state.shrunk;
}

Outcome learn_by_outputs(const LearnFunction& learn, int type, const Rows& rows, const Choices& choices,
                         const LinearState& state, int64_t n_threads) {
  const int64_t n_groups = count_groups(rows.n_outputs), n_parts = count_parts(rows, n_threads);
  const Outcome refused = first_refused(rows);
  const int64_t room = scratch_size(choices.batch_size, rows.n_outputs) + kLine;
  std::vector<double> scratch(n_parts * room);
  std::vector<Outcome> outcomes(n_parts);
  std::vector<Clock> clocks(n_parts, *state.clock);
  std::vector<double> losses(n_groups);
  run_parts(n_parts, [&](int64_t part) {
    const int64_t group = n_groups * part / n_parts, next_group = n_groups * (part + 1) / n_parts;
    const int64_t first = group * kOutputGroup;
    Rows own = rows;
    own.n = refused.rows_done;
    own.first_output = first;
    own.n_outputs = std::min(next_group * kOutputGroup, rows.n_outputs) - first;
    Clock clock = clocks[part];  // on this thread's own stack: it moves with every row
    const LinearState mine = {moved(state.v, type, first),
                              nullptr,
                              moved(state.average, type, first),
                              state.bias + first,
                              state.bias_square + first,
                              state.bias_average + first,
                              &clock,
                              scratch.data() + part * room};
    outcomes[part] = learn(own, choices, mine);
    clocks[part] = clock;
    const double* sums = loss_sums(mine.scratch, choices.batch_size, own.n_outputs);
    for (int64_t g = group; g < next_group; ++g) losses[g] = sums[g - group];
  });
  int64_t worst = 0;
  for (int64_t part = 1; part < n_parts; ++part)
    if (outcomes[part].rows_done < outcomes[worst].rows_done) worst = part;
  *state.clock = clocks[worst];
  Outcome total = outcomes[worst];
  if (total.status != kFine) return {total.rows_done, total.status, 0, 0};
  if (refused.status != kFine) return refused;
  total.loss_sum = 0;
  for (const double loss : losses) total.loss_sum += loss;
  return total;
}

}  // namespace steepest
