// SPDX-License-Identifier: Apache-2.0
// What the solvers of linear models share: scores of many outputs, fetching ahead, losses of a row,
// biases.
#pragma once
#include "core/sparse_row.h"
#include "linear/losses.h"
#include "linear/outputs.h"
#include "linear/schedules.h"

namespace steepest {
namespace STEEPEST_ISA {

// Measured: fetching ahead pays for tables beyond this many bytes.
constexpr int64_t kPrefetchBytes = int64_t{1} << 21;

// Whether the weights leave the second-level cache, so that fetching them ahead pays.
template <typename W>
static inline bool is_large(const TableShape& shape) {
  return !shape.table_bits &&
         shape.n_features * shape.stride * static_cast<int64_t>(sizeof(W)) > kPrefetchBytes;
}

static inline bool one_column(const TableShape& shape) { return shape.width == 1 && !shape.table_bits; }

// Scores of many outputs: `add(spots, n, sum)` adds what some features give to the n outputs of a window.
template <typename W, typename Add>
static inline void score_many(const Layout& layout, const Row& row, int64_t n_outputs, double* scores,
                              Add add) {
  for (int64_t first = 0; first < n_outputs; first += kWindow) {
    const int64_t n = smaller(kWindow, n_outputs - first);
    W sum[kWindow] = {};
    layout.each<W>(row, first / kWindow, [&](const Spots<W>& spots) { add(spots, n, sum); });
    for (int64_t k = 0; k < n; ++k) scores[first + k] = static_cast<double>(sum[k]);
  }
}

// scores[k] = sum over j of V[j][k] x_j.
template <typename W>
static inline void dot_many(const Layout& layout, const W* v, const Row& row, int64_t n_outputs,
                            double* scores) {
  score_many<W>(layout, row, n_outputs, scores,
                [&](const Spots<W>& spots, int64_t n, W* sum) { run_window<DotVectors>(v, spots, n, sum); });
}

// scores[k] = scale scores[k] + bias[k]; whether all are finite.
static inline Status add_biases(int64_t n, double scale, const double* bias, double* scores) {
  bool finite = true;
  for (int64_t k = 0; k < n; ++k) {
    scores[k] = scale * scores[k] + bias[k];
    finite = finite && isfinite(scores[k]);
  }
  return finite ? kFine : kNotFinite;
}

// Fetches what the rows behind the current one will need: their weights if the table is large, their entries
// if they are visited in an order the hardware cannot foresee.
template <typename W>
struct Ahead {
  const Rows& rows;
  const TableShape& shape;
  const W* table;
  const W* average;  // of one output; null if there is none, or if it comes with the table
  // What a feature has in the table: all its entries, or of each kind those of the outputs learned here.
  int64_t pieces, piece;
  bool large;

  Ahead(const Rows& r, const TableShape& s, const W* t, const W* a)
      : rows(r),
        shape(s),
        table(t),
        average(s.stride == 2 * s.width || !one_column(s) ? nullptr : a),
        pieces(s.n_outputs == s.width ? 1 : s.stride / s.width),
        piece(s.n_outputs == s.width ? s.stride : s.n_outputs),
        large(is_large<W>(s)) {}

  // Both are inlined by force, see fetch_entries.
  // The weights are asked for in two halves, before and after the row is scored: all at once they would
  // overflow the line fill buffers, and the row's own loads would wait behind them.
  ALWAYS_INLINE void fetch(int64_t q) const {
    // Inside a block of rows the hardware runs ahead by itself.
    if (rows.order && q + 2 < rows.n && rows.order[q + 2] != rows.order[q + 1] + 1) {
      fetch_entries(row_in_turn(rows, q + 2));
    }
    fetch_weights(q, 0);
  }
  ALWAYS_INLINE void fetch_weights(int64_t q, int half) const {
    if (!large || q + 1 >= rows.n) return;
    const Row row = get_row(rows, row_at(rows, q + 1));
    const int64_t line = 64 / sizeof(W), middle = row.n / 2;
    for (int64_t k = half ? middle : 0; k < (half ? row.n : middle); ++k) {
      const int64_t first = row.index[k] * shape.stride;
      if (average) PREFETCH(average + first);
      for (int64_t p = 0; p < pieces; ++p) {
        const W* const start = table + first + p * shape.width;
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

// Fills gradients[0..n_outputs) from scores[0..n_outputs), and the losses of the groups of outputs.
static inline void losses_of_row(const Rows& rows, const TableShape& shape, const LinearChoices& c,
                                 int64_t row, const double* scores, double* gradients, double* by_group) {
  const int64_t n = shape.n_outputs, n_groups = count_groups(n);
  if (c.target_kind == kSoftmax) {
    const SoftmaxSum s = softmax(scores, n, gradients);
    const int64_t label = static_cast<int64_t>(rows.y[row]);
    gradients[label] -= 1;
    by_group[0] = log(s.sum) + (s.top - scores[label]);
    for (int64_t g = 1; g < n_groups; ++g) by_group[g] = 0;
    return;
  }
  const bool codes = c.target_kind != kTargets;
  const double* targets = rows.y + (codes ? row : row * rows.n_targets + shape.first_output);
  const int64_t label = codes ? static_cast<int64_t>(targets[0]) - shape.first_output : 0;
  for (int64_t g = 0; g < n_groups; ++g) {
    LossSum losses;
    for (int64_t k = g * kOutputGroup; k < smaller(n, (g + 1) * kOutputGroup); ++k) {
      const double y = codes ? (k == label ? 1.0 : -1.0) : targets[k];
      const LossAndGradient l = evaluate_loss<true>(c.loss, c.loss_parameter, scores[k], y);
      gradients[k] = l.gradient;
      losses.add(1, l.value, l.factor);
    }
    by_group[g] = losses.total();
  }
}

// Calls work(feature, entry) for every entry of the table that is in use.
template <typename Work>
static inline void each_entry(const TableShape& shape, Work work) {
  const bool shared = shape.table_bits > 0;
  const int64_t n_rows = shared ? table_entries(shape.table_bits) : shape.n_features;
  const int64_t n_columns = shared ? 1 : shape.n_outputs, stride = shared ? 1 : shape.stride;
  for (int64_t j = 0; j < n_rows; ++j)
    for (int64_t o = j * stride; o < j * stride + n_columns; ++o) work(j, o);
}

// The squares behind the steps of biases keep this share.
static inline void forget_biases(const LinearState& s, double kept) {
  for (int64_t o = 0; o < s.shape.n_outputs; ++o) s.bias_square[o] *= kept;
}

// The latest time of n visits.
static inline double latest_time(const Rows& rows, int64_t first, int64_t n) {
  double latest = rows.time[row_at(rows, first)];
  for (int64_t q = first + 1; q < first + n; ++q) {
    const double time = rows.time[row_at(rows, q)];
    latest = time > latest ? time : latest;
  }
  return latest;
}

// The clock of the rows' times moves to `time`, if that is later; returns by how much sums that fade must be
// multiplied.
static inline double forget_until(const LinearChoices& c, const LinearState& s, double time) {
  Ages& ages = *s.ages;
  if (ages.effect == 0) ages.now = time;
  if (!(time > ages.now)) return 1;
  const double kept = kept_after(c, time - ages.now), change = change_of_unit(c, ages.now, time);
  forget_biases(s, kept);
  ages.effect *= kept;
  ages.now = time;
  return change;
}

// What a row counts that is older than the latest one.
static inline double share_by_age(const LinearChoices& c, const Rows& rows, const LinearState& s,
                                  int64_t row) {
  return kept_after(c, s.ages->now - rows.time[row]);
}

static inline void move_bias(const LinearChoices& c, const LinearState& s, int64_t k, double gradient,
                             double eta) {
  if (c.bias_scale < 0 || gradient == 0) return;
  if (c.bias_scale == 0) {
    s.bias[k] -= eta * gradient;
    return;
  }
  s.bias_square[k] += gradient * gradient;
  if (s.bias_square[k] > 0)
    s.bias[k] -= c.bias_scale * gradient / sqrt(s.bias_square[k]);  // else it vanished
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
