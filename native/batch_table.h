// SPDX-License-Identifier: Apache-2.0
// What the batch kernels take and return: one pass over rows adds up losses, gradients, products with the
// Hessian or its diagonal. The rows of all data are dealt to lanes in blocks, block b to lane b mod n_lanes;
// a lane adds its rows in order. Sums therefore depend neither on threads nor on how rows are cut into
// chunks.
#pragma once
#include "kernel_table.h"

namespace steepest {

enum BatchKind {
  kGradient,  // losses, and sums of slope x
  kProduct,   // sums of (curvature * score) x, the product of the Hessian with `weights`
  kDiagonal,  // sums of curvature * x^2
  kHessian    // the Hessian itself: see hessian_size
};

// What a lane of kHessian adds up for an output, with D = n_features + 1: a D x D matrix of curvature x_a x_b
// for each pair of entries a before b of a row, the bias last, then D sums of curvature x^2. The Hessian is
// the matrix, plus its transpose, plus the sums on the diagonal, whatever the order of a row's entries.
constexpr int64_t hessian_size(int64_t n_features) { return (n_features + 1) * (n_features + 2); }

// Per-visit arrays count the visits of this call: visit q of the call is visit first_visit + q of all.
struct BatchTask {
  Rows rows;
  int64_t first_visit;
  int64_t block_rows;
  int64_t n_lanes;
  const double* weights;  // (n_features + 1) x n_outputs, the last row the bias
  int32_t kind;
  int32_t loss;
  double parameter;
  int32_t target_kind;
  double smoothing;     // mu > 0: kinked losses are replaced by their Moreau envelopes
  const double* shift;  // visits x n_outputs, added to the scores before the envelope; null: none
  double* curvature;    // visits x n_outputs: second derivatives, of softmax the probabilities; written by
                        // kGradient, read by the others; null: not wanted
  double* slopes;       // visits x n_outputs, written by kGradient; null: not wanted
  double* sums;    // n_lanes x (n_features + 1) x n_outputs, or n_lanes x n_outputs x hessian_size, added
                   // to; null: losses only
  double* totals;  // n_lanes x kTotals, added to
};

enum BatchTotal { kLossTotal, kPlainLossTotal, kGapTotal, kTotals };

struct BatchTable {
  // Visits the rows of one lane; `scratch` holds 2 * n_outputs numbers. Returns the first visit with an index
  // out of range or a score that is not finite, or rows.n.
  int64_t (*run_lane)(const BatchTask&, int64_t lane, double* scratch);
};

const BatchTable& batch_kernels();

}  // namespace steepest
