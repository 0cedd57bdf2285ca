// SPDX-License-Identifier: Apache-2.0
// Linear scores of rows by a table of weights, for the bindings that have rows to score.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "bind_arrays.h"
#include "class_hash.h"
#include "kernel_table.h"
#include "parts.h"

namespace steepest {

// Columns of a table (features, [accumulators,] outputs): there may be room for more outputs than there are.
template <typename AnyTable>
int64_t width_of(const AnyTable& table, int64_t n_outputs, size_t accumulators, int32_t table_bits) {
  if (table_bits || table.ndim() != accumulators + 1) return n_outputs;
  return static_cast<int64_t>(table.shape(table.ndim() - 1));
}

// Features whose weights the table holds, or that may look for them in a table that all share.
inline int64_t count_features(size_t table_size, int64_t n_outputs, int64_t width, int64_t accumulators,
                              int32_t table_bits, int64_t n_columns) {
  const int64_t size = static_cast<int64_t>(table_size);
  if (table_bits == 0) {
    require(0 < n_outputs && n_outputs <= width && size % (width * accumulators) == 0,
            "the weights do not fit the bias");
    return size / width / accumulators;
  }
  require(kLeastTableBits <= table_bits && table_bits <= kMostTableBits, "table_bits must be 6 to 30");
  require(n_outputs > 0 && size == table_entries(table_bits) * accumulators, "the table has another size");
  require(0 <= n_columns && n_columns <= std::numeric_limits<int32_t>::max(), "n_columns is out of range");
  return n_columns;
}

// Weights and biases as they came, and what was found to be true of them.
struct ScoreTable {
  ScoreTable(const ConstFloatTable& weights, double scale, const double* bias, size_t n_biases,
             int32_t table_bits, int64_t n_columns)
      : weights(weights.data()),
        type(float_type(weights)),
        scale(scale),
        bias(bias),
        n_outputs(static_cast<int64_t>(n_biases)),
        width(width_of(weights, n_outputs, 1, table_bits)),
        n_features(count_features(weights.size(), n_outputs, width, 1, table_bits, n_columns)),
        table_bits(table_bits) {}

  const void* weights;
  int type;
  double scale;
  const double* bias;
  int64_t n_outputs, width, n_features;
  int32_t table_bits;
};

// The first row with a score that is no number, or n.
inline int64_t first_not_finite(const double* scores, int64_t n, int64_t n_outputs) {
  const double* const bad =
      std::find_if(scores, scores + n * n_outputs, [](double score) { return !std::isfinite(score); });
  return (bad - scores) / n_outputs;
}

// scale * w.x + bias. Rows are scored in contiguous parts, one a thread; each row's score does not depend on
// the split. Returns the first row with an index out of range and the first with a score that is no number.
inline std::pair<int64_t, int64_t> score(const Rows& rows, const ScoreTable& table, double* scores,
                                         int n_threads) {
  const int64_t parts = parts_for(rows.n, n_threads, 1024);
  std::vector<int64_t> stopped(parts), overflown(parts);
  run_parts(parts, [&](int64_t part) {
    const int64_t first = rows.n * part / parts, last = rows.n * (part + 1) / parts;
    Rows mine = rows;
    mine.n = last - first;
    if (mine.order)
      mine.order += first;
    else
      mine.indptr += first;
    double* const own = scores + first * table.n_outputs;
    const int64_t done = kernels().scores[table.type](mine, table.weights, table.scale, table.bias, own);
    const int64_t finite = first_not_finite(own, done, table.n_outputs);
    stopped[part] = done == mine.n ? rows.n : first + done;
    overflown[part] = finite == done ? rows.n : first + finite;
  });
  return {*std::min_element(stopped.begin(), stopped.end()),
          *std::min_element(overflown.begin(), overflown.end())};
}

}  // namespace steepest
