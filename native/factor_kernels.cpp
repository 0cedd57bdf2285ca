// SPDX-License-Identifier: Apache-2.0
// Matrix factorization: score(u, i) = mean + b_u + b_i + p_u q_i.
//
// sgd    one visit of each known entry: p -= eta_p (g q + l2 p), q -= eta_q (g p + l2 q), both from the old
//        values, with steps eta / sqrt(G), G the row's sum of mean squared slopes (after Chin et al. 2015).
// bpr    the same for pairs of a liked and another item: loss log(1 + exp(-(score_ui - score_uj))).
// als    a row's least squares with the other side fixed: exact, by conjugate gradients, or under a floor at
// zero. kl     a row's multiplicative steps for sum of v log(v / s) - v + s (Lee and Seung 2001). top    the
// best items of many users: a blocked product whose scores meet a threshold before anything else.
//
// This file is compiled once per instruction set (STEEPEST_ISA names the namespace). It must not use standard
// library templates: the linker may keep the copy of an inline function that old processors cannot run.
#include <math.h>

#include "factor_rows.h"
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

// ------------------------------------------------------------------------------------------------------- als

static ALWAYS_INLINE void add_scaled(float* to, const float* from, float scale, int64_t padded) {
  const Eight s = all(scale);
  for (int64_t j = 0; j < padded; j += 8) store(to + j, fma(s, load(from + j), load(to + j)));
}

// Four rows at once: what they are added to, or multiplied by, is then read a quarter as often.
static ALWAYS_INLINE void add_four(float* to, const float* const* rows, const float* scales, int64_t padded) {
  const Eight a = all(scales[0]), b = all(scales[1]), c = all(scales[2]), d = all(scales[3]);
  for (int64_t j = 0; j < padded; j += 8) {
    const Eight first = fma(b, load(rows[1] + j), fma(a, load(rows[0] + j), load(to + j)));
    store(to + j, add(first, fma(d, load(rows[3] + j), mul(c, load(rows[2] + j)))));
  }
}

static ALWAYS_INLINE void dot_four(const float* const* rows, const float* x, int64_t padded, float* out) {
  Eight a = all(0), b = all(0), c = all(0), d = all(0);
  for (int64_t j = 0; j < padded; j += 8) {
    const Eight factor = load(x + j);
    a = fma(load(rows[0] + j), factor, a);
    b = fma(load(rows[1] + j), factor, b);
    c = fma(load(rows[2] + j), factor, c);
    d = fma(load(rows[3] + j), factor, d);
  }
  out[0] = sum(a);
  out[1] = sum(b);
  out[2] = sum(c);
  out[3] = sum(d);
}

// to += sum over rows of w x x', the lower left and what shares its vectors; four rows at a time.
static void add_squares(float* to, const float* const* rows, const float* weights, int64_t n,
                        int64_t padded) {
  int64_t t = 0;
  for (; t + 4 <= n; t += 4) {
    const float *a = rows[t], *b = rows[t + 1], *c = rows[t + 2], *d = rows[t + 3];
    for (int64_t i = 0; i < padded; i += 2) {
      const Eight a0 = all(weights[t] * a[i]), b0 = all(weights[t + 1] * b[i]),
                  c0 = all(weights[t + 2] * c[i]), d0 = all(weights[t + 3] * d[i]);
      const Eight a1 = all(weights[t] * a[i + 1]), b1 = all(weights[t + 1] * b[i + 1]),
                  c1 = all(weights[t + 2] * c[i + 1]), d1 = all(weights[t + 3] * d[i + 1]);
      for (int64_t j = 0; j <= i; j += 8) {
        const Eight aj = load(a + j), bj = load(b + j), cj = load(c + j), dj = load(d + j);
        float *first = to + i * padded + j, *second = first + padded;
        store(first, fma(d0, dj, fma(c0, cj, fma(b0, bj, fma(a0, aj, load(first))))));
        store(second, fma(d1, dj, fma(c1, cj, fma(b1, bj, fma(a1, aj, load(second))))));
      }
    }
  }
  for (; t < n; ++t)
    for (int64_t i = 0; i < padded; ++i) {
      const Eight x = all(weights[t] * rows[t][i]);
      for (int64_t j = 0; j <= i; j += 8)
        store(to + i * padded + j, fma(x, load(rows[t] + j), load(to + i * padded + j)));
    }
}

static void gram(const float* rows, int64_t first, int64_t last, int64_t stride, int64_t padded, float* out) {
  const float ones[4] = {1, 1, 1, 1};
  for (int64_t t = first; t < last; t += 4) {
    const int64_t n = last - t < 4 ? last - t : 4;
    const float* four[4] = {};
    for (int64_t m = 0; m < n; ++m) four[m] = rows + (t + m) * stride;
    add_squares(out, four, ones, n, padded);
  }
}

// L L' = matrix, in place in the lower triangle; false if the matrix is not positive definite.
static bool factorise(float* matrix, int64_t rank, int64_t padded) {
  for (int64_t i = 0; i < rank; ++i) {
    float* row = matrix + i * padded;
    for (int64_t j = 0; j <= i; ++j) {
      const float* other = matrix + j * padded;
      Eight a = all(0);
      int64_t m = 0;
      for (; m + 8 <= j; m += 8) a = fma(load(row + m), load(other + m), a);
      float total = sum(a);
      for (; m < j; ++m) total += row[m] * other[m];
      const float left = row[j] - total;
      if (i == j) {
        if (!(left > 0)) return false;
        row[i] = sqrtf(left);
      } else {
        row[j] = left / other[j];
      }
    }
  }
  return true;
}

static void substitute(const float* matrix, float* x, int64_t rank, int64_t padded) {
  for (int64_t i = 0; i < rank; ++i) {
    float total = x[i];
    for (int64_t j = 0; j < i; ++j) total -= matrix[i * padded + j] * x[j];
    x[i] = total / matrix[i * padded + i];
  }
  for (int64_t i = rank - 1; i >= 0; --i) {
    x[i] /= matrix[i * padded + i];
    for (int64_t j = 0; j < i; ++j) x[j] -= matrix[i * padded + j] * x[i];
  }
}

struct AlsRow {
  const int32_t* index;
  const float* value;
  const float* weight;
  int64_t n;
  float ridge;
};

// Explicit: A = sum w x x' + ridge, b = sum w v x. Implicit: A = gram + sum v x x' + ridge, b = sum (1 + v)
// x.
static ALWAYS_INLINE float square_weight(const AlsRow& row, int64_t t, bool implicit) {
  return implicit ? row.value[t] : row.weight ? row.weight[t] : 1.0f;
}
static ALWAYS_INLINE float target_weight(const AlsRow& row, int64_t t, bool implicit) {
  return implicit ? 1.0f + row.value[t] : row.value[t] * (row.weight ? row.weight[t] : 1.0f);
}

static void right_side(const AlsRow& row, const float* other, int64_t padded, bool implicit, float* b) {
  memset(b, 0, sizeof(float) * padded);
  for (int64_t t = 0; t < row.n; ++t)
    add_scaled(b, other + row.index[t] * padded, target_weight(row, t, implicit), padded);
}

static void normal_matrix(const AlsRow& row, const float* other, int64_t padded, const float* start,
                          bool implicit, float* matrix) {
  if (start)
    memcpy(matrix, start, sizeof(float) * padded * padded);
  else
    memset(matrix, 0, sizeof(float) * padded * padded);
  for (int64_t t = 0; t < row.n; t += 4) {
    const float* rows[4];
    float weights[4];
    const int64_t n = row.n - t < 4 ? row.n - t : 4;
    for (int64_t m = 0; m < n; ++m) {
      rows[m] = other + row.index[t + m] * padded;
      weights[m] = square_weight(row, t + m, implicit);
    }
    add_squares(matrix, rows, weights, n, padded);
  }
}

static void add_ridge(float* matrix, int64_t padded, float ridge, const AlsChoices& c) {
  for (int64_t j = 0; j < c.rank; ++j) matrix[j * padded + j] += j == c.bias_at ? c.bias_ridge : ridge;
}

static bool solve_exactly(const AlsRow& row, const float* other, int64_t padded, const float* start,
                          const AlsChoices& c, float* x, float* scratch) {
  normal_matrix(row, other, padded, start, c.implicit, scratch);
  add_ridge(scratch, padded, row.ridge, c);
  right_side(row, other, padded, c.implicit, x);
  if (!factorise(scratch, c.rank, padded)) return false;
  substitute(scratch, x, c.rank, padded);
  return true;
}

// out = A x without ever forming A.
static void times_matrix(const AlsRow& row, const float* other, int64_t padded, const float* start,
                         const AlsChoices& c, const float* x, float* out) {
  for (int64_t j = 0; j < padded; j += 8) store(out + j, mul(all(row.ridge), load(x + j)));
  if (c.bias_at >= 0) out[c.bias_at] = c.bias_ridge * x[c.bias_at];
  if (start)
    for (int64_t j = 0; j < padded; j += 4) {  // beyond the rank x is zero
      const float* rows[4] = {start + j * padded, start + (j + 1) * padded, start + (j + 2) * padded,
                              start + (j + 3) * padded};
      add_four(out, rows, x + j, padded);
    }
  for (int64_t t = 0; t < row.n; t += 4) {
    const float* rows[4];
    float scales[4];
    for (int64_t m = 0; m < 4; ++m) rows[m] = other + row.index[t + m < row.n ? t + m : t] * padded;
    dot_four(rows, x, padded, scales);
    for (int64_t m = 0; m < 4; ++m)  // a short group repeats its first row with weight zero
      scales[m] = t + m < row.n ? scales[m] * square_weight(row, t + m, c.implicit) : 0.0f;
    add_four(out, rows, scales, padded);
  }
}

static bool solve_by_gradients(const AlsRow& row, const float* other, int64_t padded, const float* start,
                               const AlsChoices& c, float* x, float* scratch) {
  float *residual = scratch, *direction = scratch + padded, *image = scratch + 2 * padded;
  right_side(row, other, padded, c.implicit, residual);
  times_matrix(row, other, padded, start, c, x, image);
  add_scaled(residual, image, -1, padded);
  memcpy(direction, residual, sizeof(float) * padded);
  float square = dot(residual, residual, padded);
  for (int32_t step = 0; step < c.cg_steps && square > 1e-20f; ++step) {
    times_matrix(row, other, padded, start, c, direction, image);
    const float curvature = dot(direction, image, padded);
    if (!(curvature > 0)) return false;
    add_scaled(x, direction, square / curvature, padded);
    add_scaled(residual, image, -square / curvature, padded);
    const float next = dot(residual, residual, padded), ratio = next / square;
    for (int64_t j = 0; j < padded; j += 8)
      store(direction + j, fma(all(ratio), load(direction + j), load(residual + j)));
    square = next;
  }
  return square == square;
}

// Coordinate descent on the normal equations: each unknown to its best value, but not below zero.
static bool solve_above_zero(const AlsRow& row, const float* other, int64_t padded, const float* start,
                             const AlsChoices& c, float* x, float* scratch) {
  float* slope = scratch + padded * padded;  // A x - b
  normal_matrix(row, other, padded, start, c.implicit, scratch);
  for (int64_t i = 0; i < padded; ++i)
    for (int64_t j = 0; j < i; ++j) scratch[j * padded + i] = scratch[i * padded + j];
  add_ridge(scratch, padded, row.ridge, c);
  right_side(row, other, padded, c.implicit, slope);
  for (int64_t j = 0; j < padded; j += 8) store(slope + j, mul(all(-1), load(slope + j)));
  for (int64_t j = 0; j < c.rank; ++j) add_scaled(slope, scratch + j * padded, x[j], padded);
  for (int sweep = 0; sweep < 3; ++sweep)
    for (int64_t j = 0; j < c.rank; ++j) {
      const float diagonal = scratch[j * padded + j];
      if (!(diagonal > 0)) continue;
      const float best = x[j] - slope[j] / diagonal, next = best > 0 ? best : 0;
      add_scaled(slope, scratch + j * padded, next - x[j], padded);
      x[j] = next;
    }
  return x[0] == x[0];
}

static int64_t als(const Known& known, const float* other, int64_t n_other, int64_t padded,
                   const float* start, const float* ridge, const AlsChoices& c, float* solved,
                   float* scratch) {
  for (int64_t i = known.first; i < known.last; ++i) {
    const int64_t begin = known.indptr[i];
    const AlsRow row = {known.indices + begin, known.values + begin,
                        known.weights ? known.weights + begin : nullptr, known.indptr[i + 1] - begin,
                        ridge[i]};
    for (int64_t t = 0; t < row.n; ++t) {
      if (outside(row.index[t], n_other)) return i;
      prefetch_row(other + row.index[t] * padded, padded);
    }
    float* x = solved + i * padded;
    const bool solvable = c.nonnegative    ? solve_above_zero(row, other, padded, start, c, x, scratch)
                          : c.cg_steps > 0 ? solve_by_gradients(row, other, padded, start, c, x, scratch)
                                           : solve_exactly(row, other, padded, start, c, x, scratch);
    if (!solvable) return i;
  }
  return known.last;
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

// ------------------------------------------------------------------------------------------------------- top

// A heap of the k best so far with the worst on top; among equals the item that comes first is better.
static ALWAYS_INLINE bool worse(float a, int32_t item_a, float b, int32_t item_b) {
  return a < b || (a == b && item_a > item_b);
}

static void sift_down(float* scores, int32_t* items, int64_t at, int64_t n, float score, int32_t item) {
  for (;;) {
    int64_t child = 2 * at + 1;
    if (child >= n) break;
    if (child + 1 < n && worse(scores[child + 1], items[child + 1], scores[child], items[child])) ++child;
    if (!worse(scores[child], items[child], score, item)) break;
    scores[at] = scores[child];
    items[at] = items[child];
    at = child;
  }
  scores[at] = score;
  items[at] = item;
}

static bool contains(const int32_t* items, int64_t n, int32_t item) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (items[middle] < item)
      low = middle + 1;
    else
      high = middle;
  }
  return low < n && items[low] == item;
}

static void offer(float* scores, int32_t* items, int64_t k, float score, int32_t item,
                  const int32_t* excluded, int64_t n_excluded) {
  if (!worse(scores[0], items[0], score, item) || contains(excluded, n_excluded, item)) return;
  sift_down(scores, items, 0, k, score, item);
}

static void sort_best(float* scores, int32_t* items, int64_t k) {
  for (int64_t n = k - 1; n > 0; --n) {
    const float score = scores[n];
    const int32_t item = items[n];
    scores[n] = scores[0];
    items[n] = items[0];
    sift_down(scores, items, 0, n, score, item);
  }
}

constexpr int kUsersAtOnce = 4;
constexpr int64_t kPanelFloats = int64_t{1}
                                 << 15;  // panels that stay in the second-level cache for all users

// The scores of four users for sixteen items, offered to the users' heaps.
static ALWAYS_INLINE void meet_panel(const float* const* users, int n_users, const float* panel,
                                     const float* bias, int64_t first_item, const TopChoices& c,
                                     const int64_t* excluded_indptr, const int32_t* excluded, float* scores,
                                     int32_t* best) {
  Eight low[kUsersAtOnce], high[kUsersAtOnce];
  for (int m = 0; m < kUsersAtOnce; ++m) {
    low[m] = load(bias);
    high[m] = load(bias + 8);
  }
  for (int64_t f = 0; f < c.padded; ++f) {
    const Eight left = load(panel + f * 16), right = load(panel + f * 16 + 8);
    for (int m = 0; m < kUsersAtOnce; ++m) {
      const Eight x = all(users[m][f]);
      low[m] = fma(x, left, low[m]);
      high[m] = fma(x, right, high[m]);
    }
  }
  for (int m = 0; m < n_users; ++m) {
    float* heap = scores + m * c.k;
    const Eight floor = all(heap[0]);
    int hits = above(low[m], floor) | above(high[m], floor) << 8;
    if (!hits) continue;
    float values[16];
    store(values, low[m]);
    store(values + 8, high[m]);
    const int64_t begin = excluded_indptr ? excluded_indptr[m] : 0,
                  end = excluded_indptr ? excluded_indptr[m + 1] : 0;
    for (int64_t item = first_item; hits; ++item, hits >>= 1)
      if ((hits & 1) && item < c.n_items)
        offer(heap, best + m * c.k, c.k, values[item - first_item], static_cast<int32_t>(item),
              excluded + begin, end - begin);
  }
}

// Panels: sixteen items beside each other, factor by factor; the last panel is filled up with zeros.
static void top(const float* users, int64_t n_users, const float* panels, const float* bias,
                const int64_t* excluded_indptr, const int32_t* excluded, const TopChoices& c, float* scores,
                int32_t* best) {
  const int64_t n_panels = (c.n_items + 15) / 16;
  const int64_t at_once = kPanelFloats / (c.padded * 16) > 0 ? kPanelFloats / (c.padded * 16) : 1;
  for (int64_t m = 0; m < n_users * c.k; ++m) {
    scores[m] = -INFINITY;
    best[m] = 0x7fffffff;
  }
  for (int64_t start = 0; start < n_panels; start += at_once) {
    const int64_t stop = start + at_once < n_panels ? start + at_once : n_panels;
    for (int64_t first = 0; first < n_users; first += kUsersAtOnce) {
      const int n = static_cast<int>(n_users - first < kUsersAtOnce ? n_users - first : kUsersAtOnce);
      const float* four[kUsersAtOnce];  // a short group repeats its last user
      for (int m = 0; m < kUsersAtOnce; ++m) four[m] = users + (first + (m < n ? m : n - 1)) * c.padded;
      for (int64_t panel = start; panel < stop; ++panel)
        meet_panel(four, n, panels + panel * c.padded * 16, bias + panel * 16, panel * 16, c,
                   excluded_indptr ? excluded_indptr + first : nullptr, excluded, scores + first * c.k,
                   best + first * c.k);
    }
  }
  for (int64_t m = 0; m < n_users; ++m) sort_best(scores + m * c.k, best + m * c.k, c.k);
}

extern const FactorKernels factor_table;
const FactorKernels factor_table = {sgd, sgd_block, bpr, pairs, als, kl, gram, top};

}  // namespace STEEPEST_ISA
}  // namespace steepest
