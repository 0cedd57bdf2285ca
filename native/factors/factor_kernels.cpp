// SPDX-License-Identifier: Apache-2.0
// Matrix factorization: score(u, i) = mean + b_u + b_i + p_u q_i.
//
// sgd    one visit of each known entry: p -= eta_p (g q + l2 p), q -= eta_q (g p + l2 q), both from the old
//        values, with steps eta / sqrt(G), G the row's sum of mean squared gradients (Chin et al. 2015).
// bpr    the same for pairs of a liked and another item: loss log(1 + exp(-(score_ui - score_uj))).
//
// This file is compiled once per instruction set (STEEPEST_ISA names the namespace). It must not use standard
// library templates: the linker may keep the copy of an inline function that old processors cannot run.
#include <math.h>

#include "factors/factor_als.h"
#include "factors/factor_top.h"
#include "linear/losses.h"

namespace steepest {
namespace STEEPEST_ISA {

constexpr int64_t kAhead = 4;  // entries between a prefetch and its use; measured, 2 to 8 tie

static ALWAYS_INLINE float* row_of(float* table, int32_t row, int64_t padded) {
  return table + row * (padded + kTail);
}

static ALWAYS_INLINE bool has_rows(const Entries& entries, int64_t t, const FactorTables& tables) {
  return !outside(entries.users[t], tables.n_users) && !outside(entries.items[t], tables.n_items);
}

// Fetches the rows of an entry to come; whether those of entry t exist.
static ALWAYS_INLINE bool fetch(const Entries& entries, int64_t t, const FactorTables& tables,
                                int64_t padded) {
  if (t + kAhead < entries.n) {
    prefetch_row(row_of(tables.users, entries.users[t + kAhead], padded), padded + kTail);
    prefetch_row(row_of(tables.items, entries.items[t + kAhead], padded), padded + kTail);
  }
  return has_rows(entries, t, tables);
}

// ------------------------------------------------------------------------------------ steps of every visit

// Towards zero by `amount`, and not below zero if that is the floor.
static ALWAYS_INLINE Float8 shrunk(Float8 value, Float8 amount, bool nonnegative) {
  const Float8 zero = all(0);
  const Float8 positive = max(add(value, mul(all(-1), amount)), zero);
  return nonnegative ? positive : add(positive, min(add(value, amount), zero));
}

// Returns the gradient.
static ALWAYS_INLINE float move_bias(float* tail, float g, float step, float l2) {
  const float gradient = g + l2 * tail[kBiasShrink] * tail[kBias];
  tail[kBias] -= step * gradient;
  return gradient;
}

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

// A row that moves by gradients g other + l2 row.
struct MovingRow {
  float *row, *tail;
  float size;
  Float8 g, l2, step, squares;

  ALWAYS_INLINE MovingRow(float* from, int64_t padded, float pull, float step_size, const FactorChoices& c)
      : row(from),
        tail(from + padded),
        size(step_size),
        g(all(pull)),
        l2(all(c.l2 * tail[kShrink])),
        step(all(step_size)),
        squares(all(0)) {}
  ALWAYS_INLINE void move(int64_t j, Float8 old, Float8 other, bool proximal, const FactorChoices& c) {
    const Float8 gradient = fma(g, other, mul(l2, old));
    Float8 next = fnma(step, gradient, old);
    if (proximal) next = shrunk(next, all(size * c.l1 * tail[kShrink]), c.nonnegative);
    store(row + j, next);
    squares = fma(gradient, gradient, squares);
  }
  ALWAYS_INLINE void end(float pull, float bias_step, const FactorChoices& c, bool with_bias) {
    tail[kSquares] += sum(squares) * (1.0f / static_cast<float>(c.rank));
    if (!with_bias) return;
    const float gradient = move_bias(tail, pull, bias_step, c.l2_bias);
    tail[kBiasSquares] += gradient * gradient;
  }
};

// The factors of both rows, held in registers or on the stack between the score and the step.
template <int64_t kFixed>
struct Pair {
  Float8 p[kFixed / 8], q[kFixed / 8];

  ALWAYS_INLINE Pair(const float* user, const float* item, int64_t) {
    for (int64_t j = 0; j < kFixed / 8; ++j) {
      p[j] = load(user + 8 * j);
      q[j] = load(item + 8 * j);
    }
  }
  ALWAYS_INLINE float product() const {
    Float8 even = all(0), odd = all(0);
    for (int64_t j = 0; j < kFixed / 8; ++j)
      if (j % 2)
        odd = fma(p[j], q[j], odd);
      else
        even = fma(p[j], q[j], even);
    return sum(add(even, odd));
  }
  ALWAYS_INLINE Float8 user(int64_t j) const { return p[j / 8]; }
  ALWAYS_INLINE Float8 item(int64_t j) const { return q[j / 8]; }
};

// Rows that are read twice: their rank is not compiled in, or there is much to do in between.
template <>
struct Pair<0> {
  const float *p, *q;
  int64_t padded;

  ALWAYS_INLINE Pair(const float* user, const float* item, int64_t n) : p(user), q(item), padded(n) {}
  ALWAYS_INLINE float product() const { return dot(p, q, padded); }
  ALWAYS_INLINE Float8 user(int64_t j) const { return load(p + j); }
  ALWAYS_INLINE Float8 item(int64_t j) const { return load(q + j); }
};

// Moves both rows by the entry whose gradient is g, with steps of this visit.
template <bool kProximal>
struct VisitSteps {
  using Rows = Pair<0>;

  static ALWAYS_INLINE void move(const Rows& old, float* p, float* q, int64_t padded, float g,
                                 const FactorChoices& c) {
    const Steps step = steps_of(p + padded, q + padded, c);
    MovingRow user(p, padded, g, step.user, c), item(q, padded, g, step.item, c);
    for (int64_t j = 0; j < padded; j += 8) {
      const Float8 old_p = old.user(j), old_q = old.item(j);
      user.move(j, old_p, old_q, kProximal, c);
      item.move(j, old_q, old_p, kProximal, c);
    }
    user.end(g, step.user_bias, c, c.biases);
    item.end(g, step.item_bias, c, c.biases);
  }
};

// ----------------------------------------------------------------------------------- steps of a whole block
//
// A step for each row, eta / sqrt(G), is taken from the row's sum of squared gradients G when the block
// begins and stays until it ends. An entry then only adds to G: g^2 times the other row's mean square for the
// factors, g^2 for the bias. Roots, divisions and sums of squares at each visit would take as long as all the
// rest.

static void set_steps(float* table, int64_t first, int64_t last, int64_t padded, const FactorChoices& c) {
  for (int64_t i = first; i < last; ++i) {
    float *row = row_of(table, static_cast<int32_t>(i), padded), *tail = row + padded;
    tail[kStep] = c.adaptive ? c.eta / sqrtf(tail[kSquares]) : c.eta;
    tail[kBiasStep] = c.adaptive ? c.eta / sqrtf(tail[kBiasSquares]) : c.eta;
    tail[kMeanSquare] = dot(row, row, padded) / static_cast<float>(c.rank);
  }
}

template <int64_t kFixed>
struct BlockSteps {
  using Rows = Pair<kFixed>;

  static ALWAYS_INLINE void move(const Rows& old, float* p, float* q, int64_t padded, float g,
                                 const FactorChoices& c) {
    float *user = p + padded, *item = q + padded;
    const float square = g * g, step_p = user[kStep], step_q = item[kStep];
    const Float8 keep_p = all(1 - step_p * (c.l2 * user[kShrink])), by_p = all(step_p * g),
                 keep_q = all(1 - step_q * (c.l2 * item[kShrink])), by_q = all(step_q * g);
    for (int64_t j = 0; j < padded; j += 8) {
      const Float8 old_p = old.user(j), old_q = old.item(j);
      store(p + j, fnma(by_p, old_q, mul(keep_p, old_p)));
      store(q + j, fnma(by_q, old_p, mul(keep_q, old_q)));
    }
    user[kSquares] += square * item[kMeanSquare];
    item[kSquares] += square * user[kMeanSquare];
    if (!c.biases) return;
    float* const tails[2] = {user, item};
    for (float* tail : tails) {
      move_bias(tail, g, tail[kBiasStep], c.l2_bias);
      tail[kBiasSquares] += square;
    }
  }
};

// ------------------------------------------------------------------------------------------------------- sgd

template <int64_t kFixed, bool kSquaredLoss, typename Solver>
static FactorOutcome learn_entries(const Entries& entries, const FactorTables& tables,
                                   const FactorChoices& choices) {
  const FactorChoices c = choices;  // a copy, which no store can reach
  const int64_t padded = kFixed ? kFixed : tables.padded;
  double loss_sum = 0;
  for (int64_t t = 0; t < entries.n; ++t) {
    if (!fetch(entries, t, tables, padded)) return {loss_sum, kBadIndex};
    float *p = row_of(tables.users, entries.users[t], padded),
          *q = row_of(tables.items, entries.items[t], padded);
    const typename Solver::Rows rows(p, q, padded);
    const float score = rows.product() + (c.mean + (p[padded + kBias] + q[padded + kBias]));
    const float weight = entries.weights ? entries.weights[t] : 1.0f;
    float g;
    if (kSquaredLoss) {
      g = score - entries.values[t];
      loss_sum += 0.5f * weight * (g * g);
    } else {
      const LossAndGradient loss = evaluate_loss(c.loss, 0, score, entries.values[t]);
      g = static_cast<float>(loss.gradient);
      loss_sum += weight * loss.value;
    }
    g *= weight;
    if (!(g * g <= 1e36f)) return {loss_sum, kNotFinite};
    Solver::move(rows, p, q, padded, g, c);
  }
  return {loss_sum, kFine};
}

// Ranks up to kFixed are compiled in, in steps of eight; 0 takes the others.
template <int64_t kFixed>
static FactorOutcome learn_of_rank(const Entries& entries, const FactorTables& tables,
                                   const FactorChoices& c) {
  if constexpr (kFixed > 0)
    if (tables.padded != kFixed) return learn_of_rank<kFixed - 8>(entries, tables, c);
  const bool squared = c.loss == kSquared;
  if (c.block_steps)
    return squared ? learn_entries<kFixed, true, BlockSteps<kFixed>>(entries, tables, c)
                   : learn_entries<kFixed, false, BlockSteps<kFixed>>(entries, tables, c);
  if (c.proximal()) return learn_entries<kFixed, false, VisitSteps<true>>(entries, tables, c);
  return squared ? learn_entries<kFixed, true, VisitSteps<false>>(entries, tables, c)
                 : learn_entries<kFixed, false, VisitSteps<false>>(entries, tables, c);
}

// ------------------------------------------------------------------------------------------------------- bpr

// An item of the block that the user is not known to like, or -1 after eight tries.
static int32_t negative_of(const FactorBlock& block, int32_t user, uint64_t moment) {
  const uint64_t n = static_cast<uint64_t>(block.last_item - block.first_item);
  for (uint64_t tries = 0; tries < 8 && n; ++tries) {
    const uint64_t random = splitmix64(block.seed ^ splitmix64(moment * 8 + tries)) >> 32;
    const int32_t item = static_cast<int32_t>(block.first_item + static_cast<int64_t>(random * n >> 32));
    if (!contains(*block.liked, user, item)) return item;
  }
  return -1;
}

// p -= eta (g (q_i - q_j) + l2 p), q_i -= eta (g p + l2 q_i), q_j -= eta (-g p + l2 q_j).
static void move_three(float* p, float* i, float* j, int64_t padded, float g, const FactorChoices& c) {
  const Steps step = steps_of(p + padded, i + padded, c), second = steps_of(p + padded, j + padded, c);
  MovingRow user(p, padded, g, step.user, c), liked(i, padded, g, step.item, c),
      other(j, padded, -g, second.item, c);
  const bool proximal = c.proximal();
  for (int64_t f = 0; f < padded; f += 8) {
    const Float8 old_p = load(p + f), old_i = load(i + f), old_j = load(j + f);
    user.move(f, old_p, fnma(all(1), old_j, old_i), proximal, c);
    liked.move(f, old_i, old_p, proximal, c);
    other.move(f, old_j, old_p, proximal, c);
  }
  user.end(0, 0, c, false);  // the user's bias and the mean cancel
  liked.end(g, step.item_bias, c, c.biases);
  other.end(-g, second.item_bias, c, c.biases);
}

static FactorOutcome learn_pairwise(const FactorBlock& block, const FactorTables& tables,
                                    const FactorChoices& c) {
  const Entries& entries = block.entries;
  const int64_t padded = tables.padded;
  double loss_sum = 0;
  for (int64_t t = 0; t < entries.n; ++t) {
    if (!fetch(entries, t, tables, padded)) return {loss_sum, kBadIndex};
    const int32_t negative = negative_of(block, entries.users[t], static_cast<uint64_t>(t));
    if (negative < 0) continue;  // this user likes all there is
    float *p = row_of(tables.users, entries.users[t], padded),
          *i = row_of(tables.items, entries.items[t], padded), *j = row_of(tables.items, negative, padded);
    const float margin = i[padded + kBias] - j[padded + kBias] + (dot(p, i, padded) - dot(p, j, padded));
    const LossAndGradient loss = evaluate_loss(kLog, 0, margin, 1);
    const float weight = entries.weights ? entries.weights[t] : 1.0f;
    loss_sum += weight * loss.value;
    if (!(fabsf(margin) <= 1e18f)) return {loss_sum, kNotFinite};
    move_three(p, i, j, padded, weight * static_cast<float>(loss.gradient), c);
  }
  return {loss_sum, kFine};
}

static FactorOutcome learn(const FactorBlock& block, const FactorTables& tables, const FactorChoices& c) {
  if (block.liked) return learn_pairwise(block, tables, c);
  if (c.block_steps) {
    set_steps(tables.users, block.first_user, block.last_user, tables.padded, c);
    set_steps(tables.items, block.first_item, block.last_item, tables.padded, c);
  }
  return learn_of_rank<128>(block.entries, tables, c);
}

static int64_t pairs(const Entries& entries, const FactorTables& tables, float mean, float* scores) {
  const int64_t padded = tables.padded;
  for (int64_t t = 0; t < entries.n; ++t) {
    if (!has_rows(entries, t, tables)) return t;
    const float *p = row_of(tables.users, entries.users[t], padded),
                *q = row_of(tables.items, entries.items[t], padded);
    scores[t] = mean + (p[padded + kBias] + q[padded + kBias]) + dot(p, q, padded);
  }
  return entries.n;
}

extern const FactorKernels factor_table;
const FactorKernels factor_table = {learn, pairs, als, kl, gram, top};

}  // namespace STEEPEST_ISA
}  // namespace steepest
