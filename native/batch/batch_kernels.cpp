// SPDX-License-Identifier: Apache-2.0
// The inner loop of the batch solvers: score a row, find what it adds, and add it while the row is in cache.
//
// Kinked losses can be smoothed: the Moreau envelope of l at a is min over s of l(s) + (a - s)^2 / (2 mu),
// whose gradient u = (a - s) / mu is a gradient of l at s. The gap l(z) - l(s) - u (z - s) of Fenchel and
// Young, summed over rows, bounds how far the objective is from its minimum.
//
// Compiled once per instruction set, like linear_kernels.cpp; no standard library templates here.
#include "batch/batch_table.h"
#include "core/sparse_row.h"
#include "linear/losses.h"

namespace steepest {
namespace STEEPEST_ISA {

namespace {

struct RowLoss {
  double value, gradient, curvature;
  double plain, gap;  // the loss itself at the score, and the gap; differ from value and 0 if smoothed
};

// The envelope of a function with gradient `low` below zero and `high` above, at a; low <= 0 <= high.
RowLoss kink(double a, double low, double high, double mu) {
  if (a > mu * high) return {high * a - 0.5 * mu * high * high, high, 0, 0, 0};
  if (a < mu * low) return {low * a - 0.5 * mu * low * low, low, 0, 0, 0};
  return {a * a / (2 * mu), a / mu, 1 / mu, 0, 0};
}

RowLoss envelope(int loss, double parameter, double a, double y, double mu) {
  if (loss == kHinge || loss == kPerceptron) {
    RowLoss l = kink((loss == kHinge ? 1.0 : 0.0) - y * a, 0, 1, mu);
    l.gradient *= -y;
    return l;
  }
  const double r = a - y;
  if (loss == kQuantile) return kink(r, -parameter, 1 - parameter, mu);
  RowLoss l = kink(fabs(r) - parameter, 0, 1, mu);
  if (fabs(r) <= parameter) l = {0, 0, 0, 0, 0};
  l.gradient = r > 0 ? l.gradient : -l.gradient;
  return l;
}

bool has_kinks(int loss) {
  return loss == kHinge || loss == kPerceptron || loss == kEpsilonInsensitive || loss == kQuantile;
}

double second_derivative(int loss, double parameter, double z, double y, const LossAndGradient& l) {
  const double m = y * z;
  switch (loss) {
    case kSquaredHinge:
      return m < 1 ? 2 : 0;
    case kLog: {
      const double size = fabs(l.gradient);
      return size * (1 - size);
    }
    case kExponential:
      return l.value;
    case kModifiedHuber:
      return -1 <= m && m < 1 ? 2 : 0;
    case kSquared:
      return 1;
    case kHuber:
      return fabs(z - y) <= parameter ? 1 : 0;
    case kPoisson:
      return l.gradient + y;
    default:
      return 0;
  }
}

inline RowLoss row_loss(const BatchPass& t, double z, double y, double shift) {
  const LossAndGradient l = evaluate_loss(t.loss, t.parameter, z, y);
  if (!(t.smoothing > 0 && has_kinks(t.loss)))
    return {l.value, l.gradient, second_derivative(t.loss, t.parameter, z, y, l), l.value, 0};
  RowLoss smooth = envelope(t.loss, t.parameter, z + shift, y, t.smoothing);
  const double s = z + shift - t.smoothing * smooth.gradient;
  smooth.plain = l.value;
  smooth.gap = l.value - evaluate_loss(t.loss, t.parameter, s, y).value - smooth.gradient * (z - s);
  return smooth;
}

// log of the sum of exp(score) less the score of the class; gradients p - [class], curvature p.
RowLoss softmax_loss(int64_t k, double y, const double* scores, double* gradients, double* curvature) {
  const SoftmaxSum s = softmax(scores, k, gradients);
  if (curvature)
    for (int64_t o = 0; o < k; ++o) curvature[o] = gradients[o];
  const int64_t own = static_cast<int64_t>(y);
  const double value = s.top + log(s.sum) - scores[own];
  gradients[own] -= 1;
  return {value, 0, 0, value, 0};
}

// Gradients of one visit, from its scores; adds to the lane's totals.
void gradients_of_losses(const BatchPass& t, int64_t row, int64_t q, const double* scores, double* gradients,
                         double* totals) {
  const int64_t k = t.n_outputs;
  double* const curvature = t.curvature ? t.curvature + q * k : nullptr;
  const double weight = weight_at(t.rows, row);
  RowLoss sum = {0, 0, 0, 0, 0};
  if (t.target_kind == kSoftmax) {
    sum = softmax_loss(k, t.rows.y[row], scores, gradients, curvature);
  } else {
    for (int64_t o = 0; o < k; ++o) {
      const double y = target_at(t.rows, t.target_kind != kTargets, row, o);
      const RowLoss l = row_loss(t, scores[o], y, t.shift ? t.shift[q * k + o] : 0.0);
      gradients[o] = l.gradient;
      if (curvature) curvature[o] = l.curvature;
      sum.value += l.value;
      sum.plain += l.plain;
      sum.gap += l.gap;
    }
  }
  if (t.gradients)
    for (int64_t o = 0; o < k; ++o) t.gradients[q * k + o] = gradients[o];
  totals[kLossTotal] += weight * sum.value;
  totals[kPlainLossTotal] += weight * sum.plain;
  totals[kGapTotal] += weight * sum.gap;
}

void gradients_of_product(const BatchPass& t, int64_t q, const double* scores, double* gradients) {
  const int64_t k = t.n_outputs;
  const double* const curvature = t.curvature + q * k;
  double mean = 0;
  if (t.target_kind == kSoftmax)
    for (int64_t o = 0; o < k; ++o) mean += curvature[o] * scores[o];
  for (int64_t o = 0; o < k; ++o) gradients[o] = curvature[o] * (scores[o] - mean);
}

void gradients_of_diagonal(const BatchPass& t, int64_t q, double* gradients) {
  const int64_t k = t.n_outputs;
  const double* const curvature = t.curvature + q * k;
  for (int64_t o = 0; o < k; ++o)
    gradients[o] = t.target_kind == kSoftmax ? curvature[o] * (1 - curvature[o]) : curvature[o];
}

// Scores w.x + b of a row; false for an index out of range. Four sums, so that additions need not wait.
inline bool score_one(const BatchPass& t, const Row& row, double* score) {
  const double* const w = t.weights;
  if (!indices_fit(row, t.rows.n_features)) return false;
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  int64_t e = 0;
  for (; e + 4 <= row.n; e += 4) {
    s0 += w[row.index[e]] * row.value[e];
    s1 += w[row.index[e + 1]] * row.value[e + 1];
    s2 += w[row.index[e + 2]] * row.value[e + 2];
    s3 += w[row.index[e + 3]] * row.value[e + 3];
  }
  for (; e < row.n; ++e) s0 += w[row.index[e]] * row.value[e];
  *score = (s0 + s1) + (s2 + s3) + w[t.rows.n_features];
  return true;
}

inline bool score_many(const BatchPass& t, const Row& row, double* scores) {
  const int64_t k = t.n_outputs, d = t.rows.n_features;
  for (int64_t o = 0; o < k; ++o) scores[o] = t.weights[d * k + o];
  for (int64_t e = 0; e < row.n; ++e) {
    const int64_t j = row.index[e];
    if (j < 0 || j >= d) return false;
    const double* const w = t.weights + j * k;
    const double x = row.value[e];
    for (int64_t o = 0; o < k; ++o) scores[o] += w[o] * x;
  }
  return true;
}

template <bool kSquares>
inline void add_to_sums(const BatchPass& t, const Row& row, double weight, const double* gradients,
                        double* sums) {
  const int64_t k = t.n_outputs, d = t.rows.n_features;
  if (k == 1) {
    const double g = weight * gradients[0];
    if (g == 0) return;
    for (int64_t e = 0; e < row.n; ++e) {
      const double x = row.value[e];
      sums[row.index[e]] += g * (kSquares ? x * x : x);
    }
    sums[d] += g;
    return;
  }
  for (int64_t e = 0; e < row.n; ++e) {
    double* const to = sums + static_cast<int64_t>(row.index[e]) * k;
    const double x = row.value[e], c = weight * (kSquares ? x * x : x);
    for (int64_t o = 0; o < k; ++o) to[o] += c * gradients[o];
  }
  for (int64_t o = 0; o < k; ++o) sums[d * k + o] += weight * gradients[o];
}

void add_pairs(const BatchPass& t, const Row& row, const double* curvature, double weight, double* sums) {
  const int64_t d = t.rows.n_features, D = d + 1;
  for (int64_t o = 0; o < t.n_outputs; ++o) {
    const double h = weight * curvature[o];
    if (h == 0) continue;
    double* const matrix = sums + o * hessian_size(d);
    double* const squares = matrix + D * D;
    for (int64_t a = 0; a < row.n; ++a) {
      double* const line = matrix + row.index[a] * D;
      const double hx = h * row.value[a];
      squares[row.index[a]] += hx * row.value[a];
      for (int64_t b = a + 1; b < row.n; ++b) line[row.index[b]] += hx * row.value[b];
      line[d] += hx;
    }
    squares[d] += h;
  }
}

template <int kKind>
bool visit(const BatchPass& t, int64_t q, double* sums, double* totals, double* scores, double* gradients) {
  const int64_t i = row_at(t.rows, q);
  const double weight = weight_at(t.rows, i);
  const Row row = get_row(t.rows, i);
  // A row without curvature adds nothing, and was checked when its curvature was found: many rows of flat
  // losses.
  if (kKind != kGradient && t.n_outputs == 1 && t.curvature[q] == 0) return true;
  if (kKind == kHessian) {
    if (!indices_fit(row, t.rows.n_features)) return false;
    add_pairs(t, row, t.curvature + q * t.n_outputs, weight, sums);
    return true;
  }
  // The diagonal needs no scores, but the check of the indices that comes with them.
  if (!(t.n_outputs == 1 ? score_one(t, row, scores) : score_many(t, row, scores))) return false;
  for (int64_t o = 0; o < t.n_outputs; ++o)
    if (!isfinite(scores[o])) return false;
  if (kKind == kGradient) gradients_of_losses(t, i, q, scores, gradients, totals);
  if (kKind == kProduct) gradients_of_product(t, q, scores, gradients);
  if (kKind == kDiagonal) gradients_of_diagonal(t, q, gradients);
  if (sums) add_to_sums<kKind == kDiagonal>(t, row, weight, gradients, sums);
  return true;
}

template <int kKind>
int64_t run(const BatchPass& t, int64_t lane, double* scratch) {
  const int64_t d = t.rows.n_features, k = t.n_outputs;
  const int64_t width = (kKind == kHessian ? hessian_size(d) : d + 1) * k;
  double* const sums = t.sums ? t.sums + lane * width : nullptr;
  double* const totals = t.totals + lane * kTotals;
  const int64_t block = t.block_rows, last = t.first_visit + t.rows.n;
  const int64_t first_block = t.first_visit / block;
  for (int64_t b = first_block + (lane - first_block % t.n_lanes + t.n_lanes) % t.n_lanes; b * block < last;
       b += t.n_lanes) {
    const int64_t from = b * block > t.first_visit ? b * block : t.first_visit;
    const int64_t to = (b + 1) * block < last ? (b + 1) * block : last;
    for (int64_t place = from; place < to; ++place)
      if (!visit<kKind>(t, place - t.first_visit, sums, totals, scratch, scratch + k))
        return place - t.first_visit;
  }
  return t.rows.n;
}

int64_t run_lane(const BatchPass& t, int64_t lane, double* scratch) {
  switch (t.kind) {
    case kGradient:
      return run<kGradient>(t, lane, scratch);
    case kProduct:
      return run<kProduct>(t, lane, scratch);
    case kHessian:
      return run<kHessian>(t, lane, scratch);
    default:
      return run<kDiagonal>(t, lane, scratch);
  }
}

}  // namespace

// In files of their own.
template <typename W>
DualOutcome dual_sweep(const Rows&, const DualChoices&, DualRow*, void*, DualBias*, int64_t*);
int64_t add_rows(const Rows&, const double*, double*);
void row_squares(const Rows&, double*);
int64_t saga(const Rows&, const SagaChoices&, const double*, double*, SagaFeature*, SagaBias*);
double cd_cycle(const Rows&, const CdModel&, const int64_t*, int64_t);
void cd_diagonal(const Rows&, const float*, const int64_t*, int64_t, double*);

extern const BatchKernels batch_table;
const BatchKernels batch_table = {
    run_lane, {dual_sweep<float>, dual_sweep<double>}, add_rows, row_squares, saga, cd_cycle, cd_diagonal};

}  // namespace STEEPEST_ISA
}  // namespace steepest
