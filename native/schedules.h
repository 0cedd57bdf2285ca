// SPDX-License-Identifier: Apache-2.0
// The step size as a function of t, the rows seen so far, and nothing else.
#pragma once
#include <math.h>

#include "kernel_table.h"

namespace steepest {
namespace STEEPEST_ISA {

constexpr double kCalibrationRows = 1000;  // as in learners/schedules.py

static inline double step_size(const Choices& c, double t) {
  switch (c.schedule) {
    case kInverseSqrt:  // eta0 / sqrt(1 + t)
      return c.eta0 / sqrt(1.0 + t);
    case kPower: {  // eta0 / (1 + eta0 alpha t)^power; power 1 is Bottou's rate
      const double base = 1.0 + c.eta0 * c.decay * t;
      return c.power == 1.0 ? c.eta0 / base : c.eta0 * pow(base, -c.power);
    }
    case kByNoise: {  // as the root of the rows beyond the first thousand, or as the penalty asks if that is
                      // faster
      const double by_noise = sqrt(1.0 + t / kCalibrationRows), by_penalty = 1.0 + c.eta0 * c.decay * t;
      return c.eta0 / (by_noise > by_penalty ? by_noise : by_penalty);
    }
    default:
      return c.eta0;
  }
}

// The polynomial average weighs the t-th iterate by (1 + t)^3, which forgets the early ones. The sums of such
// weights grow like t^4, so they are counted in units of 2^this, a power of two: changing the unit changes no
// digit.
static inline int average_unit(const Choices& c, double t) {
  if (c.average != kPolynomial) return 0;
  int exponent;
  frexp(1.0 + t, &exponent);
  return exponent / 10 * 40;  // t^4 grows by 2^40 while t grows by 2^10
}

// The weight of the t-th iterate in the average.
static inline double average_weight(const Choices& c, double t, double eta) {
  if (c.average == kByStep) return eta;
  if (c.average == kPolynomial) return ldexp((1.0 + t) * (1.0 + t) * (1.0 + t), -average_unit(c, t));
  return 1.0;
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
