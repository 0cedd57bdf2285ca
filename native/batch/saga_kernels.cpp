// SPDX-License-Identifier: Apache-2.0
// SAGA (Defazio, Bach and Lacoste-Julien 2014): one visit of each row of an order.
//
//   w <- flow(w - eta (g - old g) x), then old g <- g and mean <- mean + (g - old g) x / n
//
// where flow moves every weight by eta along -(mean + l1 sign w), stopping at zero where the 1-norm holds it,
// and divides by 1 + eta l2. Flows add up, so a feature takes its share of all steps since it was last seen
// at once: w = P v, and Q is the sum of 1 / P over the steps.
//
// This file is compiled once per instruction set; no standard library templates (see linear_kernels.cpp).
#include "batch/batch_table.h"
#include "core/sparse_row.h"
#include "linear/losses.h"

namespace steepest {
namespace STEEPEST_ISA {

constexpr double kSmallestSagaScale = 1e-8;  // doubles have room for that

// v after moving by `amount` along -(mean + l1 sign v).
static inline double flow(double v, double mean, double l1, double amount) {
  if (l1 == 0) return v - mean * amount;
  if (v != 0) {
    const double speed = v > 0 ? mean + l1 : mean - l1;
    const double moved = v - speed * amount;
    if (moved * v > 0) return moved;
    amount -= v / speed;  // zero is reached: speed is not 0 and has the sign of v
  }
  return -soft_threshold(mean, l1) * amount;
}

// All features take their shares, and v becomes w.
static void write_back(SagaFeature* features, int64_t n, double l1, double eta, double Q, double P) {
  for (int64_t j = 0; j < n; ++j) {
    SagaFeature& f = features[j];
    f.v = P * flow(f.v, f.mean, l1, eta * (Q - f.paid));
    f.paid = 0;
  }
}

int64_t saga(const Rows& rows, const SagaChoices& c, const double* share, double* gradients,
             SagaFeature* features, SagaBias* bias) {
  const double kept = 1 / (1 + c.eta * c.l2);
  const double per_row = 1.0 / static_cast<double>(rows.n);
  double P = 1, Q = 0;
  int64_t q = 0;
  for (; q < rows.n; ++q) {
    fetch_ahead(rows, rows.order, q, rows.n);
    if (q + 6 < rows.n) {
      PREFETCH(gradients + rows.order[q + 6]);
      PREFETCH(rows.y + rows.order[q + 6]);
    }
    const int64_t i = rows.order[q];
    const Row row = get_row(rows, i);
    if (!indices_fit(row, rows.n_features)) break;
    double score = 0;
    for (int64_t k = 0; k < row.n; ++k) {
      SagaFeature& f = features[row.index[k]];
      f.v = flow(f.v, f.mean, c.l1, c.eta * (Q - f.paid));
      f.paid = Q;
      score += f.v * row.value[k];
    }
    const double z = P * score + bias->bias;
    const double gradient = share[i] * evaluate_loss(c.loss, c.parameter, z, rows.y[i]).gradient;
    if (!isfinite(z) || !isfinite(gradient)) break;
    const double change = gradient - gradients[i];
    gradients[i] = gradient;
    // The mean counts the new gradient already when the flow of this step is paid: that much is taken back.
    const double step = -c.eta * change * (1 - per_row) / P;
    for (int64_t k = 0; k < row.n; ++k) {
      SagaFeature& f = features[row.index[k]];
      f.v += step * row.value[k];
      f.mean += per_row * change * row.value[k];
    }
    if (c.fit_intercept) {
      bias->bias -= c.eta * (change + bias->mean);
      bias->mean += per_row * change;
    }
    Q += 1 / P;
    P *= kept;
    if (P < kSmallestSagaScale) {
      write_back(features, rows.n_features, c.l1, c.eta, Q, P);
      P = 1, Q = 0;
    }
  }
  write_back(features, rows.n_features, c.l1, c.eta, Q, P);
  return q;
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
