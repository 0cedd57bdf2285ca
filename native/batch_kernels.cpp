// SPDX-License-Identifier: Apache-2.0
// The inner loop of the batch solvers: score a row, find what it adds, and add it while the row is in cache.
//
// Kinked losses can be smoothed: the Moreau envelope of l at a is min over s of l(s) + (a - s)^2 / (2 mu),
// whose slope u = (a - s) / mu is a slope of l at s. The gap l(z) - l(s) - u (z - s) of Fenchel and Young,
// summed over rows, bounds how far the objective is from its minimum.
//
// Compiled once per instruction set, like linear_kernels.cpp; no standard library templates here.
#include "batch_table.h"
#include "losses.h"
#include "sparse_row.h"

namespace steepest {
namespace STEEPEST_ISA {

namespace {

struct RowLoss {
  double value, slope, curvature;
  double plain, gap;  // the loss itself at the score, and the gap; differ from value and 0 if smoothed
};

// The envelope of a function with slope `low` below zero and `high` above, at a; low <= 0 <= high.
RowLoss kink(double a, double low, double high, double mu) {
  if (a > mu * high) return {high * a - 0.5 * mu * high * high, high, 0, 0, 0};
  if (a < mu * low) return {low * a - 0.5 * mu * low * low, low, 0, 0, 0};
  return {a * a / (2 * mu), a / mu, 1 / mu, 0, 0};
}

RowLoss envelope(int loss, double parameter, double a, double y, double mu) {
  if (loss == kHinge || loss == kPerceptron) {
    RowLoss l = kink((loss == kHinge ? 1.0 : 0.0) - y * a, 0, 1, mu);
    l.slope *= -y;
    return l;
  }
  const double r = a - y;
  if (loss == kQuantile) return kink(r, -parameter, 1 - parameter, mu);
  RowLoss l = kink(fabs(r) - parameter, 0, 1, mu);
  if (fabs(r) <= parameter) l = {0, 0, 0, 0, 0};
  l.slope = r > 0 ? l.slope : -l.slope;
  return l;
}

bool has_kinks(int loss) {
  return loss == kHinge || loss == kPerceptron || loss == kEpsilonInsensitive || loss == kQuantile;
}

double second_derivative(int loss, double parameter, double z, double y, const LossAndSlope& l) {
  const double m = y * z;
  switch (loss) {
    case kSquaredHinge:
      return m < 1 ? 2 : 0;
    case kLog: {
      const double size = fabs(l.slope);
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
      return l.slope + y;
    default:
      return 0;
  }
}

inline RowLoss row_loss(const BatchTask& t, double z, double y, double shift) {
  const LossAndSlope l = evaluate_loss(t.loss, t.parameter, z, y);
  if (!(t.smoothing > 0 && has_kinks(t.loss)))
    return {l.value, l.slope, second_derivative(t.loss, t.parameter, z, y, l), l.value, 0};
  RowLoss smooth = envelope(t.loss, t.parameter, z + shift, y, t.smoothing);
  const double s = z + shift - t.smoothing * smooth.slope;
  smooth.plain = l.value;
  smooth.gap = l.value - evaluate_loss(t.loss, t.parameter, s, y).value - smooth.slope * (z - s);
  return smooth;
}

// log of the sum of exp(score) less the score of the class; slopes p - [class], curvature p.
RowLoss softmax(int64_t k, double y, const double* scores, double* slopes, double* curvature) {
  double top = scores[0], sum = 0;
  for (int64_t o = 1; o < k; ++o) top = scores[o] > top ? scores[o] : top;
  for (int64_t o = 0; o < k; ++o) sum += slopes[o] = exp(scores[o] - top);
  for (int64_t o = 0; o < k; ++o) slopes[o] /= sum;
  if (curvature)
    for (int64_t o = 0; o < k; ++o) curvature[o] = slopes[o];
  const int64_t own = static_cast<int64_t>(y);
  const double value = top + log(sum) - scores[own];
  slopes[own] -= 1;
  return {value, 0, 0, value, 0};
}

// Slopes of one visit, from its scores; adds to the lane's totals.
void slopes_of_losses(const BatchTask& t, int64_t row, int64_t q, const double* scores, double* slopes,
                      double* totals) {
  const int64_t k = t.rows.n_outputs;
  double* const curvature = t.curvature ? t.curvature + q * k : nullptr;
  const double weight = t.rows.weight ? t.rows.weight[row] : 1.0;
  RowLoss sum = {0, 0, 0, 0, 0};
  if (t.target_kind == kSoftmax) {
    sum = softmax(k, t.rows.y[row], scores, slopes, curvature);
  } else {
    for (int64_t o = 0; o < k; ++o) {
      const double y = t.target_kind == kTargets ? t.rows.y[row * k + o]
                                                 : (t.rows.y[row] == static_cast<double>(o) ? 1.0 : -1.0);
      const RowLoss l = row_loss(t, scores[o], y, t.shift ? t.shift[q * k + o] : 0.0);
      slopes[o] = l.slope;
      if (curvature) curvature[o] = l.curvature;
      sum.value += l.value;
      sum.plain += l.plain;
      sum.gap += l.gap;
    }
  }
  if (t.slopes)
    for (int64_t o = 0; o < k; ++o) t.slopes[q * k + o] = slopes[o];
  totals[kLossTotal] += weight * sum.value;
  totals[kPlainLossTotal] += weight * sum.plain;
  totals[kGapTotal] += weight * sum.gap;
}

void slopes_of_product(const BatchTask& t, int64_t q, const double* scores, double* slopes) {
  const int64_t k = t.rows.n_outputs;
  const double* const curvature = t.curvature + q * k;
  double mean = 0;
  if (t.target_kind == kSoftmax)
    for (int64_t o = 0; o < k; ++o) mean += curvature[o] * scores[o];
  for (int64_t o = 0; o < k; ++o) slopes[o] = curvature[o] * (scores[o] - mean);
}

void slopes_of_diagonal(const BatchTask& t, int64_t q, double* slopes) {
  const int64_t k = t.rows.n_outputs;
  const double* const curvature = t.curvature + q * k;
  for (int64_t o = 0; o < k; ++o)
    slopes[o] = t.target_kind == kSoftmax ? curvature[o] * (1 - curvature[o]) : curvature[o];
}

// One row: scores w.x + b, or -1 for an index out of range. Four sums, so that additions need not wait.
inline bool score_one(const BatchTask& t, int64_t start, int64_t stop, double* score) {
  const int32_t* const index = t.rows.indices;
  const float* const value = t.rows.values;
  const double* const w = t.weights;
  const int64_t d = t.rows.n_features;
  if (!indices_fit({index + start, value + start, stop - start}, t.rows.n_features)) return false;
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  int64_t e = start;
  for (; e + 4 <= stop; e += 4) {
    s0 += w[index[e]] * value[e];
    s1 += w[index[e + 1]] * value[e + 1];
    s2 += w[index[e + 2]] * value[e + 2];
    s3 += w[index[e + 3]] * value[e + 3];
  }
  for (; e < stop; ++e) s0 += w[index[e]] * value[e];
  *score = (s0 + s1) + (s2 + s3) + w[d];
  return true;
}

inline bool score_many(const BatchTask& t, int64_t start, int64_t stop, double* scores) {
  const int64_t k = t.rows.n_outputs, d = t.rows.n_features;
  for (int64_t o = 0; o < k; ++o) scores[o] = t.weights[d * k + o];
  for (int64_t e = start; e < stop; ++e) {
    const int64_t j = t.rows.indices[e];
    if (j < 0 || j >= d) return false;
    const double* const w = t.weights + j * k;
    const double x = t.rows.values[e];
    for (int64_t o = 0; o < k; ++o) scores[o] += w[o] * x;
  }
  return true;
}

template <bool kSquares>
inline void add_row(const BatchTask& t, int64_t start, int64_t stop, double weight, const double* slopes,
                    double* sums) {
  const int64_t k = t.rows.n_outputs, d = t.rows.n_features;
  if (k == 1) {
    const double g = weight * slopes[0];
    if (g == 0) return;
    const int32_t* const index = t.rows.indices;
    const float* const value = t.rows.values;
    for (int64_t e = start; e < stop; ++e) {
      const double x = value[e];
      sums[index[e]] += g * (kSquares ? x * x : x);
    }
    sums[d] += g;
    return;
  }
  for (int64_t e = start; e < stop; ++e) {
    double* const to = sums + static_cast<int64_t>(t.rows.indices[e]) * k;
    const double x = t.rows.values[e], c = weight * (kSquares ? x * x : x);
    for (int64_t o = 0; o < k; ++o) to[o] += c * slopes[o];
  }
  for (int64_t o = 0; o < k; ++o) sums[d * k + o] += weight * slopes[o];
}

void add_pairs(const BatchTask& t, int64_t start, int64_t stop, const double* curvature, double weight,
               double* sums) {
  const int64_t d = t.rows.n_features, D = d + 1;
  const int32_t* const index = t.rows.indices;
  const float* const value = t.rows.values;
  for (int64_t o = 0; o < t.rows.n_outputs; ++o) {
    const double h = weight * curvature[o];
    if (h == 0) continue;
    double* const matrix = sums + o * hessian_size(d);
    double* const squares = matrix + D * D;
    for (int64_t a = start; a < stop; ++a) {
      double* const line = matrix + index[a] * D;
      const double hx = h * value[a];
      squares[index[a]] += hx * value[a];
      for (int64_t b = a + 1; b < stop; ++b) line[index[b]] += hx * value[b];
      line[d] += hx;
    }
    squares[d] += h;
  }
}

template <int kKind>
bool visit(const BatchTask& t, int64_t q, double* sums, double* totals, double* scores, double* slopes) {
  const int64_t row = t.rows.order ? t.rows.order[q] : q;
  const double weight = t.rows.weight ? t.rows.weight[row] : 1.0;
  const int64_t start = t.rows.indptr[row], stop = t.rows.indptr[row + 1];
  // A row without curvature adds nothing, and was checked when its curvature was found: many rows of flat
  // losses.
  if (kKind != kGradient && t.rows.n_outputs == 1 && t.curvature[q] == 0) return true;
  if (kKind == kHessian) {
    if (!indices_fit({t.rows.indices + start, t.rows.values + start, stop - start}, t.rows.n_features))
      return false;
    add_pairs(t, start, stop, t.curvature + q * t.rows.n_outputs, weight, sums);
    return true;
  }
  // The diagonal needs no scores, but the check of the indices that comes with them.
  if (!(t.rows.n_outputs == 1 ? score_one(t, start, stop, scores) : score_many(t, start, stop, scores)))
    return false;
  for (int64_t o = 0; o < t.rows.n_outputs; ++o)
    if (scores[o] - scores[o] != 0) return false;  // NaN or infinite
  if (kKind == kGradient) slopes_of_losses(t, row, q, scores, slopes, totals);
  if (kKind == kProduct) slopes_of_product(t, q, scores, slopes);
  if (kKind == kDiagonal) slopes_of_diagonal(t, q, slopes);
  if (sums) add_row<kKind == kDiagonal>(t, start, stop, weight, slopes, sums);
  return true;
}

template <int kKind>
int64_t run(const BatchTask& t, int64_t lane, double* scratch) {
  const int64_t d = t.rows.n_features, k = t.rows.n_outputs;
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

int64_t run_lane(const BatchTask& t, int64_t lane, double* scratch) {
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

extern const BatchTable batch_table;
const BatchTable batch_table = {run_lane};

}  // namespace STEEPEST_ISA
}  // namespace steepest
