// SPDX-License-Identifier: Apache-2.0
// One block of a matrix by stochastic gradients, as fast as the rows can be moved.
//
// A step for each row, eta / sqrt(G), is taken from the row's sum of squared slopes G when the block begins
// and stays until it ends. An entry then only adds to G: g^2 times the other row's mean square for the
// factors, g^2 for the bias. Roots, divisions and sums of squares at each visit would take as long as all the
// rest.
#include <math.h>

#include "factor_rows.h"
#include "losses.h"

namespace steepest {
namespace STEEPEST_ISA {

static void set_steps(const Table& table, int64_t first, int64_t last, const FactorChoices& c) {
  for (int64_t i = first; i < last; ++i) {
    float *row = row_of(table, static_cast<int32_t>(i), table.padded), *tail = row + table.padded;
    tail[kStep] = c.adaptive ? c.eta / sqrtf(tail[kSquares]) : c.eta;
    tail[kBiasStep] = c.adaptive ? c.eta / sqrtf(tail[kBiasSquares]) : c.eta;
    tail[kMeanSquare] = dot(row, row, table.padded) / static_cast<float>(c.rank);
  }
}

// The factors of both rows, held in registers or on the stack between the score and the step.
template <int64_t kFixed>
struct Pair {
  Eight p[kFixed / 8], q[kFixed / 8];

  ALWAYS_INLINE Pair(const float* user, const float* item, int64_t) {
    for (int64_t j = 0; j < kFixed / 8; ++j) {
      p[j] = load(user + 8 * j);
      q[j] = load(item + 8 * j);
    }
  }
  ALWAYS_INLINE float product() const {
    Eight even = all(0), odd = all(0);
    for (int64_t j = 0; j < kFixed / 8; ++j)
      if (j % 2)
        odd = fma(p[j], q[j], odd);
      else
        even = fma(p[j], q[j], even);
    return sum(add(even, odd));
  }
  ALWAYS_INLINE void move(float* user, float* item, Eight keep_p, Eight keep_q, Eight step_p,
                          Eight step_q) const {
    for (int64_t j = 0; j < kFixed / 8; ++j) {
      store(user + 8 * j, fnma(step_p, q[j], mul(keep_p, p[j])));
      store(item + 8 * j, fnma(step_q, p[j], mul(keep_q, q[j])));
    }
  }
};

// Ranks that are not compiled in: rows are read twice.
template <>
struct Pair<0> {
  const float *p, *q;
  int64_t padded;

  ALWAYS_INLINE Pair(const float* user, const float* item, int64_t n) : p(user), q(item), padded(n) {}
  ALWAYS_INLINE float product() const { return dot(p, q, padded); }
  ALWAYS_INLINE void move(float* user, float* item, Eight keep_p, Eight keep_q, Eight step_p,
                          Eight step_q) const {
    for (int64_t j = 0; j < padded; j += 8) {
      const Eight old_p = load(p + j), old_q = load(q + j);
      store(user + j, fnma(step_p, old_q, mul(keep_p, old_p)));
      store(item + j, fnma(step_q, old_p, mul(keep_q, old_q)));
    }
  }
};

static ALWAYS_INLINE void move_bias(float* tail, float g, float l2) {
  tail[kBias] -= tail[kBiasStep] * (g + l2 * tail[kBiasShrink] * tail[kBias]);
}

template <int64_t kFixed, bool kSquaredLoss>
static FactorOutcome learn_entries(const Entries& entries, const Table& users, const Table& items,
                                   const FactorChoices& choices) {
  const FactorChoices c = choices;  // a copy, which no store can reach
  const int64_t padded = kFixed ? kFixed : users.padded, length = padded + kTail;
  double loss_sum = 0;
  for (int64_t t = 0; t < entries.n; ++t) {
    if (t + kAhead < entries.n) {
      prefetch_row(row_of(users, entries.users[t + kAhead], padded), length);
      prefetch_row(row_of(items, entries.items[t + kAhead], padded), length);
    }
    if (outside(entries.users[t], users.n) || outside(entries.items[t], items.n))
      return {loss_sum, t, kUnknownRow};
    float *p = row_of(users, entries.users[t], padded), *q = row_of(items, entries.items[t], padded);
    float *user = p + padded, *item = q + padded;
    const Pair<kFixed> pair(p, q, padded);
    const float score = pair.product() + (c.mean + (user[kBias] + item[kBias]));
    const float weight = entries.weights ? entries.weights[t] : 1.0f;
    float g;
    if (kSquaredLoss) {
      g = score - entries.values[t];
      loss_sum += 0.5f * weight * (g * g);
    } else {
      const LossAndSlope loss = evaluate_loss(c.loss, 0, score, entries.values[t]);
      g = static_cast<float>(loss.slope);
      loss_sum += weight * loss.value;
    }
    g *= weight;
    const float square = g * g;
    if (!(square <= 1e36f)) return {loss_sum, t, kOverflow};
    const float step_p = user[kStep], step_q = item[kStep];
    pair.move(p, q, all(1 - step_p * (c.l2 * user[kShrink])), all(1 - step_q * (c.l2 * item[kShrink])),
              all(step_p * g), all(step_q * g));
    user[kSquares] += square * item[kMeanSquare];
    item[kSquares] += square * user[kMeanSquare];
    if (c.biases) {
      move_bias(user, g, c.l2_bias);
      move_bias(item, g, c.l2_bias);
      user[kBiasSquares] += square;
      item[kBiasSquares] += square;
    }
  }
  return {loss_sum, entries.n, kAllFine};
}

FactorOutcome sgd_block(const Entries& entries, const Stripes& stripes, const Table& users,
                        const Table& items, const FactorChoices& c) {
  set_steps(users, stripes.first_user, stripes.last_user, c);
  set_steps(items, stripes.first_item, stripes.last_item, c);
#define RANK(padded)                                                                  \
  case padded:                                                                        \
    return c.loss == kSquared ? learn_entries<padded, true>(entries, users, items, c) \
                              : learn_entries<padded, false>(entries, users, items, c);
  switch (users.padded) {
    FIXED_RANKS(RANK)
    default:
      return c.loss == kSquared ? learn_entries<0, true>(entries, users, items, c)
                                : learn_entries<0, false>(entries, users, items, c);
  }
#undef RANK
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
