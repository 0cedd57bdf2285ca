// SPDX-License-Identifier: Apache-2.0
// Coordinate descent on a quadratic model of the objective, feature by feature (Yuan, Ho and Lin 2012):
//
//   model(d) = gradient.d + 1/2 sum of h_i (x_i.d)^2 + l2/2 |w + d|^2 + l1 |w + d|_1,    u_i = h_i (x_i.d)
//
// The rows here are the columns of the data. u and h are floats, so that they stay in cache; they live for
// one model only, and its errors are mended by the next.
//
// This file is compiled once per instruction set; no standard library templates (see linear_kernels.cpp).
#include "batch/batch_table.h"
#include "core/sparse_row.h"

namespace steepest {
namespace STEEPEST_ISA {

static inline void add_scaled(float* u, const float* h, const Row& column, double change) {
  const float s = static_cast<float>(change);
  for (int64_t k = 0; k < column.n; ++k) u[column.index[k]] += s * column.value[k] * h[column.index[k]];
}

// The bias is a feature that is 1 in every row, without penalty; its place is behind the last feature.
static double move_bias(const CdModel& m) {
  double gradient = m.bias_gradient, curvature = 0;
  for (int64_t i = 0; i < m.n_rows; ++i) {
    gradient += static_cast<double>(m.u[i]);
    curvature += static_cast<double>(m.h[i]);
  }
  if (!(curvature > 0)) return 0;
  const double change = -gradient / curvature;
  const float s = static_cast<float>(change);
  for (int64_t i = 0; i < m.n_rows; ++i) m.u[i] += s * m.h[i];
  *m.bias += change;
  return fabs(gradient);
}

double cd_cycle(const Rows& columns, const CdModel& m, const int64_t* set, int64_t n_set) {
  double violation = m.fit_intercept ? move_bias(m) : 0;
  for (int64_t k = 0; k < n_set; ++k) {
    const int64_t j = set[k];
    const Row column = get_row(columns, j);
    if (k + 2 < n_set) {
      const Row next = get_row(columns, set[k + 2]);
      fetch_entries({next.index, next.value, smaller(next.n, 128)});
    }
    const double gradient = m.gradient[j] + m.l2 * m.w[j] + dot(m.u, column);
    const double curvature = m.diagonal[j] + m.l2;
    if (!(curvature > 0)) continue;
    const double fresh = soft_threshold(curvature * m.w[j] - gradient, m.l1) / curvature;
    const double change = fresh - m.w[j];
    if (change == 0) continue;
    violation += fabs(change) * curvature;
    m.w[j] = fresh;
    add_scaled(m.u, m.h, column, change);
  }
  return violation;
}

void cd_diagonal(const Rows& columns, const float* h, const int64_t* set, int64_t n_set, double* diagonal) {
  for (int64_t k = 0; k < n_set; ++k) {
    const Row column = get_row(columns, set[k]);
    double a = 0, b = 0;
    int64_t e = 0;
    for (; e + 2 <= column.n; e += 2) {
      a += static_cast<double>(h[column.index[e]]) * column.value[e] * column.value[e];
      b += static_cast<double>(h[column.index[e + 1]]) * column.value[e + 1] * column.value[e + 1];
    }
    if (e < column.n) a += static_cast<double>(h[column.index[e]]) * column.value[e] * column.value[e];
    diagonal[set[k]] = a + b;
  }
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
