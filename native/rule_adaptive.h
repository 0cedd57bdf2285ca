// SPDX-License-Identifier: Apache-2.0
// adagrad: dual averaging, w = -soft(sum g, t l1) / ((1 + sqrt(sum g^2)) / eta + t l2), computed where it is
// needed. ftrl: FTRL-Proximal (McMahan et al. 2013), the same with sigma w taken from the sum at every
// change.
#pragma once
#include "linear_rows.h"

namespace steepest {
namespace STEEPEST_ISA {

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
      : rows(rows), c(c), s(s), K(kMany ? rows.n_outputs : 1), layout(rows), eta(c.eta0) {}

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

}  // namespace STEEPEST_ISA
}  // namespace steepest
