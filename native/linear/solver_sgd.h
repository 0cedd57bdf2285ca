// SPDX-License-Identifier: Apache-2.0
// sgd: w <- prox(w - eta g x), with w = P v and P the product of 1 / (1 + eta l2), so that L2 costs one
// multiplication per step; L1 adds to a running total Q, and a feature pays what it owes when it is next seen
// (Q - its clock). The average of the iterates is (S v - u) / C, with u += S dv, so that it costs one more
// array, not a pass.
#pragma once
#include "linear/linear_rows.h"
#include "linear/schedules.h"

namespace steepest {
namespace STEEPEST_ISA {

// v[j] += step x_j and u[j] += average_step x_j, where u[j] is behind v[j].
template <typename W>
static inline void add_to_pairs(W* v, const Row& row, double step, double average_step) {
  const W s = static_cast<W>(step), a = static_cast<W>(average_step);
  for (int64_t k = 0; k < row.n; ++k) {
    const W x = static_cast<W>(row.value[k]);
    W* const pair = v + 2 * static_cast<int64_t>(row.index[k]);
    pair[0] += s * x;
    pair[1] += a * x;
  }
}

#if defined(__AVX2__)
template <>
inline void add_to_pairs<float>(float* v, const Row& row, double step, double average_step) {
  const float s = static_cast<float>(step), a = static_cast<float>(average_step);
  const __m128 steps = _mm_setr_ps(s, a, 0, 0);
  for (int64_t k = 0; k < row.n; ++k) {
    double* const pair = reinterpret_cast<double*>(v + 2 * static_cast<int64_t>(row.index[k]));
    const __m128 change = _mm_mul_ps(steps, _mm_set1_ps(row.value[k]));
    const __m128 moved = _mm_add_ps(_mm_castpd_ps(_mm_load_sd(pair)), change);
    _mm_store_sd(pair, _mm_castps_pd(moved));
  }
}
#endif

// What a weight is once it has paid the shrinkage owed; a truncated gradient leaves large ones alone.
template <typename W>
static inline W penalized(W v, double owed, double scale, double truncate_below) {
  const W shrunk = static_cast<W>(soft_threshold(static_cast<double>(v), owed));
  return fabs(static_cast<double>(v)) * scale > truncate_below ? v : shrunk;
}

// Pays all debts and brings P back to 1. The sum of the iterates moves from S v - u into u alone, and S
// starts again.
template <typename W>
static void apply_penalty(const LinearChoices& c, const LinearState& s) {
  W* v = static_cast<W*>(s.v);
  W* u = static_cast<W*>(s.average);
  Clock& k = *s.clock;
  const W scale = static_cast<W>(k.scale);
  each_entry(s.shape, [&](int64_t j, int64_t o) {
    if (u) u[o] = static_cast<W>(u[o] - k.average_scale * v[o]);
    const W w = penalized(v[o], s.shrunk ? k.shrink - s.shrunk[j] : 0.0, k.scale, c.truncate_below);
    v[o] = k.scale == 1.0 ? w : w * scale;
  });
  for (int64_t j = 0; s.shrunk && j < s.shape.n_features; ++j) s.shrunk[j] = 0;
  k.average_scale = u ? 0 : k.average_scale / k.scale;
  k.shrink_debt *= k.scale;
  k.shrink = 0;
  k.scale = 1;
}

// The sums behind the average in another unit.
template <typename W>
static void change_average_unit(const LinearState& s, double unit) {
  W* u = static_cast<W*>(s.average);
  each_entry(s.shape, [&](int64_t, int64_t o) { u[o] *= static_cast<W>(unit); });
  s.clock->average_scale *= unit;
  s.clock->average_weight *= unit;
}

// After a step of `mass` rows: the penalty acts, and the averages take in the new iterate.
template <typename W, bool kForgets>
static inline void advance(const LinearChoices& c, const LinearState& s, double eta, double mass) {
  Clock& k = *s.clock;
  const double in_effect = effect_of<kForgets>(c, s, mass);
  const int unit = average_unit(c, in_effect);
  const int larger = unit - average_unit(c, effect_of<kForgets>(c, s));
  if (kForgets ? larger != 0 : larger > 0) change_average_unit<W>(s, ldexp(1.0, -larger));
  if (kForgets && !s.ages) {
    forget_biases(s, kept_after(c, mass));
    const double change = change_of_unit(c, k.t, k.t + mass);
    if (c.average != kNoAverage && change != 1) change_average_unit<W>(s, change);
  }
  double weight = iterate_weight(c, eta, mass, unit ? ldexp(1.0, -unit) : 1.0, in_effect);
  if (kForgets) weight *= s.ages ? growth(c, s.ages->now) : growth(c, k.t + mass);
  advance_clock(c, eta, mass, weight, k);
  if (kForgets && s.ages) s.ages->effect = in_effect;
  if (c.average != kNoAverage)
    for (int64_t o = 0; o < s.shape.n_outputs; ++o)
      s.bias_average[o] += weight / k.average_weight * (s.bias[o] - s.bias_average[o]);
  // Rare, so that a pass over the table is cheap.
  if (k.scale < smallest_scale(c)) apply_penalty<W>(c, s);
}

// Time passes before a row is scored: what was learned counts less, the averages too.
template <typename W>
static inline void pass_time(const LinearChoices& c, const LinearState& s, double time) {
  const int unit = average_unit(c, s.ages->effect);
  double change = forget_until(c, s, time);
  if (c.average == kNoAverage) return;
  change *= ldexp(1.0, unit - average_unit(c, s.ages->effect));
  if (change != 1) change_average_unit<W>(s, change);
}

template <typename W, bool kMany>
static inline void apply_penalty_to_row(const LinearChoices& c, const LinearState& s, const Row& row) {
  const int64_t K = kMany ? s.shape.n_outputs : 1;
  const double shrink = s.clock->shrink, scale = s.clock->scale;
  for (int64_t k = 0; k < row.n; ++k) {
    const int64_t j = row.index[k];
    const double owed = shrink - s.shrunk[j];
    W* v = static_cast<W*>(s.v) + j * s.shape.stride;
    for (int64_t o = 0; o < K; ++o) v[o] = penalized(v[o], owed, scale, c.truncate_below);
    s.shrunk[j] = shrink;
  }
}

// What a row adds to the weights of a window: a number for each of its outputs, and which are not zero. After
// a while most gradients of a hinge are zero, and only the others are visited.
template <typename W>
struct Steps {
  W by_output[kWindow];
  int32_t active[kWindow];
  int64_t n, n_active = 0;

  Steps(const double* gradients, int64_t n, double step) : n(n) {
    for (int64_t k = 0; k < n; ++k) {
      by_output[k] = static_cast<W>(step * gradients[k]);
      active[n_active] = static_cast<int32_t>(k);
      n_active += gradients[k] != 0;
    }
  }
  bool dense() const { return n_active * 4 > n; }

  void add_to(W* v, const Spots<W>& spots) const {
    if (dense()) return run_window<AddVectors>(v, spots, n, by_output);
    for (int64_t e = 0; e < spots.n; ++e) {
      W* w = v + spots.at[e];
      for (int64_t a = 0; a < n_active; ++a) w[active[a]] += by_output[active[a]] * spots.x[e];
    }
  }
  // Inlined by force, see Ahead.
  ALWAYS_INLINE void fetch(const W* v, const Spots<W>& spots) const {
    constexpr int64_t line = 64 / sizeof(W);
    for (int64_t e = 0; e < spots.n; ++e) {
      const W* w = v + spots.at[e];
      for (int64_t k = 0; dense() && k < n; k += line) PREFETCH(w + k);
      for (int64_t a = 0; !dense() && a < n_active; ++a) PREFETCH(w + active[a]);
    }
  }
};

// V[j][k] += step gradient_k x_j, and U[j][k] += average_step gradient_k x_j unless U is null. Of U nothing
// is read to score a row, so that it is fetched here, where the outputs to move are known, while V is moved.
template <typename W>
static inline void add_row_many(const Layout& layout, W* v, W* u, const Row& row, int64_t n_outputs,
                                const double* gradients, double step, double average_step, bool fetch) {
  for (int64_t first = 0; first < n_outputs; first += kWindow) {
    const int64_t n = smaller(kWindow, n_outputs - first), window = first / kWindow;
    const Steps<W> steps(gradients + first, n, step);
    if (steps.n_active == 0) continue;
    layout.each<W>(row, window, [&](const Spots<W>& spots) {
      if (u && fetch) steps.fetch(u, spots);
      steps.add_to(v, spots);
    });
    if (!u) continue;
    const Steps<W> average_steps(gradients + first, n, average_step);
    layout.each<W>(row, window, [&](const Spots<W>& spots) { average_steps.add_to(u, spots); });
  }
}

// kPaired: of a single output, u[j] is behind v[j].
template <typename W, bool kMany, bool kPaired, bool kForgets>
struct Sgd {
  static constexpr bool kOneOutput = !kMany;
  static constexpr bool kTimes = kForgets;
  static constexpr int64_t kEntries = 1;
  typedef W Weight;
  const LinearChoices& c;
  const LinearState& s;
  const Layout layout;
  const bool large;
  double eta = 0;
  double step = 0;

  Sgd(const LinearChoices& c, const LinearState& s)
      : c(c), s(s), layout(s.shape), large(is_large<W>(s.shape)) {}

  void pass_time(double time) const { STEEPEST_ISA::pass_time<W>(c, s, time); }
  void begin() {
    eta = step_size(c, effect_of<kForgets>(c, s));
    step = -eta / s.clock->scale;  // in units of v
  }
  Status score(const Row& row, double* scores) const {
    const W* v = static_cast<const W*>(s.v);
    if ((kMany || s.shrunk) && !indices_fit(row, s.shape.n_features)) return kBadIndex;
    if (s.shrunk) apply_penalty_to_row<W, kMany>(c, s, row);
    if (kMany)
      dot_many(layout, v, row, s.shape.n_outputs, scores);
    else if (!dot_if_fits<kPaired ? 2 : 1>(v, row, s.shape.n_features, scores[0]))
      return kBadIndex;
    return add_biases(kMany ? s.shape.n_outputs : 1, s.clock->scale, s.bias, scores);
  }
  // Whether the step is finite; weights that overflow show in the scores, or at the end of the epoch.
  bool add(const Row& row, const double* gradients) const {
    W* v = static_cast<W*>(s.v);
    W* u = static_cast<W*>(s.average);
    if (kMany) {
      add_row_many(layout, v, u, row, s.shape.n_outputs, gradients, step, step * s.clock->average_scale,
                   large);
    } else if (gradients[0] != 0) {
      const double own = step * gradients[0], average_step = own * s.clock->average_scale;
      if (kPaired) {
        add_to_pairs(v, row, own, average_step);
      } else {
        add_row(v, row, own);
        if (u) add_row(u, row, average_step);
      }
      return isfinite(own);
    }
    return true;
  }
  void end(double mass) const { advance<W, kForgets>(c, s, eta, mass); }
};

}  // namespace STEEPEST_ISA
}  // namespace steepest
