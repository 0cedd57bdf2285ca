// SPDX-License-Identifier: Apache-2.0
// The losses: for a raw score z and a target y, the value l(z, y) and its derivative g = +dl/dz.
// Binary losses take y = -1 or +1. At a kink the derivative is the one named beside it;
// steepest.learners.losses holds the same definitions in NumPy, and the tests compare the two. No standard
// templates here: this header is compiled once per instruction set, and a shared inline function could be
// linked from the wrong copy.
#pragma once
#include <math.h>
#include <stdint.h>

namespace steepest {
namespace STEEPEST_ISA {

enum LossId {
  kHinge,
  kSquaredHinge,
  kLog,
  kExponential,
  kModifiedHuber,
  kPerceptron,
  kSquared,
  kHuber,
  kEpsilonInsensitive,
  kQuantile,
  kPoisson
};

struct LossAndGradient {
  double value;
  double gradient;
  double factor = 1;  // what the value lacks is log(factor); only the logistic loss puts this off
};

// log(1 + e) for 0 <= e <= 1 to about 1e-12: the library's log1p costs twice as much, once per row.
static inline double log_one_plus(double e) {
  return e < 1e-4 ? e * (1 - e * (0.5 - e * (1.0 / 3))) : log(1 + e);
}

// log(1 + exp(-m)) and its derivative, from one exponential that cannot overflow. The sum of many such losses
// needs the logarithm of one product only, so a loop over rows may leave it out (kLogLater).
template <bool kLogLater>
static inline LossAndGradient logistic(double m) {
  const double e = exp(-fabs(m));
  const double line = m < 0 ? -m : 0.0, gradient = -(m < 0 ? 1.0 : e) / (1.0 + e);
  if (kLogLater) return {line, gradient, 1.0 + e};
  return {line + log_one_plus(e), gradient};
}

// `parameter` is epsilon for huber and epsilon_insensitive, and the quantile for quantile.
template <bool kLogLater = false>
static inline LossAndGradient evaluate_loss(int loss, double parameter, double z, double y) {
  const double m = y * z;  // the margin
  const double r = z - y;  // the residual
  switch (loss) {
    case kHinge:  // max(0, 1 - m); 0 at m = 1
      return m < 1 ? LossAndGradient{1 - m, -y} : LossAndGradient{0, 0};
    case kSquaredHinge:  // max(0, 1 - m)^2
      return m < 1 ? LossAndGradient{(1 - m) * (1 - m), -2 * y * (1 - m)} : LossAndGradient{0, 0};
    case kLog: {  // log(1 + exp(-m))
      const LossAndGradient l = logistic<kLogLater>(m);
      return {l.value, y * l.gradient, l.factor};
    }
    case kExponential: {  // exp(-m)
      const double e = exp(-m);
      return {e, -y * e};
    }
    case kModifiedHuber:  // max(0, 1 - m)^2 for m >= -1, else -4m
      if (m >= 1) return {0, 0};
      return m >= -1 ? LossAndGradient{(1 - m) * (1 - m), -2 * y * (1 - m)} : LossAndGradient{-4 * m, -4 * y};
    case kPerceptron:  // max(0, -m); -y at m = 0, so that learning can start from zero weights
      return m <= 0 ? LossAndGradient{-m, -y} : LossAndGradient{0, 0};
    case kHuber:  // r^2/2 inside epsilon, epsilon |r| - epsilon^2/2 outside
      if (fabs(r) <= parameter) return {0.5 * r * r, r};
      return {parameter * fabs(r) - 0.5 * parameter * parameter, r > 0 ? parameter : -parameter};
    case kEpsilonInsensitive:  // max(0, |r| - epsilon); 0 at |r| = epsilon
      if (fabs(r) <= parameter) return {0, 0};
      return {fabs(r) - parameter, r > 0 ? 1.0 : -1.0};
    case kQuantile:  // q (y - z) below, (1 - q)(z - y) above; 0 at z = y
      if (r == 0) return {0, 0};
      return r < 0 ? LossAndGradient{-parameter * r, -parameter}
                   : LossAndGradient{(1 - parameter) * r, 1 - parameter};
    case kPoisson: {  // exp(z) - y z - y + y log y: half the deviance, with the logarithm as link
      const double mean = exp(z);
      return {mean - y * z + (y > 0 ? y * log(y) - y : 0.0), mean - y};
    }
    default:  // kSquared: r^2/2
      return {0.5 * r * r, r};
  }
}

struct SoftmaxSum {
  double top, sum;  // the largest score, and the sum of exp(score - top)
};

// p = exp(score) / sum of exp(score)
static inline SoftmaxSum softmax(const double* scores, int64_t n, double* p) {
  double top = scores[0], sum = 0;
  for (int64_t k = 1; k < n; ++k) top = scores[k] > top ? scores[k] : top;
  for (int64_t k = 0; k < n; ++k) sum += p[k] = exp(scores[k] - top);
  for (int64_t k = 0; k < n; ++k) p[k] /= sum;
  return {top, sum};
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
