// SPDX-License-Identifier: Apache-2.0
// Alternating least squares: each row of one side solves its normal equations, exactly, by conjugate
// gradients or above zero. Compiled once per instruction set, so no standard templates.
#pragma once
#include "factor_rows.h"

namespace steepest {
namespace STEEPEST_ISA {

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

}  // namespace STEEPEST_ISA
}  // namespace steepest
