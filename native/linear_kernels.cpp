// SPDX-License-Identifier: Apache-2.0
// Linear models: one pass of an update rule over sparse rows, and their scores.
//
// sgd      w <- prox(w - eta g x): w = P v with P the product of 1 / (1 + eta l2), so that L2 costs one
// multiplication a
//          step; L1 adds to a running total Q, and a feature pays what it owes when it is next seen (Q - its
//          clock). The average of the iterates is (S v - u) / C, with u += S dv, so that it costs one more
//          array, not a pass.
// adagrad  dual averaging: w = -soft(sum g, t l1) / ((1 + sqrt(sum g^2)) / eta + t l2), computed where it is
// needed. ftrl     FTRL-Proximal (McMahan et al. 2013): the same, with sigma w taken from the sum at every
// change.
//
// coin     coin betting (Orabona and Tommasi 2017): each weight is a share of what its earlier bets have won.
//
// This file is compiled once per instruction set (STEEPEST_ISA names the namespace). It must not use standard
// library templates: the linker may keep the copy of an inline function that old processors cannot run.
#include "kernel_table.h"
#include "losses.h"
#include "outputs.h"
#include "schedules.h"
#include "sparse_row.h"

namespace steepest {
namespace STEEPEST_ISA {

// Tables beyond this many bytes leave the second-level cache: measured, prefetching pays from there on.
constexpr int64_t kPrefetchBytes = int64_t{1} << 21;
// v = w / P stays far from the limits of float32 while P is above this.
constexpr double kSmallestScale = 1e-6;
// The average is the difference of S v and u, each larger than itself by 1 / (P log(1 / P)). Measured with
// float32 after 20,000 steps: an error of 1e-4 or less with this limit, of 5e-2 with the one above.
constexpr double kSmallestAveragedScale = 1e-2;
// Early bets are small: at most one part in so many of the wealth for each gradient of full size.
constexpr double kLeastPot = 10;
// A heavy row is learned in steps of weight one, as its copies would be, but in at most this many.
constexpr double kMostRepeats = 128;

static inline bool one_column(const Rows& rows) { return rows.width == 1 && !rows.table_bits; }

static inline float root(float x) { return sqrtf(x); }
static inline double root(double x) { return sqrt(x); }

// v[j] += step x_j and u[j] += average_step x_j, in one visit of the row.
template <typename W>
static inline void add_row_twice(W* v, W* u, const Row& row, double step, double average_step) {
  const W s = static_cast<W>(step), a = static_cast<W>(average_step);
  for (int64_t k = 0; k < row.n; ++k) {
    const W x = static_cast<W>(row.value[k]);
    v[row.index[k]] += s * x;
    u[row.index[k]] += a * x;
  }
}

#if defined(__AVX2__)
template <>
inline void add_row_twice<float>(float* v, float* u, const Row& row, double step, double average_step) {
  const float s = static_cast<float>(step), a = static_cast<float>(average_step);
  int64_t k = 0;
  for (; k + 4 <= row.n; k += 4) {
    float dv[4], du[4];
    const __m128 x = _mm_loadu_ps(row.value + k);
    _mm_storeu_ps(dv, _mm_mul_ps(_mm_set1_ps(s), x));
    _mm_storeu_ps(du, _mm_mul_ps(_mm_set1_ps(a), x));
    for (int lane = 0; lane < 4; ++lane) {
      v[row.index[k + lane]] += dv[lane];
      u[row.index[k + lane]] += du[lane];
    }
  }
  for (; k < row.n; ++k) {
    v[row.index[k]] += s * row.value[k];
    u[row.index[k]] += a * row.value[k];
  }
}
#endif

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
  const W* average;  // or null
  int64_t entries_per_feature;
  bool large;

  Ahead(const Rows& r, const W* t, const W* a, int64_t entries)
      : rows(r),
        table(t),
        average(a),
        entries_per_feature(entries),
        large(!r.table_bits && r.n_features * entries * static_cast<int64_t>(sizeof(W)) > kPrefetchBytes) {}

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
      const int64_t first = row.index[k] * entries_per_feature;
      for (int64_t o = 0; o < entries_per_feature; o += line) {
        PREFETCH(table + first + o);
        if (average) PREFETCH(average + first + o);
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

// Fills slopes[0..n_outputs) from scores[0..n_outputs) and returns the row's loss.
static inline double losses_of_row(const Rows& rows, const Choices& c, int64_t row, const double* scores,
                                   double* slopes) {
  const int64_t n = rows.n_outputs;
  LossSum losses;
  if (c.target_kind == kSoftmax) {
    double top = scores[0], sum = 0;
    for (int64_t k = 1; k < n; ++k) top = scores[k] > top ? scores[k] : top;
    for (int64_t k = 0; k < n; ++k) sum += slopes[k] = exp(scores[k] - top);
    for (int64_t k = 0; k < n; ++k) slopes[k] /= sum;
    const int64_t label = static_cast<int64_t>(rows.y[row]);
    slopes[label] -= 1;
    return log(sum) + (top - scores[label]);
  }
  for (int64_t k = 0; k < n; ++k) {
    const double y = c.target_kind == kTargets ? rows.y[row * n + k]
                                               : (k == static_cast<int64_t>(rows.y[row]) ? 1.0 : -1.0);
    const LossAndSlope l = evaluate_loss<true>(c.loss, c.loss_parameter, scores[k], y);
    slopes[k] = l.slope;
    losses.add(1, l.value, l.factor);
  }
  return losses.total();
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

// ----------------------------------------------------------------------------------------------------------
// sgd

// What a weight is once it has paid the shrinkage owed; beyond the threshold nothing is owed (truncated
// gradient).
template <typename W>
static inline W settled(W v, double owed, double scale, double threshold) {
  const W shrunk = static_cast<W>(soft_threshold(static_cast<double>(v), owed));
  return fabs(static_cast<double>(v)) * scale > threshold ? v : shrunk;
}

// Pays all debts and brings P back to 1. The sum of the iterates moves from S v - u into u alone, and S
// starts again.
template <typename W>
static void settle_sgd(const Choices& c, const LinearState& s, int64_t n_features, int64_t n_outputs) {
  W* v = static_cast<W*>(s.v);
  W* u = static_cast<W*>(s.average);
  Clock& k = *s.clock;
  const W scale = static_cast<W>(k.scale);
  for (int64_t j = 0; j < n_features; ++j) {
    const double owed = s.shrunk ? k.shrink - s.shrunk[j] : 0.0;
    for (int64_t o = j * n_outputs; o < (j + 1) * n_outputs; ++o) {
      if (u) u[o] = static_cast<W>(u[o] - k.average_scale * v[o]);
      const W w = settled(v[o], owed, k.scale, c.threshold);
      v[o] = k.scale == 1.0 ? w : w * scale;
    }
    if (s.shrunk) s.shrunk[j] = 0;
  }
  k.average_scale = u ? 0 : k.average_scale / k.scale;
  k.shrink_debt *= k.scale;
  k.shrink = 0;
  k.scale = 1;
}

// Counts the sums behind the average in units of 2^bits more.
template <typename W>
static void change_average_unit(const LinearState& s, const Rows& rows, int bits) {
  W* u = static_cast<W*>(s.average);
  const double unit = ldexp(1.0, -bits);
  const int64_t entries = Layout(rows, 1).entries;
  for (int64_t o = 0; o < entries; ++o) u[o] *= static_cast<W>(unit);
  s.clock->average_scale *= unit;
  s.clock->average_weight *= unit;
}

// After the step: the penalty acts on P and Q, `mass` rows' worth; the average takes in the new iterate.
template <typename W>
static inline void advance(const Choices& c, const LinearState& s, const Rows& rows, double eta,
                           double mass) {
  Clock& k = *s.clock;
  const double decay = 1 / (1 + eta * c.l2 * mass);
  const double t_before = k.t;
  k.scale *= decay;
  k.t += mass;
  k.steps += 1;
  if (c.l1 > 0) {
    k.shrink_debt += decay * eta * c.l1 * mass / k.scale;
    if (c.shrink_period <= 1 || static_cast<int64_t>(k.steps) % c.shrink_period == 0) {
      k.shrink += k.shrink_debt;
      k.shrink_debt = 0;
    }
  }
  if (c.average != kNoAverage) {
    const int larger = average_unit(c, k.t) - average_unit(c, t_before);
    if (larger > 0) change_average_unit<W>(s, rows, larger);
    const double weight = mass * average_weight(c, k.t, eta);
    k.average_weight += weight;
    k.average_scale += weight * k.scale;
    for (int64_t o = 0; o < rows.n_outputs; ++o)
      s.bias_average[o] += weight / k.average_weight * (s.bias[o] - s.bias_average[o]);
  }
  // Rare, so that a pass over the table is cheap.
  if (k.scale < (c.average == kNoAverage ? kSmallestScale : kSmallestAveragedScale)) {
    if (rows.table_bits)
      settle_sgd<W>(c, s, table_entries(rows.table_bits), 1);
    else
      settle_sgd<W>(c, s, rows.n_features, rows.width);
  }
}

template <typename W, bool kMany>
static inline void settle_row(const Choices& c, const LinearState& s, const Row& row, int64_t n_outputs) {
  W* v = static_cast<W*>(s.v);
  const int64_t K = kMany ? n_outputs : 1;
  const double shrink = s.clock->shrink, scale = s.clock->scale;
  for (int64_t k = 0; k < row.n; ++k) {
    const int64_t j = row.index[k];
    const double owed = shrink - s.shrunk[j];
    for (int64_t o = 0; o < K; ++o) v[j * K + o] = settled(v[j * K + o], owed, scale, c.threshold);
    s.shrunk[j] = shrink;
  }
}

template <typename W>
static inline void add_active(W* v, const Spots<W>& spots, const int32_t* active, int64_t n_active,
                              const W* step) {
  for (int64_t e = 0; e < spots.n; ++e) {
    W* w = v + spots.at[e];
    for (int64_t a = 0; a < n_active; ++a) w[active[a]] += step[active[a]] * spots.x[e];
  }
}

// V[j][k] += step slope_k x_j, and U[j][k] += average_step slope_k x_j unless U is null. After a while most
// slopes of a hinge are zero, and only the others are visited.
template <typename W>
static inline void add_row_many(const Layout& layout, W* v, W* u, const Row& row, int64_t n_outputs,
                                const double* slopes, double step, double average_step) {
  Spots<W> spots;
  for (int64_t first = 0; first < n_outputs; first += kWindow) {
    const int64_t n = smaller(kWindow, n_outputs - first);
    W dv[kWindow], du[kWindow];
    int32_t active[kWindow];
    int64_t n_active = 0;
    for (int64_t k = 0; k < n; ++k) {
      dv[k] = static_cast<W>(step * slopes[first + k]);
      du[k] = static_cast<W>(average_step * slopes[first + k]);
      active[n_active] = static_cast<int32_t>(k);
      n_active += slopes[first + k] != 0;
    }
    for (int64_t e = 0; n_active > 0 && e < row.n; e += kSpots) {
      layout.find(row.index + e, row.value + e, smaller(kSpots, row.n - e), first / kWindow, spots);
      if (n_active * 4 > n) {
        run_window<AddVectors>(v, spots, n, dv);
        if (u) run_window<AddVectors>(u, spots, n, du);
      } else {
        add_active(v, spots, active, n_active, dv);
        if (u) add_active(u, spots, active, n_active, du);
      }
    }
  }
}

// Scores of a row under the current state, ready to be compared with its target.
template <typename W, bool kMany>
static inline bool score_row(const Layout& layout, const LinearState& s, const Row& row, int64_t n_outputs,
                             double scale, double* scores) {
  const W* v = static_cast<const W*>(s.v);
  if (kMany)
    dot_many(layout, v, row, n_outputs, scores);
  else
    scores[0] = dot(v, row);
  bool finite = true;
  for (int64_t k = 0; k < (kMany ? n_outputs : 1); ++k) {
    scores[k] = scale * scores[k] + s.bias[k];
    finite = finite && isfinite(scores[k]);
  }
  return finite;
}

template <typename W, bool kMany>
struct Sgd {
  static constexpr bool kOneOutput = !kMany;
  static constexpr int64_t kEntries = 1;
  typedef W Weight;
  const Rows& rows;
  const Choices& c;
  const LinearState& s;
  const Layout layout;
  double eta = 0;
  double step = 0;

  Sgd(const Rows& rows, const Choices& c, const LinearState& s) : rows(rows), c(c), s(s), layout(rows, 1) {}

  void begin() {
    eta = step_size(c, s.clock->t);
    step = -eta / s.clock->scale;  // in units of v
  }
  bool score(const Row& row, double* scores) const {
    if (s.shrunk) settle_row<W, kMany>(c, s, row, rows.width);
    return score_row<W, kMany>(layout, s, row, rows.n_outputs, s.clock->scale, scores);
  }
  void add(const Row& row, const double* slopes) const {
    W* v = static_cast<W*>(s.v);
    W* u = static_cast<W*>(s.average);
    if (kMany) {
      add_row_many(layout, v, u, row, rows.n_outputs, slopes, step, step * s.clock->average_scale);
    } else if (slopes[0] != 0) {
      if (u)
        add_row_twice(v, u, row, step * slopes[0], step * slopes[0] * s.clock->average_scale);
      else
        add_row(v, row, step * slopes[0]);
    }
  }
  void end(double mass) const { advance<W>(c, s, rows, eta, mass); }
};

// ------------------------------------------------------------------------------------------ adagrad and ftrl

// The two sums of a feature stand beside each other, [feature][sum, square][output], so that they share a
// cache line. Its weight is -soft(sum, t l1) / ((1 + sqrt(square)) / eta + t l2).
template <typename W>
struct AdaptiveWeight {
  W l1, l2, per_eta;

  W operator()(W sum, W square) const {
    return -soft_threshold(sum, l1) / ((1 + root(square)) * per_eta + l2);
  }

  // Sum of w_j x_j for one output.
  double dot(const W* sums, const Row& row) const {
    double score = 0;
    for (int64_t e = 0; e < row.n; ++e) {
      const W* sum = sums + 2 * static_cast<int64_t>(row.index[e]);
      score += static_cast<double>((*this)(sum[0], sum[1])) * row.value[e];
    }
    return score;
  }
};

#if defined(__AVX2__)
template <>
inline double AdaptiveWeight<float>::dot(const float* sums, const Row& row) const {
  const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1), zero = _mm256_setzero_ps();
  const __m256 shrink = _mm256_set1_ps(l1), decay = _mm256_set1_ps(l2), rate = _mm256_set1_ps(per_eta);
  __m256 score = zero;
  for (int64_t e = 0; e < row.n; e += 8) {
    const int64_t n = smaller(8, row.n - e);
    const __m256i mask = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - n));
    const __m256i j = _mm256_maskload_epi32(row.index + e, mask);
    const __m256 x = _mm256_maskload_ps(row.value + e, mask);
    const __m256 sum = _mm256_i32gather_ps(sums, j, 8), square = _mm256_i32gather_ps(sums + 1, j, 8);
    const __m256 left = _mm256_max_ps(_mm256_sub_ps(_mm256_andnot_ps(sign, sum), shrink), zero);
    const __m256 soft = _mm256_or_ps(left, _mm256_and_ps(sign, sum));
    const __m256 slow = _mm256_add_ps(_mm256_mul_ps(_mm256_add_ps(one, _mm256_sqrt_ps(square)), rate), decay);
    score = _mm256_fnmadd_ps(_mm256_div_ps(soft, slow), x, score);
  }
  return sum_lanes(score);
}
#endif

template <typename W, bool kProximal, bool kMany>
struct Adaptive {
  static constexpr bool kOneOutput = !kMany;
  static constexpr int64_t kEntries = 2;
  typedef W Weight;
  const Rows& rows;
  const Choices& c;
  const LinearState& s;
  const int64_t K;
  const Layout layout;
  double eta;
  AdaptiveWeight<W> weight = {0, 0, 0};

  Adaptive(const Rows& rows, const Choices& c, const LinearState& s)
      : rows(rows), c(c), s(s), K(kMany ? rows.n_outputs : 1), layout(rows, 2), eta(c.eta0) {}

  void begin() {
    const double t = s.clock->t;
    weight = {static_cast<W>(t * c.l1), static_cast<W>(t * c.l2), static_cast<W>(1 / eta)};
  }

  bool score(const Row& row, double* scores) const {
    const W* sums = static_cast<const W*>(s.v);
    if (!kMany) return isfinite(scores[0] = s.bias[0] + weight.dot(sums, row));
    bool finite = true;
    Spots<W> spots;
    for (int64_t first = 0; first < K; first += kWindow) {
      const int64_t n = smaller(kWindow, K - first);
      W total[kWindow] = {};
      for (int64_t e = 0; e < row.n; e += kSpots) {
        layout.find(row.index + e, row.value + e, smaller(kSpots, row.n - e), first / kWindow, spots);
        for (int64_t i = 0; i < spots.n; ++i) {
          const W *sum = sums + spots.at[i], *square = sum + layout.second;
          for (int64_t o = 0; o < n; ++o) total[o] += weight(sum[o], square[o]) * spots.x[i];
        }
      }
      for (int64_t o = 0; o < n; ++o) {
        scores[first + o] = s.bias[first + o] + static_cast<double>(total[o]);
        finite = finite && isfinite(scores[first + o]);
      }
    }
    return finite;
  }
  void add(const Row& row, const double* slopes) const {
    if (!kMany) {
      const W slope = static_cast<W>(slopes[0]);
      W* sums = static_cast<W*>(s.v);
      for (int64_t e = 0; slope != 0 && e < row.n; ++e) {
        W* sum = sums + 2 * static_cast<int64_t>(row.index[e]);
        grow(sum[0], sum[1], slope * static_cast<W>(row.value[e]));
      }
      return;
    }
    for (int64_t first = 0; first < K; first += kWindow)
      add_to(row, first, slopes + first, smaller(kWindow, K - first));
  }
  // The n outputs from `first` on, all in one window.
  void add_to(const Row& row, int64_t first, const double* slopes, int64_t n) const {
    W slope[kWindow];
    int64_t n_active = 0;
    for (int64_t o = 0; o < n; ++o) {
      slope[o] = static_cast<W>(slopes[o]);
      n_active += slopes[o] != 0;
    }
    Spots<W> spots;
    for (int64_t e = 0; n_active > 0 && e < row.n; e += kSpots) {
      layout.find(row.index + e, row.value + e, smaller(kSpots, row.n - e), first / kWindow, spots);
      for (int64_t i = 0; i < spots.n; ++i) {
        W* sum = static_cast<W*>(s.v) + spots.at[i];
        W* squares = sum + layout.second;
        if (n_active * 4 > n) {
          for (int64_t o = 0; o < n; ++o) grow(sum[o], squares[o], slope[o] * spots.x[i]);
        } else {
          for (int64_t o = 0; o < n; ++o)
            if (slope[o] != 0) grow(sum[o], squares[o], slope[o] * spots.x[i]);
        }
      }
    }
  }
  // The two sums of a weight take in the gradient g.
  void grow(W& sum, W& square, W g) const {
    const W grown = square + g * g;
    // sigma = (sqrt(grown) - sqrt(square)) / eta, written so that nothing cancels
    const W sigma = kProximal && g != 0 ? g * g / (root(grown) + root(square)) * weight.per_eta : 0;
    sum += kProximal ? g - sigma * weight(sum, square) : g;
    square = grown;
  }
  void end(double mass) const {
    s.clock->t += mass;
    s.clock->steps += 1;
  }
};

// ------------------------------------------------------------------------------------------------------------
// coin

// Four numbers a weight, [feature][sum of -g, sum of |g|, largest |g|, reward][output]. The weight bets the
// share sum / (largest (|g| so far + largest)) of its wealth, largest * eta0 + reward; there is no step size.
// Under L2 the pull l2 w of every row since the feature was last seen is left out but for the row at hand.
template <typename W, bool kMany>
struct Coin {
  static constexpr bool kOneOutput = !kMany;
  static constexpr int64_t kEntries = 4;
  typedef W Weight;
  const Rows& rows;
  const Choices& c;
  const LinearState& s;
  const int64_t K;
  double eta;

  Coin(const Rows& rows, const Choices& c, const LinearState& s)
      : rows(rows), c(c), s(s), K(kMany ? rows.n_outputs : 1), eta(c.eta0) {}

  void begin() {}
  W* coins(const Row& row, int64_t e) const {
    return static_cast<W*>(s.v) + row.index[e] * kEntries * rows.width;
  }
  W bet(const W* coin) const {
    const int64_t next = rows.width;
    const W largest = coin[2 * next];
    if (largest <= 0) return 0;
    const W pot = larger(coin[next] + largest, static_cast<W>(kLeastPot) * largest);
    return coin[0] / (largest * pot) * (largest * static_cast<W>(eta) + coin[3 * next]);
  }
  bool score(const Row& row, double* scores) const {
    for (int64_t o = 0; o < K; ++o) scores[o] = s.bias[o];
    for (int64_t e = 0; e < row.n; ++e) {
      const W* coin = coins(row, e);
      for (int64_t o = 0; o < K; ++o) scores[o] += static_cast<double>(bet(coin + o)) * row.value[e];
    }
    bool finite = true;
    for (int64_t o = 0; o < K; ++o) finite = finite && isfinite(scores[o]);
    return finite;
  }
  void add(const Row& row, const double* slopes) const {
    for (int64_t e = 0; e < row.n; ++e) {
      W* coin = coins(row, e);
      for (int64_t o = 0; o < K; ++o)
        if (slopes[o] != 0) toss(coin + o, static_cast<W>(slopes[o]) * row.value[e]);
    }
  }
  void toss(W* coin, W g) const {
    if (g == 0) return;
    const int64_t next = rows.width;
    const W w = bet(coin);
    g += static_cast<W>(c.l2) * w;
    const W size = g < 0 ? -g : g;
    coin[0] -= g;
    coin[next] += size;
    coin[2 * next] = larger(coin[2 * next], size);
    coin[3 * next] = larger(coin[3 * next] - w * g, W{0});
  }
  void end(double mass) const {
    s.clock->t += mass;
    s.clock->steps += 1;
  }
  static W larger(W a, W b) { return a > b ? a : b; }
};

// ------------------------------------------------------------------------------------------------------------
// learn

// Loss and slopes of a row from its scores; one output is the case that must be fast.
template <bool kOneOutput>
static inline LossAndSlope judge(const Rows& rows, const Choices& c, int64_t r, const double* scores,
                                 double* slopes) {
  if (!kOneOutput) return {losses_of_row(rows, c, r, scores, slopes), 0};
  const LossAndSlope l = evaluate_loss<true>(c.loss, c.loss_parameter, scores[0], rows.y[r]);
  slopes[0] = l.slope;
  return l;
}

// How much of a step eta on a row keeps it from passing the least loss of the row itself, for losses whose
// slope grows without bound: there a row far longer than the others would throw the weights out of range.
static inline double safe_share(const Rows& rows, const Choices& c, const Row& row, double eta) {
  const double curvature = c.loss == kSquared ? 1.0 : c.loss == kSquaredHinge ? 2.0 : 0.0;
  if (curvature == 0 || rows.table_bits) return 1;
  double square = 0;
  for (int64_t k = 0; k < row.n; ++k) square += static_cast<double>(row.value[k]) * row.value[k];
  const double reach = eta * curvature * square;
  return reach > 1 ? 1 / reach : 1;
}

// One pass of a rule over the rows, in batches: score at the same weights, add, then let the penalty act. The
// loss of a row counts before anything is learned from it. A row in trouble ends the pass, and its batch
// teaches nothing.
template <typename Rule>
static Outcome learn(const Rows& rows, const Choices& c, const LinearState& s) {
  const int64_t K = Rule::kOneOutput ? 1 : rows.n_outputs;
  double* slopes = s.scratch;
  double* scores = s.scratch + c.batch_size * K;
  Rule rule(rows, c, s);
  typedef typename Rule::Weight W;
  const Ahead<W> ahead(rows, static_cast<W*>(s.v), static_cast<W*>(s.average), Rule::kEntries * rows.width);
  LossSum losses;
  double weight_sum = 0;

  for (int64_t q = 0; q < rows.n; q += c.batch_size) {
    const int64_t n = smaller(c.batch_size, rows.n - q);
    const double repeats = repeats_for(c, weight_at(rows, row_at(rows, q)));
    for (double repeat = 0; repeat < repeats; ++repeat) {
      double mass = 0;
      rule.begin();
      for (int64_t i = 0; i < n; ++i) {
        const int64_t r = row_at(rows, q + i);
        const Row row = get_row(rows, r);
        const double weight = weight_at(rows, r) / repeats;
        double* slope = slopes + i * K;
        if (repeat == 0) {
          ahead.fetch(q + i);
          if (!indices_fit(row, rows.n_features)) return {q + i, kBadIndex, losses.total(), weight_sum};
        }
        if (weight == 0) {
          for (int64_t o = 0; o < K; ++o) slope[o] = 0;
          continue;
        }
        if (!rule.score(row, scores)) return {q + i, kNotFinite, losses.total(), weight_sum};
        if (repeat == 0) ahead.fetch_weights(q + i, 1);
        const LossAndSlope l = judge<Rule::kOneOutput>(rows, c, r, scores, slope);
        if (!isfinite(l.value)) return {q + i, kNotFinite, losses.total(), weight_sum};
        const double share =
            Rule::kEntries == 1 ? safe_share(rows, c, row, rule.eta * weight * static_cast<double>(n)) : 1;
        if (weight * share != 1)
          for (int64_t o = 0; o < K; ++o) slope[o] *= weight * share;
        mass += weight;
        if (repeat == 0) {
          losses.add(weight * repeats, l.value, l.factor);
          weight_sum += weight * repeats;
        }
      }
      if (mass == 0) continue;
      for (int64_t i = 0; i < n; ++i) {
        rule.add(get_row(rows, row_at(rows, q + i)), slopes + i * K);
        for (int64_t o = 0; o < K; ++o) move_bias(c, s, o, slopes[i * K + o], rule.eta);
      }
      rule.end(mass);
    }
  }
  return {rows.n, kFine, losses.total(), weight_sum};
}

// --------------------------------------------------------------------------------------------------------
// scores

template <typename W>
static int64_t scores(const Rows& rows, const void* weights, double scale, const double* bias,
                      double* scores) {
  const W* w = static_cast<const W*>(weights);
  const int64_t K = rows.n_outputs;
  const Ahead<W> ahead(rows, w, nullptr, rows.width);
  const Layout layout(rows, 1);
  const bool one = one_column(rows);
  for (int64_t q = 0; q < rows.n; ++q) {
    const Row row = get_row(rows, row_at(rows, q));
    ahead.fetch(q);
    ahead.fetch_weights(q, 1);
    if (!indices_fit(row, rows.n_features)) return q;
    if (one) {
      scores[q] = scale * dot(w, row) + bias[0];
      continue;
    }
    dot_many(layout, w, row, K, scores + q * K);
    for (int64_t k = 0; k < K; ++k) scores[q * K + k] = scale * scores[q * K + k] + bias[k];
  }
  return rows.n;
}

// Eight sums side by side, whatever the instruction set, so that the bits do not depend on it. (The square of
// a float is exact in double, with a fused addition or without.)
constexpr int64_t kNormLanes = 8;

template <typename W>
static int64_t add_norms(const W* w, int64_t n, double* absolutes, double* squares) {
  int64_t nonzeros = 0;
  for (int64_t k = 0; k < n; k += kNormLanes)
    for (int64_t lane = 0; lane < kNormLanes; ++lane) {
      const double x = static_cast<double>(w[k + lane]);
      absolutes[lane] += fabs(x);
      squares[lane] += x * x;
      nonzeros += x != 0;
    }
  return nonzeros;
}

#if defined(__AVX2__)
static inline __m256d add_four(__m128 w, __m256d absolute, __m256d& square) {
  const __m256d x = _mm256_cvtps_pd(w);
  square = _mm256_fmadd_pd(x, x, square);
  return _mm256_add_pd(absolute, _mm256_andnot_pd(_mm256_set1_pd(-0.0), x));
}

template <>
int64_t add_norms<float>(const float* w, int64_t n, double* absolutes, double* squares) {
  __m256d a = _mm256_loadu_pd(absolutes), b = _mm256_loadu_pd(absolutes + 4);
  __m256d c = _mm256_loadu_pd(squares), d = _mm256_loadu_pd(squares + 4);
  __m256i zeros = _mm256_setzero_si256();  // minus one for each; n is small
  for (int64_t k = 0; k < n; k += kNormLanes) {
    const __m256 x = _mm256_loadu_ps(w + k);
    const __m256 none = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ);
    zeros = _mm256_add_epi32(zeros, _mm256_castps_si256(none));
    a = add_four(_mm256_castps256_ps128(x), a, c);
    b = add_four(_mm256_extractf128_ps(x, 1), b, d);
  }
  _mm256_storeu_pd(absolutes, a);
  _mm256_storeu_pd(absolutes + 4, b);
  _mm256_storeu_pd(squares, c);
  _mm256_storeu_pd(squares + 4, d);
  int32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), zeros);
  int64_t nonzeros = n;
  for (int lane = 0; lane < 8; ++lane) nonzeros += lanes[lane];
  return nonzeros;
}
#endif

// Blocks are added up by themselves, so that large tables lose no digits.
template <typename W>
static Norms norms(const void* weights, int64_t n) {
  constexpr int64_t kBlock = 1 << 14;
  const W* w = static_cast<const W*>(weights);
  Norms total = {0, 0, 0};
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t size = smaller(kBlock, n - first), whole = size / kNormLanes * kNormLanes;
    double absolutes[kNormLanes] = {}, squares[kNormLanes] = {};
    total.nonzeros += add_norms(w + first, whole, absolutes, squares);
    W rest[kNormLanes] = {};
    for (int64_t k = whole; k < size; ++k) rest[k - whole] = w[first + k];
    total.nonzeros += add_norms(rest, kNormLanes, absolutes, squares);
    for (int64_t lane = 0; lane < kNormLanes; ++lane) {
      total.absolute += absolutes[lane];
      total.square += squares[lane];
    }
  }
  return total;
}

static void losses(int32_t loss, double parameter, int64_t n, const double* scores, const double* y,
                   double* values, double* slopes) {
  for (int64_t i = 0; i < n; ++i) {
    const LossAndSlope l = evaluate_loss(loss, parameter, scores[i], y[i]);
    values[i] = l.value;
    slopes[i] = l.slope;
  }
}

template <typename W>
static Outcome learn_sgd(const Rows& rows, const Choices& c, const LinearState& s) {
  return one_column(rows) ? learn<Sgd<W, false>>(rows, c, s) : learn<Sgd<W, true>>(rows, c, s);
}

template <typename W, bool kProximal>
static Outcome learn_adaptive(const Rows& rows, const Choices& c, const LinearState& s) {
  return one_column(rows) ? learn<Adaptive<W, kProximal, false>>(rows, c, s)
                          : learn<Adaptive<W, kProximal, true>>(rows, c, s);
}

template <typename W>
static Outcome learn_coin(const Rows& rows, const Choices& c, const LinearState& s) {
  return one_column(rows) ? learn<Coin<W, false>>(rows, c, s) : learn<Coin<W, true>>(rows, c, s);
}

#define STRINGIFY(x) #x
#define NAME_OF(x) STRINGIFY(x)

extern const KernelTable table;
const KernelTable table = {
    NAME_OF(STEEPEST_ISA),
    {learn_sgd<float>, learn_sgd<double>},
    {learn_adaptive<float, false>, learn_adaptive<double, false>},
    {learn_adaptive<float, true>, learn_adaptive<double, true>},
    {learn_coin<float>, learn_coin<double>},
    {scores<float>, scores<double>},
    {settle_sgd<float>, settle_sgd<double>},
    {norms<float>, norms<double>},
    losses,
};

}  // namespace STEEPEST_ISA
}  // namespace steepest
