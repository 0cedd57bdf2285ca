// SPDX-License-Identifier: Apache-2.0
// The step size as a function of t, the rows seen so far, and nothing else.
#pragma once
#include <math.h>

#include "kernel_table.h"

namespace steepest {
namespace STEEPEST_ISA {

static inline double step_size(const Choices& c, double t) {
  switch (c.schedule) {
    case kInverseSqrt:  // eta0 / sqrt(1 + t)
      return c.eta0 / sqrt(1.0 + t);
    case kPower: {  // eta0 / (1 + eta0 alpha t)^power; power 1 is Bottou's rate
      const double base = 1.0 + c.eta0 * c.decay * t;
      return c.power == 1.0 ? c.eta0 / base : c.eta0 * pow(base, -c.power);
    }
    default:
      return c.eta0;
  }
}

// The weight of the t-th iterate in the average.
static inline double average_weight(const Choices& c, double t, double eta) {
  if (c.average == kByStep) return eta;
  if (c.average == kPolynomial) return (1.0 + t) * (1.0 + t) * (1.0 + t);  // forgets the early iterates
  return 1.0;
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
