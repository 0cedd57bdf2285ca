// SPDX-License-Identifier: Apache-2.0
// What the loops of factorization machines take and return. A row x scores, for each output,
//
//   b + sum_i w_i x_i + sign sum_{i<j} <v_i[f_j], v_j[f_i]> x_i x_j
//
// where f_i is the field of feature i. A machine without fields (Rendle 2010) is one whose features all have
// field 0. Sums over the fields of a row, S[p][q] = sum of x_i v_i[q] over the features of field p, give all
// pairs at once: <S[p][q], S[q][p]> for two fields, (|S[p][p]|^2 - sum |x_i v_i[p]|^2) / 2 within one.
#pragma once
#include "core/rows.h"
#include "linear/linear_table.h"

namespace steepest {

constexpr int64_t kFactorLanes = 8;  // `width` is a multiple of it

// What stays the same during a call.
struct FmChoices {
  int32_t loss;
  int32_t target_kind;  // kTargets or kOneVsRest
  double eta;
  double l2;
  double start_square;  // what sums of squared gradients begin with
  double unit;          // values are multiplied by it; 0: each row is brought to length 1
};

// Of each feature and output `stride` numbers: w, the sum of its squared gradients, such a sum for each
// field's factors, room to the next multiple of kFactorLanes, then `width` factors for each field.
struct FmTable {
  float* rows;
  int64_t n_features, n_outputs, n_fields;
  int64_t n_factors, width;  // width: n_factors, and zeros
  const int32_t* field;      // of each feature; null: all 0
  double* bias;              // n_outputs, as all below
  double* bias_square;
  const double* sign;         // +1 or -1
  const double* shift;        // targets are learned as (y - shift) / scale
  const double* scale;        // ...
  const double* loss_unit;    // what a loss of such a target is worth
  const double* loss_number;  // the parameter of the loss for such a target
  const double* gain;         // by which gradients are multiplied, so that the largest are about one

  int64_t head() const { return (2 + n_fields + kFactorLanes - 1) / kFactorLanes * kFactorLanes; }
  int64_t stride() const { return head() + n_fields * width; }
  // Floats and whole numbers of scratch for rows of so many entries.
  int64_t n_floats(int64_t longest) const {
    const int64_t most = smaller(n_fields, longest > 0 ? longest : 1);
    return longest + most * most * width;
  }
  int64_t n_places(int64_t longest) const { return longest + 3 * n_fields; }
};

struct FmScratch {
  float* floats;
  int32_t* places;
  int64_t longest;
};

// What new factors are drawn by: the seed, the feature, the field's own number, the output and the place.
struct FmStart {
  uint64_t seed;
  double size;            // factors are between -size and size
  const int32_t* owners;  // the feature of each row of the table
  const int64_t* fields;  // the own number of each field
  int64_t first_row, first_field, first_output;
};

struct FmKernels {
  // One AdaGrad step per row, or several for a heavy one. The loss of a row counts before it is learned.
  Outcome (*learn)(const Rows&, const FmChoices&, const FmTable&, const FmScratch&);
  // n x n_outputs, in the units of targets; returns the first row with an index out of range, or n.
  int64_t (*scores)(const Rows&, const FmChoices&, const FmTable&, const FmScratch&, double* out);
  // Factors of the rows, fields and outputs from the first ones on.
  void (*start)(const FmTable&, const FmStart&);
};

const FmKernels& fm_kernels();

}  // namespace steepest
