// SPDX-License-Identifier: Apache-2.0
// Dual coordinate descent: one sweep over the rows, each step the exact optimum of one dual variable.
//
// The primal problem is |w|^2 / 2 + sum C_i l(z_i, y_i) with z_i = w.x_i + b. Every loss but the logistic is
// the largest of -(z - y) beta - D beta^2 / 2 - e |beta| over beta in [low, high] (times C_i), so its dual is
// a quadratic in a box, and a step is a division and a clip. The logistic loss takes a Newton step in z.
//
// This file is compiled once per instruction set; no standard library templates (see linear_kernels.cpp).
#include "batch/batch_table.h"
#include "core/sparse_row.h"
#include "linear/losses.h"

namespace steepest {
namespace STEEPEST_ISA {

static inline double clip(double x, double low, double high) { return x < low ? low : (x > high ? high : x); }

constexpr double kInfinity = HUGE_VAL;

// The dual form of a loss of weight C: the box, the curvature D and the width e.
struct Box {
  double low, high, target, diagonal, width;
};

static inline Box box_of(const DualChoices& c, double y, double C) {
  const double positive = y > 0 ? 1.0 : 0.0;
  switch (c.loss) {
    case kHinge:
      return {(positive - 1) * C, positive * C, y, 0, 0};
    case kSquaredHinge:
      return {y > 0 ? 0 : -kInfinity, y > 0 ? kInfinity : 0, y, 0.5 / C, 0};
    case kModifiedHuber:
      return {(positive - 1) * 4 * C, positive * 4 * C, y, 0.5 / C, 0};
    case kHuber:
      return {-c.parameter * C, c.parameter * C, y, 1 / C, 0};
    case kEpsilonInsensitive:
      return {-C, C, y, 0, c.parameter};
    case kQuantile:
      return {-(1 - c.parameter) * C, c.parameter * C, y, 0, 0};
    default:  // kSquared
      return {-kInfinity, kInfinity, y, 1 / C, 0};
  }
}

struct Step {
  double beta;      // the new dual variable
  double gap;       // what the row added to the duality gap before the step
  double gradient;  // the projected gradient
  bool stuck;       // at its bound, and pressed against it
};

static inline Step box_step(const DualChoices& c, const DualRow& r, double z) {
  const Box box = box_of(c, r.y, r.cap);
  const double gradient = z - box.target + box.diagonal * r.beta;
  const double curvature = r.square + box.diagonal;
  const double pull = soft_threshold(box.target - z, box.width);
  const double best = box.diagonal > 0 ? clip(pull / box.diagonal, box.low, box.high)
                                       : (pull > 0 ? box.high : (pull < 0 ? box.low : 0.0));
  const double goal =
      curvature > 0 ? soft_threshold(curvature * r.beta - gradient, box.width) / curvature : best;
  double relaxed = r.beta + (curvature > 0 ? c.relax : 1.0) * (goal - r.beta);
  if (box.width > 0 && relaxed * goal <= 0) relaxed = 0;  // beyond a kink further on is not better
  const double beta = clip(relaxed, box.low, box.high);
  const double distance = r.beta - best;
  const double gap = (z - box.target) * distance + 0.5 * box.diagonal * distance * (r.beta + best) +
                     box.width * (fabs(r.beta) - fabs(best));
  double projected = gradient + (r.beta > 0 ? box.width : (r.beta < 0 ? -box.width : 0.0));
  bool stuck = false;
  if (r.beta <= box.low && projected >= 0) {
    stuck = projected > c.most_gradient;
    projected = 0;
  } else if (r.beta >= box.high && projected <= 0) {
    stuck = projected < c.least_gradient;
    projected = 0;
  } else if (r.beta == 0 && box.width > 0) {
    const double spare = box.width - fabs(gradient);
    stuck = spare > c.most_gradient && -spare < c.least_gradient;
    projected = -soft_threshold(-gradient, box.width);
  }
  return {beta, gap, projected, stuck};
}

// At the optimum of one variable alpha = y beta the margin m' = m + q (alpha' - alpha) and alpha' = C s(-m')
// agree: the root of a rising function between alpha' = 0 and alpha' = C, found by Newton steps from m.
static inline Step log_step(const DualChoices&, const DualRow& r, double z) {
  const double m = r.y * z, alpha = r.y * r.beta, q = r.square, C = r.cap;
  double low = m - q * alpha, high = low + q * C, at = m;
  double gap = 0;
  for (int turn = 0; turn < 20; ++turn) {
    const double share = 1 / (1 + exp(at));  // s(-at); an overflow of exp is a share of 0
    const double spread = share * (1 - share);
    const double wrong = at - m + q * (alpha - C * share);
    if (turn == 0) {  // the divergence between the two shares, to second order
      const double own = alpha / C, distance = own - share, own_spread = own * (1 - own);
      const double scale = spread > own_spread ? spread : own_spread;
      gap = scale > 0 ? 0.5 * C * distance * distance / scale : 0;
    }
    (wrong > 0 ? high : low) = at;
    double next = at - wrong / (1 + q * C * spread);
    if (!(next >= low && next <= high)) next = 0.5 * (low + high);
    const double moved = fabs(next - at);
    at = next;
    if (moved < 1e-2) break;  // the error left is of the order of its square, and the next visit mends it
  }
  const double fresh = q > 0 ? clip(alpha + (at - m) / q, 0, C) : C / (1 + exp(m));
  return {r.y * fresh, gap, fresh - alpha, false};
}

template <typename W, Step (*kStep)(const DualChoices&, const DualRow&, double)>
static DualOutcome sweep_with(const Rows& rows, const DualChoices& c, DualRow* state, void* weights,
                              DualBias* bias, int64_t* active) {
  W* w = static_cast<W*>(weights);
  int64_t n = rows.n;
  DualOutcome out = {n, kFine, 0, kInfinity, -kInfinity};
  for (int64_t q = 0; q < n; ++q) {
    fetch_ahead(rows, active, q, n);
    if (q + 6 < n) PREFETCH(state + active[q + 6]);
    const int64_t i = active[q];
    DualRow& r = state[i];
    const Row row = get_row(rows, i);
    if (!indices_fit(row, rows.n_features)) return {q, kBadIndex, 0, 0, 0};
    if (r.cap <= 0) continue;
    const double z = dot(w, row) + bias->bias;
    if (!isfinite(z)) return {q, kNotFinite, 0, 0, 0};
    const Step step = kStep(c, r, z);
    out.gap += step.gap;
    if (step.stuck) {
      --n;
      active[q] = active[n];
      active[n] = i;
      --q;
      continue;
    }
    out.most_gradient = step.gradient > out.most_gradient ? step.gradient : out.most_gradient;
    out.least_gradient = step.gradient < out.least_gradient ? step.gradient : out.least_gradient;
    const double change = step.beta - r.beta;
    if (change == 0) continue;
    r.beta = step.beta;
    add_row(w, row, change);
    bias->bias += c.bias_step * change;
    bias->sum += change;
  }
  out.n_active = n;
  return out;
}

template <typename W>
DualOutcome dual_sweep(const Rows& rows, const DualChoices& c, DualRow* state, void* w, DualBias* bias,
                       int64_t* active) {
  return c.loss == kLog ? sweep_with<W, log_step>(rows, c, state, w, bias, active)
                        : sweep_with<W, box_step>(rows, c, state, w, bias, active);
}
template DualOutcome dual_sweep<float>(const Rows&, const DualChoices&, DualRow*, void*, DualBias*, int64_t*);
template DualOutcome dual_sweep<double>(const Rows&, const DualChoices&, DualRow*, void*, DualBias*,
                                        int64_t*);

int64_t add_rows(const Rows& rows, const double* amount, double* w) {
  for (int64_t i = 0; i < rows.n; ++i) {
    const Row row = get_row(rows, i);
    if (!indices_fit(row, rows.n_features)) return i;
    if (amount[i] != 0) add_row(w, row, amount[i]);
  }
  return rows.n;
}

void row_squares(const Rows& rows, double* squares) {
  for (int64_t i = 0; i < rows.n; ++i) {
    const Row row = get_row(rows, i);
    squares[i] = squared_length(row.value, row.n);
  }
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
