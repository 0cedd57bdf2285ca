// SPDX-License-Identifier: Apache-2.0
// The step size as a function of t, the rows seen so far, and nothing else; and how the clock of a linear
// model moves. Functions are static: this header is compiled once per instruction set.
#pragma once
#include <math.h>

#include "linear/linear_table.h"

namespace steepest {

constexpr double kCalibrationRows = 1000;  // as in learners/schedules.py
// A heavy row is learned in steps of weight one, as its copies would be, but in at most this many.
constexpr double kMostRepeats = 128;
// v = w / P stays far from the limits of float32 while P is above this.
constexpr double kSmallestScale = 1e-6;
// The average is the difference of S v and u, each larger than itself by 1 / (P log(1 / P)). Measured with
// float32 after 20,000 steps: an error of 1e-4 or less with this limit, of 5e-2 with the one above.
constexpr double kSmallestAveragedScale = 1e-2;

static inline double smallest_scale(const LinearChoices& c) {
  return c.average == kNoAverage ? kSmallestScale : kSmallestAveragedScale;
}

// Old rows lose weight while nobody visits what they have left: new ones count 2^(t / h), in units of
// 2^kUnitBits that change now and then. A power of two changes no digit.
constexpr double kUnitBits = 40;

static inline bool forgets(const LinearChoices& c) { return c.half_life < HUGE_VAL; }

// What is left of a row's weight after `mass` more rows.
static inline double kept_after(const LinearChoices& c, double mass) { return exp2(-mass / c.half_life); }

// The bits of the unit at t, and the weight there of a row that ends at t.
static inline double bits_of_unit(const LinearChoices& c, double t) {
  return kUnitBits * floor(t / c.half_life / kUnitBits);
}
static inline double growth(const LinearChoices& c, double t) {
  return exp2(t / c.half_life - bits_of_unit(c, t));
}
// The same of a model: where rows have times, the latest of them is its clock.
static inline double growth_of(const LinearChoices& c, const LinearState& s) {
  return growth(c, s.ages ? s.ages->now : s.clock->t);
}

// By how much sums must be multiplied if the unit changes between these times.
static inline double change_of_unit(const LinearChoices& c, double from, double to) {
  return exp2(bits_of_unit(c, from) - bits_of_unit(c, to));
}

// The weights of t rows together: 1 + 2^(-1/h) + 2^(-2/h) + ..., which grows to h / ln 2 and no further.
// Whether rows are forgotten is known to the compiler: kernels that forget nothing ask nothing.
template <bool kForgets>
static inline double rows_in_effect(const LinearChoices& c, double t) {
  constexpr double kLn2 = 0.693147180559945309417232121458;
  return kForgets ? expm1(-kLn2 * t / c.half_life) / expm1(-kLn2 / c.half_life) : t;
}

// The rows in effect for a model, and after a step of `mass` rows.
template <bool kForgets>
static inline double effect_of(const LinearChoices& c, const LinearState& s, double mass = 0) {
  if (kForgets && s.ages) return s.ages->effect + mass;
  return rows_in_effect<kForgets>(c, s.clock->t + mass);
}

// t is the rows in effect.
static inline double step_size(const LinearChoices& c, double t) {
  switch (c.schedule) {
    case kInverseSqrt:  // eta0 / sqrt(1 + t)
      return c.eta0 / sqrt(1.0 + t);
    case kPower: {  // eta0 / (1 + eta0 alpha t)^power; power 1 is Bottou's rate
      const double base = 1.0 + c.eta0 * c.alpha * t;
      return c.power == 1.0 ? c.eta0 / base : c.eta0 * pow(base, -c.power);
    }
    case kByNoise: {  // as the root of the rows beyond the first thousand, or as the penalty asks if that is
                      // faster
      const double by_noise = sqrt(1.0 + t / kCalibrationRows), by_penalty = 1.0 + c.eta0 * c.alpha * t;
      return c.eta0 / (by_noise > by_penalty ? by_noise : by_penalty);
    }
    default:
      return c.eta0;
  }
}

static inline double repeats_for(const LinearChoices& c, double weight) {
  if (c.batch_size > 1 || weight <= 1) return 1;
  return ceil(weight < kMostRepeats ? weight : kMostRepeats);
}

// The polynomial average weighs the t-th iterate by (1 + t)^3, which forgets the early ones. The sums of such
// weights grow like t^4, so they are counted in units of 2^this, a power of two: changing the unit changes no
// digit.
static inline int average_unit(const LinearChoices& c, double in_effect) {
  if (c.average != kPolynomial) return 0;
  int exponent;
  frexp(1.0 + in_effect, &exponent);
  return exponent / 10 * 40;  // t^4 grows by 2^40 while t grows by 2^10
}

// The weight of the iterate after a step in the average; `unit` is one of them in units of 2^average_unit.
static inline double iterate_weight(const LinearChoices& c, double eta, double mass, double unit,
                                    double in_effect) {
  const double late = 1.0 + in_effect;
  return mass * (c.average == kNoAverage    ? 0.0
                 : c.average == kByStep     ? eta
                 : c.average == kPolynomial ? late * late * late * unit
                                            : 1.0);
}

// After a step: L2 acts on P and L1 on Q, `mass` rows' worth, and the sums behind the average take in the new
// iterate with its weight.
static inline void advance_clock(const LinearChoices& c, double eta, double mass, double weight, Clock& k) {
  const double kept = 1 / (1 + eta * c.l2 * mass);
  k.scale *= kept;
  k.t += mass;
  k.steps += 1;
  if (c.l1 > 0) {
    k.shrink_debt += kept * eta * c.l1 * mass / k.scale;
    if (c.truncate_every <= 1 || static_cast<int64_t>(k.steps) % c.truncate_every == 0) {
      k.shrink += k.shrink_debt;
      k.shrink_debt = 0;
    }
  }
  k.average_weight += weight;
  k.average_scale += weight * k.scale;
}

}  // namespace steepest
