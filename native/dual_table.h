// SPDX-License-Identifier: Apache-2.0
// The loops of the solvers that visit rows at random until the optimum is reached: what they take and return.
// See kernel_table.h for the conventions.
#pragma once
#include "kernel_table.h"

namespace steepest {

// The dual variable of one row and all that a step needs beside the row: one half of a cache line.
struct DualRow {
  double beta;    // w = sum of beta x
  double square;  // |x|^2, plus the bias's share
  double y;
  double cap;  // the weight of the row's loss against |w|^2 / 2; 0 leaves the row out
};
constexpr int kDualRowSize = 4;

struct DualChoices {
  int32_t loss;
  double parameter;   // of the loss
  double bias_step;   // how far the bias moves with a dual variable; 0: no bias
  double most_slope;  // shrinking: a variable at its bound leaves if its slope lies outside least..most
  double least_slope;
  double relax;  // a step goes so many times as far as to the optimum of its variable; 1 to below 2
};

struct DualBias {
  double bias;
  double sum;  // of all dual variables; 0 at the optimum of a free bias
};

struct DualOutcome {
  int64_t n_active;  // rows left to visit, first in the list; or the visit with a bad index
  int32_t status;
  double gap;         // sum over the visits of what each row adds to the duality gap, before its step
  double most_slope;  // extremes of the projected slopes seen
  double least_slope;
};

typedef DualOutcome (*DualFunction)(const Rows&, const DualChoices&, DualRow*, void* w, DualBias*,
                                    int64_t* active);
// w[j] += sum over rows of amount[row] x_j; returns the first row with an index out of range, or n
typedef int64_t (*GatherFunction)(const Rows&, const double* amount, double* w);

// SAGA: what a feature keeps, half a cache line.
struct SagaFeature {
  double v;     // w = P v
  double mean;  // of the rows' gradients
  double paid;  // Q when the feature last took its share of the mean gradient and of the penalty
  double unused;
};
constexpr int kSagaFeatureSize = 4;

struct SagaChoices {
  int32_t loss;
  double parameter;
  double eta;
  double l1, l2;
  bool fit_intercept;
};

struct SagaBias {
  double bias;
  double mean;
};

// One visit of each row that `order` names; leaves v = w. `slopes` holds the last slope of each row, `share`
// the row's weight times the number of rows. Returns the visit with an index out of range or a score that is
// not finite, or rows.n.
typedef int64_t (*SagaFunction)(const Rows&, const SagaChoices&, const double* share, double* slopes,
                                SagaFeature*, SagaBias*);

// Coordinate descent on a quadratic model; see cd_kernels.cpp. Arrays over all features and over all rows.
struct CdModel {
  const double* gradient;  // of the mean loss, where the model was made
  const double* diagonal;  // of the model's Hessian; only the features visited need theirs
  double* w;               // w + d
  float* u;
  const float* h;
  double* bias;
  double bias_slope;
  int64_t n_rows;
  double l1, l2;
  bool fit_intercept;
};

// One visit of each feature of the set; returns the sum of the slopes' distances from their optimum before.
typedef double (*CycleFunction)(const Rows& columns, const CdModel&, const int64_t* set, int64_t n_set);
typedef void (*DiagonalFunction)(const Rows& columns, const float* h, const int64_t* set, int64_t n_set,
                                 double* diagonal);

typedef void (*SquaresFunction)(const Rows&, double* squares);  // |x|^2 of each row

struct DualTable {
  DualFunction sweep[2];  // float, double
  GatherFunction gather;
  SquaresFunction squares;
  SagaFunction saga;
  CycleFunction cd_cycle;
  DiagonalFunction cd_diagonal;
};

const DualTable& dual_kernels();

}  // namespace steepest
