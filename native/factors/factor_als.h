// SPDX-License-Identifier: Apache-2.0
// Alternating solvers: each row of one side with the other side fixed. Least squares by their normal
// equations, exactly, by conjugate gradients or above zero; the generalised Kullback-Leibler divergence by
// multiplicative steps. Compiled once per instruction set, so no standard templates.
#pragma once
#include "core/simd.h"
#include "factors/factor_table.h"

namespace steepest {
namespace STEEPEST_ISA {

static ALWAYS_INLINE bool outside(int32_t row, int64_t n) { return static_cast<uint32_t>(row) >= n; }

static ALWAYS_INLINE void prefetch_row(const float* row, int64_t n_floats) {
  for (int64_t j = 0; j < n_floats; j += 16) PREFETCH(row + j);
}

static ALWAYS_INLINE float dot(const float* p, const float* q, int64_t padded) {
  Float8 a = all(0), b = all(0);
  int64_t j = 0;
  for (; j + 16 <= padded; j += 16) {
    a = fma(load(p + j), load(q + j), a);
    b = fma(load(p + j + 8), load(q + j + 8), b);
  }
  if (j < padded) a = fma(load(p + j), load(q + j), a);
  return sum(add(a, b));
}

static ALWAYS_INLINE void add_scaled(float* to, const float* from, float scale, int64_t padded) {
  const Float8 s = all(scale);
  for (int64_t j = 0; j < padded; j += 8) store(to + j, fma(s, load(from + j), load(to + j)));
}

// Four rows at once: what they are added to, or multiplied by, is then read a quarter as often.
static ALWAYS_INLINE void add_four(float* to, const float* const* rows, const float* scales, int64_t padded) {
  const Float8 a = all(scales[0]), b = all(scales[1]), c = all(scales[2]), d = all(scales[3]);
  for (int64_t j = 0; j < padded; j += 8) {
    const Float8 first = fma(b, load(rows[1] + j), fma(a, load(rows[0] + j), load(to + j)));
    store(to + j, add(first, fma(d, load(rows[3] + j), mul(c, load(rows[2] + j)))));
  }
}

static ALWAYS_INLINE void dot_four(const float* const* rows, const float* x, int64_t padded, float* out) {
  Float8 sums[4] = {all(0), all(0), all(0), all(0)};
  for (int64_t j = 0; j < padded; j += 8) {
    const Float8 factor = load(x + j);
    for (int m = 0; m < 4; ++m) sums[m] = fma(load(rows[m] + j), factor, sums[m]);
  }
  for (int m = 0; m < 4; ++m) out[m] = sum(sums[m]);
}

// to += sum over up to four rows of w x x', the lower left and what shares its vectors.
static void add_squares(float* to, const float* const* rows, const float* w, int64_t n, int64_t padded) {
  if (n < 4) {
    for (int64_t t = 0; t < n; ++t)
      for (int64_t i = 0; i < padded; ++i) {
        const Float8 x = all(w[t] * rows[t][i]);
        for (int64_t j = 0; j <= i; j += 8)
          store(to + i * padded + j, fma(x, load(rows[t] + j), load(to + i * padded + j)));
      }
    return;
  }
  const float *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
  for (int64_t i = 0; i < padded; i += 2) {
    const Float8 a0 = all(w[0] * a[i]), b0 = all(w[1] * b[i]), c0 = all(w[2] * c[i]), d0 = all(w[3] * d[i]);
    const Float8 a1 = all(w[0] * a[i + 1]), b1 = all(w[1] * b[i + 1]), c1 = all(w[2] * c[i + 1]),
                 d1 = all(w[3] * d[i + 1]);
    for (int64_t j = 0; j <= i; j += 8) {
      const Float8 aj = load(a + j), bj = load(b + j), cj = load(c + j), dj = load(d + j);
      float *first = to + i * padded + j, *second = first + padded;
      store(first, fma(d0, dj, fma(c0, cj, fma(b0, bj, fma(a0, aj, load(first))))));
      store(second, fma(d1, dj, fma(c1, cj, fma(b1, bj, fma(a1, aj, load(second))))));
    }
  }
}

static void gram(const float* rows, int64_t first, int64_t last, int64_t padded, float* out) {
  const float ones[4] = {1, 1, 1, 1};
  for (int64_t t = first; t < last; t += 4) {
    const float* const row = rows + t * padded;
    const float* four[4] = {row, row + padded, row + 2 * padded, row + 3 * padded};
    add_squares(out, four, ones, last - t < 4 ? last - t : 4, padded);
  }
}

// L L' = matrix, in place in the lower triangle; false if the matrix is not positive definite.
static bool factorise(float* matrix, int64_t rank, int64_t padded) {
  for (int64_t i = 0; i < rank; ++i) {
    float* row = matrix + i * padded;
    for (int64_t j = 0; j <= i; ++j) {
      const float* other = matrix + j * padded;
      Float8 a = all(0);
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

// The known entries of one row; fetches their rows of the other side. False if an index is out of range.
static bool fetch_known(const FactorSide& side, int64_t row) {
  for (int64_t t = side.indptr[row]; t < side.indptr[row + 1]; ++t) {
    if (outside(side.indices[t], side.n_other)) return false;
    prefetch_row(side.other + side.indices[t] * side.padded, side.padded);
  }
  return true;
}

// The normal equations A x = b of one row. Explicit: A = sum w x x' + ridge, b = sum w v x. Implicit:
// A = gram + sum v x x' + ridge, b = sum (1 + v) x. Zeros: A = gram + ridge, b = sum v x, the same A for all
// rows.
struct Equations {
  const AlsChoices& c;
  const float *other, *gram;
  int64_t padded;
  const int32_t* index;
  const float *value, *weight;
  int64_t n;
  float ridge;

  Equations(const AlsTask& task, int64_t row)
      : c(task.choices),
        other(task.side.other),
        gram(task.gram),
        padded(task.side.padded),
        index(task.side.indices + task.side.indptr[row]),
        value(task.side.values + task.side.indptr[row]),
        weight(task.side.weights ? task.side.weights + task.side.indptr[row] : nullptr),
        n(task.side.indptr[row + 1] - task.side.indptr[row]),
        ridge(task.ridge[row]) {}

  ALWAYS_INLINE const float* row(int64_t t) const { return other + index[t] * padded; }
  ALWAYS_INLINE float weight_of(int64_t t) const { return weight ? weight[t] : 1.0f; }
  ALWAYS_INLINE float square_weight(int64_t t) const { return gram ? value[t] : weight_of(t); }
  ALWAYS_INLINE float target_weight(int64_t t) const {
    return c.zeros ? value[t] : gram ? 1.0f + value[t] : value[t] * weight_of(t);
  }
  ALWAYS_INLINE int64_t n_squares() const { return c.zeros ? 0 : n; }  // entries that change A

  void right_side(float* b) const {
    memset(b, 0, sizeof(float) * padded);
    for (int64_t t = 0; t < n; ++t) add_scaled(b, row(t), target_weight(t), padded);
  }

  // The lower left of A.
  void left_side(float* matrix) const {
    if (gram)
      memcpy(matrix, gram, sizeof(float) * padded * padded);
    else
      memset(matrix, 0, sizeof(float) * padded * padded);
    const int64_t n_known = n_squares();
    for (int64_t t = 0; t < n_known; t += 4) {
      const float* rows[4];
      float weights[4];
      const int64_t m = n_known - t < 4 ? n_known - t : 4;
      for (int64_t k = 0; k < m; ++k) {
        rows[k] = row(t + k);
        weights[k] = square_weight(t + k);
      }
      add_squares(matrix, rows, weights, m, padded);
    }
    for (int64_t j = 0; j < c.rank; ++j) matrix[j * padded + j] += j == c.bias_at ? c.bias_ridge : ridge;
  }

  // out = A x without ever forming A.
  void times(const float* x, float* out) const {
    for (int64_t j = 0; j < padded; j += 8) store(out + j, mul(all(ridge), load(x + j)));
    if (c.bias_at >= 0) out[c.bias_at] = c.bias_ridge * x[c.bias_at];
    for (int64_t j = 0; j < padded && gram; j += 4) {  // beyond the rank x is zero
      const float* const row = gram + j * padded;
      const float* rows[4] = {row, row + padded, row + 2 * padded, row + 3 * padded};
      add_four(out, rows, x + j, padded);
    }
    for (int64_t t = 0; t < n_squares(); t += 4) {
      const float* rows[4];
      float scales[4];
      for (int64_t m = 0; m < 4; ++m) rows[m] = row(t + m < n ? t + m : t);
      dot_four(rows, x, padded, scales);
      for (int64_t m = 0; m < 4; ++m)  // a short group repeats its first row with weight zero
        scales[m] = t + m < n ? scales[m] * square_weight(t + m) : 0.0f;
      add_four(out, rows, scales, padded);
    }
  }
};

// `ready` is the ridge whose matrix is factorised in scratch already, if no entry changes the matrix.
static bool solve_exactly(const Equations& a, float* x, float* scratch, float* ready) {
  a.right_side(x);
  if (!a.c.zeros || *ready != a.ridge) {
    a.left_side(scratch);
    if (!factorise(scratch, a.c.rank, a.padded)) return false;
    *ready = a.ridge;
  }
  substitute(scratch, x, a.c.rank, a.padded);
  return true;
}

static bool solve_by_gradients(const Equations& a, float* x, float* scratch, float*) {
  const int64_t padded = a.padded;
  float *residual = scratch, *direction = scratch + padded, *image = scratch + 2 * padded;
  a.right_side(residual);
  a.times(x, image);
  add_scaled(residual, image, -1, padded);
  memcpy(direction, residual, sizeof(float) * padded);
  float square = dot(residual, residual, padded);
  for (int32_t step = 0; step < a.c.cg_steps && square > 1e-20f; ++step) {
    a.times(direction, image);
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
static bool solve_above_zero(const Equations& a, float* x, float* scratch, float*) {
  const int64_t padded = a.padded;
  float* gradient = scratch + padded * padded;  // A x - b
  a.left_side(scratch);
  for (int64_t i = 0; i < padded; ++i)
    for (int64_t j = 0; j < i; ++j) scratch[j * padded + i] = scratch[i * padded + j];
  a.right_side(gradient);
  for (int64_t j = 0; j < padded; j += 8) store(gradient + j, mul(all(-1), load(gradient + j)));
  for (int64_t j = 0; j < a.c.rank; ++j) add_scaled(gradient, scratch + j * padded, x[j], padded);
  for (int sweep = 0; sweep < 3; ++sweep)
    for (int64_t j = 0; j < a.c.rank; ++j) {
      const float diagonal = scratch[j * padded + j];
      if (!(diagonal > 0)) continue;
      const float best = x[j] - gradient[j] / diagonal, next = best > 0 ? best : 0;
      add_scaled(gradient, scratch + j * padded, next - x[j], padded);
      x[j] = next;
    }
  return x[0] == x[0];
}

static int64_t als(const AlsTask& task, int64_t first, int64_t last, float* scratch) {
  const AlsChoices& c = task.choices;
  const auto solve = c.nonnegative ? solve_above_zero : c.cg_steps > 0 ? solve_by_gradients : solve_exactly;
  float ready = -1;
  for (int64_t i = first; i < last; ++i)
    if (!fetch_known(task.side, i) ||
        !solve(Equations(task, i), task.side.solved + i * task.side.padded, scratch, &ready))
      return i;
  return last;
}

// x_f <- x_f (sum over known v / s y_f) / sums_f with s = x y; each step lowers the divergence (Lee and Seung
// 2001). Also adds up sum of v log(v / s) - v after the last step; the caller adds the sum of all s.
static int64_t kl(const KlTask& task, int64_t first, int64_t last, float* scratch, double* loss) {
  const FactorSide& side = task.side;
  const int64_t padded = side.padded;
  for (int64_t i = first; i < last; ++i) {
    const int64_t begin = side.indptr[i], end = side.indptr[i + 1];
    float* x = side.solved + i * padded;
    if (!fetch_known(side, i)) return i;
    for (int32_t step = 0; step < task.steps; ++step) {
      memset(scratch, 0, sizeof(float) * padded);
      for (int64_t t = begin; t < end; ++t) {
        const float* y = side.other + side.indices[t] * padded;
        add_scaled(scratch, y, side.values[t] / (dot(x, y, padded) + 1e-30f), padded);
      }
      for (int64_t j = 0; j < padded; ++j) x[j] = task.sums[j] > 0 ? x[j] * scratch[j] / task.sums[j] : 0;
    }
    for (int64_t t = begin; t < end && loss; ++t) {
      const double v = side.values[t], s = dot(x, side.other + side.indices[t] * padded, padded) + 1e-30f;
      if (v > 0) *loss += v * log(v / s) - v;
    }
    if (!(x[0] == x[0])) return i;
  }
  return last;
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
