// SPDX-License-Identifier: Apache-2.0
// What the loops of solvers over all data take and return; see linear_table.h for the conventions.
#pragma once
#include "linear/linear_table.h"

namespace steepest {

// ---------------------------------------------------------------------------------------------------- passes
//
// One pass over rows adds up losses, gradients, products with the Hessian or its diagonal. The rows of all
// data are shared out to lanes in blocks, block b to lane b mod n_lanes; a lane adds its rows in order. Sums
// therefore depend neither on threads nor on how rows are cut into chunks.

enum PassKind {
  kGradient,  // losses, and sums of gradient x
  kProduct,   // sums of (curvature * score) x, the product of the Hessian with `weights`
  kDiagonal,  // sums of curvature * x^2
  kHessian    // the Hessian itself: see hessian_size
};

// What a lane of kHessian adds up for an output, with D = n_features + 1: a D x D matrix of curvature x_a x_b
// for each pair of entries a before b of a row, the bias last, then D sums of curvature x^2. The Hessian is
// the matrix, plus its transpose, plus the sums on the diagonal, whatever the order of a row's entries.
constexpr int64_t hessian_size(int64_t n_features) { return (n_features + 1) * (n_features + 2); }

enum PassTotal { kLossTotal, kPlainLossTotal, kGapTotal, kTotals };

// Arrays per visit count the visits of this call: visit q of the call is visit first_visit + q of all.
struct BatchPass {
  Rows rows;
  int32_t kind;
  const double* weights;  // (n_features + 1) x n_outputs, the last row the bias
  int64_t n_outputs;
  int32_t loss;
  double parameter;
  int32_t target_kind;
  double smoothing;  // mu > 0: kinked losses are replaced by their Moreau envelopes
  int64_t block_rows;
  int64_t n_lanes;
  int64_t first_visit;
  const double* shift;  // visits x n_outputs, added to the scores before the envelope; null: none
  double* curvature;    // visits x n_outputs: second derivatives, of softmax the probabilities; written by
                        // kGradient, read by the others; null: not needed
  double* gradients;    // visits x n_outputs, written by kGradient; null: not needed
  double* sums;    // n_lanes x (n_features + 1) x n_outputs, or n_lanes x n_outputs x hessian_size, added
                   // to; null: losses only
  double* totals;  // n_lanes x kTotals, added to
};

// ------------------------------------------------------------------------------------ dual coordinate
// descent

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
  double parameter;       // of the loss
  double bias_step;       // how far the bias moves with a dual variable; 0: no bias
  double least_gradient;  // shrinking: a variable at its bound leaves if its gradient is outside least..most
  double most_gradient;
  double relax;  // a step goes so many times as far as to the optimum of its variable; 1 to below 2
};

struct DualBias {
  double bias;
  double sum;  // of all dual variables; 0 at the optimum of a free bias
};

struct DualOutcome {
  int64_t n_active;  // rows left to visit, first in the list; or the visit with a bad index
  int32_t status;
  double gap;             // sum over the visits of what each row adds to the duality gap, before its step
  double least_gradient;  // extremes of the projected gradients seen
  double most_gradient;
};

// ------------------------------------------------------------------------------------------------------ saga

// What a feature stores, half a cache line.
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

// ----------------------------------------------------------------------------------------- coordinate
// descent

// A quadratic model, see cd_kernels.cpp. Arrays over all features and over all rows.
struct CdModel {
  const double* gradient;  // of the mean loss, where the model was made
  const double* diagonal;  // of the model's Hessian; only the features visited need theirs
  double* w;               // w + d
  float* u;
  const float* h;
  double* bias;
  double bias_gradient;
  int64_t n_rows;
  double l1, l2;
  bool fit_intercept;
};

struct BatchKernels {
  // Visits the rows of one lane; `scratch` holds 2 * n_outputs numbers. Returns the first visit with an index
  // out of range or a score that is not finite, or rows.n.
  int64_t (*run_lane)(const BatchPass&, int64_t lane, double* scratch);
  // One visit of each active row; float, double.
  DualOutcome (*dual_sweep[2])(const Rows&, const DualChoices&, DualRow*, void* w, DualBias*,
                               int64_t* active);
  // w[j] += sum over rows of amount[row] x_j; returns the first row with an index out of range, or n.
  int64_t (*add_rows)(const Rows&, const double* amount, double* w);
  void (*row_squares)(const Rows&, double* squares);  // |x|^2 of each row
  // One visit of each row that the order names; leaves v = w. `gradients` holds the last gradient of each
  // row, `share` the row's weight times the number of rows. Returns as run_lane does.
  int64_t (*saga)(const Rows&, const SagaChoices&, const double* share, double* gradients, SagaFeature*,
                  SagaBias*);
  // One visit of each feature of the set; the sum of the gradients' distances from their optimum before.
  double (*cd_cycle)(const Rows& columns, const CdModel&, const int64_t* set, int64_t n_set);
  void (*cd_diagonal)(const Rows& columns, const float* h, const int64_t* set, int64_t n_set,
                      double* diagonal);
};

const BatchKernels& batch_kernels();

}  // namespace steepest
