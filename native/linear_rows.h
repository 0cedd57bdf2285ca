// SPDX-License-Identifier: Apache-2.0
// What the update rules of linear models share: scores of many outputs, fetching ahead, losses of a row,
// biases.
#pragma once
#include "kernel_table.h"
#include "losses.h"
#include "outputs.h"
#include "sparse_row.h"

namespace steepest {
namespace STEEPEST_ISA {

// Measured: fetching ahead pays for tables beyond this many bytes.
constexpr int64_t kPrefetchBytes = int64_t{1} << 21;
// A heavy row is learned in steps of weight one, as its copies would be, but in at most this many.
constexpr double kMostRepeats = 128;

static inline Extent extent_of(const Rows& rows) {
  if (rows.table_bits) return {table_entries(rows.table_bits), 1, 1};
  return {rows.n_features, rows.n_outputs, rows.stride};
}

// Whether the weights leave the second-level cache, so that fetching them ahead pays.
template <typename W>
static inline bool is_large(const Rows& rows) {
  return !rows.table_bits && rows.n_features * rows.stride * static_cast<int64_t>(sizeof(W)) > kPrefetchBytes;
}

static inline bool one_column(const Rows& rows) { return rows.width == 1 && !rows.table_bits; }

static inline float root(float x) { return sqrtf(x); }
static inline double root(double x) { return sqrt(x); }

// scores[k] = sum over j of V[j][k] x_j, for many outputs.
template <typename W>
static inline void dot_many(const Layout& layout, const W* v, const Row& row, int64_t n_outputs,
                            double* scores) {
  Spots<W> spots;
  for (int64_t first = 0; first < n_outputs; first += kWindow) {
    const int64_t n = smaller(kWindow, n_outputs - first);
    W sum[kWindow] = {};
    for (int64_t e = 0; e < row.n; e += kSpots) {
      layout.find(row.index + e, row.value + e, smaller(kSpots, row.n - e), first / kWindow, spots);
      run_window<DotVectors>(v, spots, n, sum);
    }
    for (int64_t k = 0; k < n; ++k) scores[first + k] = static_cast<double>(sum[k]);
  }
}

// Fetches what the rows behind the current one will need: their weights if the table is large, their entries
// if they are visited in an order the hardware cannot foresee.
template <typename W>
struct Ahead {
  const Rows& rows;
  const W* table;
  const W* average;  // of one output; null if there is none, or if it comes with the table
  // What a feature has in the table: all its entries, or of each kind those of the outputs learned here.
  int64_t pieces, piece;
  bool large;

  Ahead(const Rows& r, const W* t, const W* a)
      : rows(r),
        table(t),
        average(r.stride == 2 * r.width || !one_column(r) ? nullptr : a),
        pieces(r.n_outputs == r.width ? 1 : r.stride / r.width),
        piece(r.n_outputs == r.width ? r.stride : r.n_outputs),
        large(is_large<W>(r)) {}

  // Both are inlined by force: to gcc a function that only prefetches has no effect, and it drops the call.
  // The weights are asked for in two halves, before and after the row is scored: all at once they would
  // overflow the line fill buffers, and the row's own loads would wait behind them.
  ALWAYS_INLINE void fetch(int64_t q) const {
    // Inside a block of rows the hardware runs ahead by itself.
    if (rows.order && q + 2 < rows.n && rows.order[q + 2] != rows.order[q + 1] + 1) {
      const Row row = get_row(rows, row_at(rows, q + 2));
      for (int64_t k = 0; k < row.n; k += kFloatsPerLine) {
        PREFETCH(row.index + k);
        PREFETCH(row.value + k);
      }
    }
    fetch_weights(q, 0);
  }
  ALWAYS_INLINE void fetch_weights(int64_t q, int half) const {
    if (!large || q + 1 >= rows.n) return;
    const Row row = get_row(rows, row_at(rows, q + 1));
    const int64_t line = 64 / sizeof(W), middle = row.n / 2;
    for (int64_t k = half ? middle : 0; k < (half ? row.n : middle); ++k) {
      const int64_t first = row.index[k] * rows.stride;
      if (average) PREFETCH(average + first);
      for (int64_t p = 0; p < pieces; ++p) {
        const W* const start = table + first + p * rows.width;
        for (int64_t o = 0; o < piece; o += line) PREFETCH(start + o);
        PREFETCH(start + piece - 1);  // pieces do not start with a cache line, so they may end in one more
      }
    }
  }
};

// A weighted sum of losses; those of weight one are gathered as a sum and a product (see losses.h).
struct LossSum {
  double sum = 0;
  double product = 1;

  void add(double weight, double value, double factor) {
    if (weight == 1) {
      sum += value;
      product *= factor;
      if (product > 1e250) {  // before the next factor, at most 2, could overflow it
        sum += log(product);
        product = 1;
      }
    } else {
      sum += weight * (value + log(factor));
    }
  }
  double total() const { return sum + log(product); }
};

// Fills slopes[0..n_outputs) from scores[0..n_outputs), and the losses of the groups of outputs.
static inline void losses_of_row(const Rows& rows, const Choices& c, int64_t row, const double* scores,
                                 double* slopes, double* by_group) {
  const int64_t n = rows.n_outputs, n_groups = count_groups(n);
  if (c.target_kind == kSoftmax) {
    double top = scores[0], sum = 0;
    for (int64_t k = 1; k < n; ++k) top = scores[k] > top ? scores[k] : top;
    for (int64_t k = 0; k < n; ++k) sum += slopes[k] = exp(scores[k] - top);
    for (int64_t k = 0; k < n; ++k) slopes[k] /= sum;
    const int64_t label = static_cast<int64_t>(rows.y[row]);
    slopes[label] -= 1;
    by_group[0] = log(sum) + (top - scores[label]);
    for (int64_t g = 1; g < n_groups; ++g) by_group[g] = 0;
    return;
  }
  const bool codes = c.target_kind != kTargets;
  const double* targets = rows.y + (codes ? row : row * rows.n_targets + rows.first_output);
  const int64_t label = codes ? static_cast<int64_t>(targets[0]) - rows.first_output : 0;
  for (int64_t g = 0; g < n_groups; ++g) {
    LossSum losses;
    for (int64_t k = g * kOutputGroup; k < smaller(n, (g + 1) * kOutputGroup); ++k) {
      const double y = codes ? (k == label ? 1.0 : -1.0) : targets[k];
      const LossAndSlope l = evaluate_loss<true>(c.loss, c.loss_parameter, scores[k], y);
      slopes[k] = l.slope;
      losses.add(1, l.value, l.factor);
    }
    by_group[g] = losses.total();
  }
}

static inline void move_bias(const Choices& c, const LinearState& s, int64_t k, double slope, double eta) {
  if (c.bias_scale < 0 || slope == 0) return;
  if (c.bias_scale == 0) {
    s.bias[k] -= eta * slope;
    return;
  }
  s.bias_square[k] += slope * slope;
  s.bias[k] -= c.bias_scale * slope / sqrt(s.bias_square[k]);
}

static inline double repeats_for(const Choices& c, double weight) {
  if (c.batch_size > 1 || weight <= 1) return 1;
  return ceil(weight < kMostRepeats ? weight : kMostRepeats);
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
