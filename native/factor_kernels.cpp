// SPDX-License-Identifier: Apache-2.0
// Matrix factorization: score(u, i) = mean + b_u + b_i + p_u q_i.
//
// sgd    one visit of each known entry: p -= eta_p (g q + l2 p), q -= eta_q (g p + l2 q), both from the old
//        values, with steps eta / sqrt(G), G the row's sum of mean squared slopes (after Chin et al. 2015).
// bpr    the same for pairs of a liked and another item: loss log(1 + exp(-(score_ui - score_uj))).
// kl     a row's multiplicative steps for sum of v log(v / s) - v + s (Lee and Seung 2001).
//
// This file is compiled once per instruction set (STEEPEST_ISA names the namespace). It must not use standard
// library templates: the linker may keep the copy of an inline function that old processors cannot run.
#include <math.h>

#include "factor_als.h"
#include "factor_rows.h"
#include "factor_top.h"
#include "losses.h"

namespace steepest {
namespace STEEPEST_ISA {

// Towards zero by `amount`, and not below zero if that is the floor.
static ALWAYS_INLINE Eight shrunk(Eight value, Eight amount, bool nonnegative) {
  const Eight zero = all(0);
  const Eight positive = larger(add(value, mul(all(-1), amount)), zero);
  return nonnegative ? positive : add(positive, smaller(add(value, amount), zero));
}

static ALWAYS_INLINE float shrunk(float value, float amount) {
  return value > amount ? value - amount : value < -amount ? value + amount : 0;
}

// ------------------------------------------------------------------------------------------------------- sgd

// The steps of one entry.
struct Steps {
  float user, item, user_bias, item_bias;
};

static ALWAYS_INLINE Steps steps_of(const float* user_tail, const float* item_tail, const FactorChoices& c) {
  if (!c.adaptive) return {c.eta, c.eta, c.eta, c.eta};
  float steps[4];
  inverse_roots(user_tail[kSquares], item_tail[kSquares], user_tail[kBiasSquares], item_tail[kBiasSquares],
                c.eta, steps);
  return {steps[0], steps[1], steps[2], steps[3]};
}

static ALWAYS_INLINE void move_bias(float* tail, float g, float step, float l2) {
  const float slope = g + l2 * tail[kBiasShrink] * tail[kBias];
  tail[kBias] -= step * slope;
  tail[kBiasSquares] += slope * slope;
}

// Moves both rows by the entry whose slope is g; kProximal adds l1 and the floor at zero.
template <int64_t kFixed, bool kProximal>
static ALWAYS_INLINE void move(float* p, float* q, int64_t run_time_padded, float g, const FactorChoices& c) {
  const int64_t padded = kFixed ? kFixed : run_time_padded;
  float *user_tail = p + padded, *item_tail = q + padded;
  const Steps step = steps_of(user_tail, item_tail, c);
  const Eight slope = all(g), decay_p = all(c.l2 * user_tail[kShrink]),
              decay_q = all(c.l2 * item_tail[kShrink]);
  const Eight step_p = all(step.user), step_q = all(step.item);
  Eight squares_p = all(0), squares_q = all(0);
  for (int64_t j = 0; j < padded; j += 8) {
    const Eight old_p = load(p + j), old_q = load(q + j);
    const Eight slope_p = fma(slope, old_q, mul(decay_p, old_p));
    const Eight slope_q = fma(slope, old_p, mul(decay_q, old_q));
    Eight new_p = fnma(step_p, slope_p, old_p), new_q = fnma(step_q, slope_q, old_q);
    if (kProximal) {
      new_p = shrunk(new_p, all(step.user * c.l1 * user_tail[kShrink]), c.nonnegative);
      new_q = shrunk(new_q, all(step.item * c.l1 * item_tail[kShrink]), c.nonnegative);
    }
    store(p + j, new_p);
    store(q + j, new_q);
    squares_p = fma(slope_p, slope_p, squares_p);
    squares_q = fma(slope_q, slope_q, squares_q);
  }
  const float share = 1.0f / static_cast<float>(c.rank);
  user_tail[kSquares] += sum(squares_p) * share;
  item_tail[kSquares] += sum(squares_q) * share;
  if (c.biases) {
    move_bias(user_tail, g, step.user_bias, c.l2_bias);
    move_bias(item_tail, g, step.item_bias, c.l2_bias);
  }
}

template <int64_t kFixed, bool kProximal, bool kSquaredLoss>
static FactorOutcome sgd_entries(const Entries& entries, const Table& users, const Table& items,
                                 const FactorChoices& c) {
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
    const float score = c.mean + (p[padded + kBias] + q[padded + kBias]) + dot(p, q, padded);
    const float weight = entries.weights ? entries.weights[t] : 1.0f;
    float g;
    if (kSquaredLoss) {
      g = score - entries.values[t];
      loss_sum += 0.5 * weight * g * g;
    } else {
      const LossAndSlope loss = evaluate_loss(c.loss, 0, score, entries.values[t]);
      g = static_cast<float>(loss.slope);
      loss_sum += weight * loss.value;
    }
    if (!(fabsf(g) <= 1e18f)) return {loss_sum, t, kOverflow};  // its square is still a number
    move<kFixed, kProximal>(p, q, padded, weight * g, c);
  }
  return {loss_sum, entries.n, kAllFine};
}

template <int64_t kFixed>
static FactorOutcome sgd_of_rank(const Entries& entries, const Table& users, const Table& items,
                                 const FactorChoices& c) {
  const bool proximal = c.l1 > 0 || c.nonnegative, squared = c.loss == kSquared;
  if (proximal) return sgd_entries<kFixed, true, false>(entries, users, items, c);
  return squared ? sgd_entries<kFixed, false, true>(entries, users, items, c)
                 : sgd_entries<kFixed, false, false>(entries, users, items, c);
}

static FactorOutcome sgd(const Entries& entries, const Table& users, const Table& items,
                         const FactorChoices& c) {
#define RANK(padded) \
  case padded:       \
    return sgd_of_rank<padded>(entries, users, items, c);
  switch (users.padded) {
    FIXED_RANKS(RANK)
    default:
      return sgd_of_rank<0>(entries, users, items, c);
  }
#undef RANK
}

// ------------------------------------------------------------------------------------------------------- bpr

static ALWAYS_INLINE uint64_t mixed(uint64_t z) {  // splitmix64
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static bool likes(const Liked& liked, int32_t user, int32_t item) {
  int64_t low = liked.indptr[user], high = liked.indptr[user + 1];
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (liked.indices[middle] < item)
      low = middle + 1;
    else
      high = middle;
  }
  return low < liked.indptr[user + 1] && liked.indices[low] == item;
}

// An item of the stripe that the user is not known to like, or -1 after eight tries.
static int32_t negative_of(const Liked& liked, int32_t user, uint64_t moment) {
  const uint64_t n = static_cast<uint64_t>(liked.last - liked.first);
  for (uint64_t tries = 0; tries < 8 && n; ++tries) {
    const uint64_t random = mixed(liked.seed ^ mixed(moment * 8 + tries)) >> 32;
    const int32_t item = static_cast<int32_t>(liked.first + static_cast<int64_t>(random * n >> 32));
    if (!likes(liked, user, item)) return item;
  }
  return -1;
}

// p -= eta (g (q_i - q_j) + l2 p), q_i -= eta (g p + l2 q_i), q_j -= eta (-g p + l2 q_j).
static void move_three(float* p, float* i, float* j, int64_t padded, float g, const FactorChoices& c) {
  float *user = p + padded, *liked = i + padded, *other = j + padded;
  const Steps step = steps_of(user, liked, c), second = steps_of(user, other, c);
  const Eight slope = all(g), l2_p = all(c.l2 * user[kShrink]), l2_i = all(c.l2 * liked[kShrink]),
              l2_j = all(c.l2 * other[kShrink]);
  Eight squares_p = all(0), squares_i = all(0), squares_j = all(0);
  for (int64_t f = 0; f < padded; f += 8) {
    const Eight old_p = load(p + f), old_i = load(i + f), old_j = load(j + f);
    const Eight slope_p = fma(slope, fnma(all(1), old_j, old_i), mul(l2_p, old_p));
    const Eight slope_i = fma(slope, old_p, mul(l2_i, old_i));
    const Eight slope_j = fnma(slope, old_p, mul(l2_j, old_j));
    Eight new_p = fnma(all(step.user), slope_p, old_p), new_i = fnma(all(step.item), slope_i, old_i),
          new_j = fnma(all(second.item), slope_j, old_j);
    if (c.l1 > 0 || c.nonnegative) {
      new_p = shrunk(new_p, all(step.user * c.l1 * user[kShrink]), c.nonnegative);
      new_i = shrunk(new_i, all(step.item * c.l1 * liked[kShrink]), c.nonnegative);
      new_j = shrunk(new_j, all(second.item * c.l1 * other[kShrink]), c.nonnegative);
    }
    store(p + f, new_p);
    store(i + f, new_i);
    store(j + f, new_j);
    squares_p = fma(slope_p, slope_p, squares_p);
    squares_i = fma(slope_i, slope_i, squares_i);
    squares_j = fma(slope_j, slope_j, squares_j);
  }
  const float share = 1.0f / static_cast<float>(c.rank);
  user[kSquares] += sum(squares_p) * share;
  liked[kSquares] += sum(squares_i) * share;
  other[kSquares] += sum(squares_j) * share;
  if (c.biases) {  // the user's bias and the mean cancel
    move_bias(liked, g, step.item_bias, c.l2_bias);
    move_bias(other, -g, second.item_bias, c.l2_bias);
  }
}

static FactorOutcome bpr(const Entries& entries, const Liked& liked, const Table& users, const Table& items,
                         const FactorChoices& c) {
  const int64_t padded = users.padded;
  double loss_sum = 0;
  for (int64_t t = 0; t < entries.n; ++t) {
    if (t + kAhead < entries.n) {
      prefetch_row(row_of(users, entries.users[t + kAhead], padded), padded + kTail);
      prefetch_row(row_of(items, entries.items[t + kAhead], padded), padded + kTail);
    }
    if (outside(entries.users[t], users.n) || outside(entries.items[t], items.n))
      return {loss_sum, t, kUnknownRow};
    const int32_t other = negative_of(liked, entries.users[t], static_cast<uint64_t>(t));
    if (other < 0) continue;  // this user likes all there is
    float *p = row_of(users, entries.users[t], padded), *i = row_of(items, entries.items[t], padded),
          *j = row_of(items, other, padded);
    const float margin = i[padded + kBias] - j[padded + kBias] + (dot(p, i, padded) - dot(p, j, padded));
    const LossAndSlope loss = evaluate_loss(kLog, 0, margin, 1);
    const float weight = entries.weights ? entries.weights[t] : 1.0f;
    loss_sum += weight * loss.value;
    if (!(fabsf(margin) <= 1e18f)) return {loss_sum, t, kOverflow};
    move_three(p, i, j, padded, weight * static_cast<float>(loss.slope), c);
  }
  return {loss_sum, entries.n, kAllFine};
}

// ----------------------------------------------------------------------------------------------------- pairs

static int64_t pairs(const Entries& entries, const Table& users, const Table& items, float mean, float* out) {
  const int64_t padded = users.padded;
  for (int64_t t = 0; t < entries.n; ++t) {
    if (outside(entries.users[t], users.n) || outside(entries.items[t], items.n)) return t;
    const float *p = row_of(users, entries.users[t], padded), *q = row_of(items, entries.items[t], padded);
    out[t] = mean + (p[padded + kBias] + q[padded + kBias]) + dot(p, q, padded);
  }
  return entries.n;
}

// -------------------------------------------------------------------------------------------------------- kl

// x_f <- x_f (sum over known v / s y_f) / sums_f with s = x y; each step lowers the divergence. Also adds up
// sum of v log(v / s) - v before the last step; the caller adds the sum of all s.
static int64_t kl(const Known& known, const float* other, int64_t n_other, int64_t padded, const float* sums,
                  int32_t steps, float* solved, float* scratch, double* loss) {
  for (int64_t i = known.first; i < known.last; ++i) {
    const int64_t begin = known.indptr[i], end = known.indptr[i + 1];
    float* x = solved + i * padded;
    for (int64_t t = begin; t < end; ++t) {
      if (outside(known.indices[t], n_other)) return i;
      prefetch_row(other + known.indices[t] * padded, padded);
    }
    for (int32_t step = 0; step < steps; ++step) {
      memset(scratch, 0, sizeof(float) * padded);
      for (int64_t t = begin; t < end; ++t) {
        const float* y = other + known.indices[t] * padded;
        const float score = dot(x, y, padded) + 1e-30f;
        add_scaled(scratch, y, known.values[t] / score, padded);
      }
      for (int64_t j = 0; j < padded; ++j) x[j] = sums[j] > 0 ? x[j] * scratch[j] / sums[j] : 0;
    }
    if (loss)
      for (int64_t t = begin; t < end; ++t) {
        const double v = known.values[t], s = dot(x, other + known.indices[t] * padded, padded) + 1e-30f;
        if (v > 0) *loss += v * log(v / s) - v;
      }
    if (!(x[0] == x[0])) return i;
  }
  return known.last;
}

extern const FactorKernels factor_table;
const FactorKernels factor_table = {sgd, sgd_block, bpr, pairs, als, kl, gram, top};

}  // namespace STEEPEST_ISA
}  // namespace steepest
