// SPDX-License-Identifier: Apache-2.0
// adagrad: dual averaging, w = -soft(sum g, t l1) / ((1 + sqrt(sum g^2)) / eta + t l2), computed where it is
// needed. ftrl: FTRL-Proximal (McMahan et al. 2013), the same with sigma w taken from the sum at every
// change.
#pragma once
#include "linear/linear_rows.h"

namespace steepest {
namespace STEEPEST_ISA {

// The two sums of a feature are neighbours, [feature][sum, square][output], so that they share a
// cache line. Its weight is -soft(sum, t l1) / ((1 + sqrt(square)) / eta + t l2). Sums that forget are larger
// by a growth G: all is multiplied by it, and `one` is the root of G, which `per_eta` has as a factor too.
template <typename W>
struct AdaptiveWeight {
  W l1, l2, per_eta, one;

  W operator()(W sum, W square) const {
    return -soft_threshold(sum, l1) / ((one + root(square)) * per_eta + l2);
  }

  // Whether all indices are below n_features; if so, the sum of w_j x_j for one output.
  bool dot_if_fits(const W* sums, const Row& row, int64_t n_features, double& score) const {
    if (!indices_fit(row, n_features)) return false;
    score = 0;
    for (int64_t e = 0; e < row.n; ++e) {
      const W* sum = sums + 2 * static_cast<int64_t>(row.index[e]);
      score += static_cast<double>((*this)(sum[0], sum[1])) * row.value[e];
    }
    return true;
  }
};

#if defined(__AVX2__)
// An index beyond the last is taken for it, see gather_dot.
template <>
inline bool AdaptiveWeight<float>::dot_if_fits(const float* sums, const Row& row, int64_t n_features,
                                               double& score) const {
  score = 0;
  if (n_features <= 0) return row.n == 0;
  const __m256i limit = _mm256_set1_epi32(static_cast<int32_t>(n_features - 1));
  __m256i largest = limit;
  const Float8 sign = all(-0.0f), shrink = all(l1), slower = all(l2), rate = all(per_eta), first = all(one);
  Float8 products = all(0.0f);
  for (int64_t e = 0; e < row.n; e += 8) {
    const __m256i mask = lanes_on(smaller(8, row.n - e));
    const __m256i index = _mm256_maskload_epi32(row.index + e, mask), j = _mm256_min_epu32(index, limit);
    largest = _mm256_max_epu32(largest, index);
    const Float8 x = _mm256_maskload_ps(row.value + e, mask);
    const Float8 total = _mm256_i32gather_ps(sums, j, 8), square = _mm256_i32gather_ps(sums + 1, j, 8);
    const Float8 left = max(sub(_mm256_andnot_ps(sign, total), shrink), all(0.0f));
    const Float8 soft = _mm256_or_ps(left, _mm256_and_ps(sign, total));
    const Float8 slow = add(mul(add(first, _mm256_sqrt_ps(square)), rate), slower);
    products = fnma(_mm256_div_ps(soft, slow), x, products);
  }
  score = sum(products);
  return _mm256_movemask_epi8(_mm256_cmpeq_epi32(largest, limit)) == -1;
}

// Sum and square of each feature take in g and g^2 as one pair: one store and one test for both. Whether all
// are still finite. `zero` is NaN after an overflow; `other` takes turns with it, since a chain of additions
// over all features would be what takes longest.
template <bool kForgets>
static inline bool grow_pairs(const Row& row, float* sums, float gradient, float gain) {
  const __m128 none = _mm_setzero_ps(), weight = _mm_set1_ps(gain);
  __m128 zero = none, other = none;
  for (int64_t e = 0; e < row.n; ++e) {
    __m128i* pair = reinterpret_cast<__m128i*>(sums + 2 * static_cast<int64_t>(row.index[e]));
    const __m128 g = _mm_set_ss(gradient * row.value[e]);
    const __m128 both = _mm_unpacklo_ps(g, _mm_mul_ss(g, g));
    const __m128 before = _mm_castsi128_ps(_mm_loadl_epi64(pair));
    const __m128 grown = _mm_add_ps(before, kForgets ? _mm_mul_ps(weight, both) : both);
    _mm_storel_epi64(pair, _mm_castps_si128(grown));
    const __m128 next = _mm_fmadd_ps(grown, none, other);
    other = zero;
    zero = next;
  }
  return _mm_movemask_ps(_mm_cmpneq_ps(_mm_add_ps(zero, other), none)) == 0;
}
#endif

template <typename W, bool kProximal, bool kMany, bool kForgets>
struct Adaptive {
  static constexpr bool kOneOutput = !kMany;
  static constexpr bool kTimes = kForgets;
  static constexpr int64_t kEntries = 2;
  typedef W Weight;
  const LinearChoices& c;
  const LinearState& s;
  const int64_t K;
  const Layout layout;
  double eta;
  AdaptiveWeight<W> weight = {0, 0, 0, 1};
  W gain = 1;  // what a new gradient counts beside the old sums

  Adaptive(const LinearChoices& c, const LinearState& s)
      : c(c), s(s), K(kMany ? s.shape.n_outputs : 1), layout(s.shape), eta(c.eta0) {}

  void begin() {
    double t = s.clock->t, one = 1;
    if (kForgets) {
      const double grown = growth_of(c, s);
      gain = static_cast<W>(s.ages ? grown : grown / kept_after(c, 1));  // that of a row that ends one later
      t = grown * effect_of<true>(c, s);
      one = sqrt(grown);
    }
    weight = {static_cast<W>(t * c.l1), static_cast<W>(t * c.l2), static_cast<W>(one / eta),
              static_cast<W>(one)};
  }

  Status score(const Row& row, double* scores) const {
    const W* sums = static_cast<const W*>(s.v);
    if (!kMany) {
      if (!weight.dot_if_fits(sums, row, s.shape.n_features, scores[0])) return kBadIndex;
      return isfinite(scores[0] += s.bias[0]) ? kFine : kNotFinite;
    }
    if (!indices_fit(row, s.shape.n_features)) return kBadIndex;
    score_many<W>(layout, row, K, scores, [&](const Spots<W>& spots, int64_t n, W* total) {
      for (int64_t i = 0; i < spots.n; ++i) {
        const W *sum = sums + spots.at[i], *square = sum + layout.second;
        for (int64_t o = 0; o < n; ++o) total[o] += weight(sum[o], square[o]) * spots.x[i];
      }
    });
    return add_biases(K, 1.0, s.bias, scores);
  }
  // Whether all sums are still finite.
  bool add(const Row& row, const double* gradients) const {
    if (!kMany) {
      const W gradient = static_cast<W>(gradients[0]);
      return gradient == 0 || add_one(row, static_cast<W*>(s.v), gradient);
    }
    W zero = 0;
    for (int64_t first = 0; first < K; first += kWindow)
      zero += add_to(row, first, gradients + first, smaller(kWindow, K - first));
    return zero == 0;
  }
  // The only output.
  bool add_one(const Row& row, W* sums, W gradient) const {
#if defined(__AVX2__)
    if constexpr (!kProximal && sizeof(W) == sizeof(float))
      return grow_pairs<kForgets>(row, sums, gradient, gain);
#endif
    W zero = 0;
    for (int64_t e = 0; e < row.n; ++e) {
      W* sum = sums + 2 * static_cast<int64_t>(row.index[e]);
      zero += grow(sum[0], sum[1], gradient * static_cast<W>(row.value[e]));
    }
    return zero == 0;
  }
  // The n outputs from `first` on, all in one window; zero, or NaN if a sum has overflowed.
  W add_to(const Row& row, int64_t first, const double* gradients, int64_t n) const {
    W gradient[kWindow];
    int64_t n_active = 0;
    for (int64_t o = 0; o < n; ++o) {
      gradient[o] = static_cast<W>(gradients[o]);
      n_active += gradients[o] != 0;
    }
    if (n_active == 0) return 0;
    W zeros[kWindow] = {};
    layout.each<W>(row, first / kWindow, [&](const Spots<W>& spots) {
      for (int64_t i = 0; i < spots.n; ++i) {
        W* sum = static_cast<W*>(s.v) + spots.at[i];
        W* squares = sum + layout.second;
        if (n_active * 4 > n) {
          for (int64_t o = 0; o < n; ++o) zeros[o] += grow(sum[o], squares[o], gradient[o] * spots.x[i]);
        } else {
          for (int64_t o = 0; o < n; ++o)
            if (gradient[o] != 0) zeros[o] += grow(sum[o], squares[o], gradient[o] * spots.x[i]);
        }
      }
    });
    W zero = 0;
    for (int64_t o = 0; o < n; ++o) zero += zeros[o];
    return zero;
  }
  // The two sums of a weight take in the gradient g; zero, or NaN if one of them has overflowed.
  W grow(W& sum, W& square, W g) const {
    const W grown = kForgets ? square + gain * (g * g) : square + g * g;
    // sigma = (sqrt(grown) - sqrt(square)) / eta, written so that nothing cancels; g^2 may vanish beside g
    const W sigma = kProximal && grown != 0 ? g * g / (root(grown) + root(square)) * weight.per_eta : 0;
    sum += kProximal ? g - sigma * weight(sum, square) : kForgets ? gain * g : g;
    square = grown;
    return (sum + square) * 0;
  }
  // Before the clock moves.
  void forget(double mass) const {
    if (s.ages) {
      s.ages->effect += mass;
      return;
    }
    forget_biases(s, kept_after(c, mass));
    change_unit(change_of_unit(c, s.clock->t, s.clock->t + mass));
  }
  // Time passes before a row is scored.
  void pass_time(double time) const { change_unit(forget_until(c, s, time)); }
  void change_unit(double change) const {
    if (change == 1) return;
    W* v = static_cast<W*>(s.v);
    const W unit = static_cast<W>(change);
    each_entry(s.shape, [&](int64_t, int64_t o) {
      v[o] *= unit;
      v[o + layout.second] *= unit;
    });
  }
  void end(double mass) const {
    if (kForgets) forget(mass);
    s.clock->t += mass;
    s.clock->steps += 1;
  }
};

}  // namespace STEEPEST_ISA
}  // namespace steepest
