// SPDX-License-Identifier: Apache-2.0
// coin: coin betting (Orabona and Tommasi 2017), each weight is a share of what its earlier bets have won.
#pragma once
#include "linear/linear_rows.h"

namespace steepest {
namespace STEEPEST_ISA {

// Early bets are small: at most one part in so many of the wealth for each gradient of full size.
constexpr double kLeastPot = 10;

// Four numbers per weight, [feature][sum of -g, sum of |g|, largest |g|, reward][output]. The weight bets the
// share sum / (largest (|g| so far + largest)) of its wealth, largest * eta0 + reward; there is no step size.
// Under L2 the pull l2 w of every row since the feature was last seen is left out except for the current row.
template <typename W, bool kMany>
struct Coin {
  static constexpr bool kOneOutput = !kMany;
  static constexpr bool kTimes = false;
  static constexpr int64_t kEntries = 4;
  typedef W Weight;
  const LinearChoices& c;
  const LinearState& s;
  const int64_t K;
  double eta;

  Coin(const LinearChoices& c, const LinearState& s)
      : c(c), s(s), K(kMany ? s.shape.n_outputs : 1), eta(c.eta0) {}

  void begin() {}
  W* coins(const Row& row, int64_t e) const { return static_cast<W*>(s.v) + row.index[e] * s.shape.stride; }
  W bet(const W* coin) const {
    const int64_t next = s.shape.width;
    const W largest = coin[2 * next];
    if (largest <= 0) return 0;
    const W pot = larger(coin[next] + largest, static_cast<W>(kLeastPot) * largest);
    return coin[0] / (largest * pot) * (largest * static_cast<W>(eta) + coin[3 * next]);
  }
  Status score(const Row& row, double* scores) const {
    if (!indices_fit(row, s.shape.n_features)) return kBadIndex;
    for (int64_t o = 0; o < K; ++o) scores[o] = s.bias[o];
    for (int64_t e = 0; e < row.n; ++e) {
      const W* coin = coins(row, e);
      for (int64_t o = 0; o < K; ++o) scores[o] += static_cast<double>(bet(coin + o)) * row.value[e];
    }
    bool finite = true;
    for (int64_t o = 0; o < K; ++o) finite = finite && isfinite(scores[o]);
    return finite ? kFine : kNotFinite;
  }
  // Whether all coins are still finite.
  bool add(const Row& row, const double* gradients) const {
    W zero = 0;
    for (int64_t e = 0; e < row.n; ++e) {
      W* coin = coins(row, e);
      for (int64_t o = 0; o < K; ++o)
        if (gradients[o] != 0) zero += toss(coin + o, static_cast<W>(gradients[o]) * row.value[e]);
    }
    return zero == 0;
  }
  // Zero, or NaN if one of the numbers has overflowed.
  W toss(W* coin, W g) const {
    if (g == 0) return 0;
    const int64_t next = s.shape.width;
    const W w = bet(coin);
    g += static_cast<W>(c.l2) * w;
    const W size = g < 0 ? -g : g;
    coin[0] -= g;
    coin[next] += size;
    coin[2 * next] = larger(coin[2 * next], size);
    coin[3 * next] = larger(coin[3 * next] - w * g, W{0});
    return (coin[0] + coin[next] + coin[3 * next]) * 0;
  }
  void end(double mass) const {
    s.clock->t += mass;
    s.clock->steps += 1;
  }
  static W larger(W a, W b) { return a > b ? a : b; }
};

}  // namespace STEEPEST_ISA
}  // namespace steepest
