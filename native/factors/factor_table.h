// SPDX-License-Identifier: Apache-2.0
// What the factorization kernels take and return. A row of a table holds the factors, padded with zeros to a
// multiple of eight, and a tail of eight floats: what belongs to the same user or item lies in neighbouring
// cache lines. Arrays belong to the caller and are changed in place.
#pragma once
#include <stdint.h>

#include "core/random.h"
#include "core/rows.h"

namespace steepest {

// The tail of a row. The last three are only used while a block is learned: the steps of the row, and its
// mean squared factor when the block began.
enum Tail { kBias, kSquares, kBiasSquares, kShrink, kBiasShrink, kStep, kBiasStep, kMeanSquare, kTail };

// Rows are padded + kTail floats long.
struct FactorTables {
  float* users;
  float* items;
  int64_t n_users, n_items, padded;
};

// Known entries of the matrix, in the order in which they are visited.
struct Entries {
  const int32_t* users;
  const int32_t* items;
  const float* values;
  const float* weights;  // null: all ones
  int64_t n;
};

// Lists of items in CSR form, ascending in each list; indptr null: all lists are empty.
struct ItemLists {
  const int64_t* indptr;
  const int32_t* items;
};

// Entries, and the first and last row of users and of items that they may name.
struct FactorBlock {
  Entries entries;
  int64_t first_user, last_user, first_item, last_item;
  const ItemLists* liked;  // pairwise ranking: what each user is known to like; negatives are other items
  uint64_t seed;           // of the negatives
};

// What stays the same during a call.
struct FactorChoices {
  int32_t loss;  // LossId
  float mean;    // score = mean + user's bias + item's bias + p q
  float eta;
  float l2;       // times the row's kShrink, at each visit
  float l2_bias;  // times the row's kBiasShrink
  float l1;
  int32_t rank;      // factors without the padding: squares of gradients are averaged over them
  bool adaptive;     // steps eta / sqrt(sum of squared gradients), for a row's factors and for its bias
  bool block_steps;  // the steps of a row stay from the start of a block to its end
  bool biases;
  bool nonnegative;

  bool proximal() const { return l1 > 0 || nonnegative; }
};

struct FactorOutcome {
  double loss_sum;  // weighted losses before learning
  int32_t status;
};

// One side's rows, to be solved with the other side fixed: CSR rows of the other side's row and value.
struct FactorSide {
  const int64_t* indptr;
  const int32_t* indices;
  const float* values;   // targets; for implicit feedback the confidence beyond one
  const float* weights;  // null: all ones
  const float* other;    // n_other x padded factors
  int64_t n_other, padded;
  float* solved;  // n x padded, warm start in
  int64_t n;
};

struct AlsChoices {
  int32_t rank;      // unknowns of a row
  int32_t cg_steps;  // 0: exact, by Cholesky
  int32_t bias_at;   // which unknown is a bias, or -1
  float bias_ridge;  // of that one
  bool nonnegative;  // coordinate descent with a floor at zero instead
  bool zeros;        // with a gram: unknown cells are zeros of the same weight, values are targets
};

struct AlsTask {
  FactorSide side;
  AlsChoices choices;
  const float* ridge;  // one per row
  const float* gram;   // where all cells count: padded x padded, where the normal matrix starts; else null
};

struct KlTask {
  FactorSide side;
  const float* sums;  // the other side's column sums plus penalties
  int32_t steps;
};

// The k best items of each user, best first, into scores and best.
struct TopTask {
  const float* users;   // n x padded
  const float* panels;  // sixteen items beside each other, factor by factor; the last panel ends with zeros
  const float* bias;    // one per item, padded as the panels are
  ItemLists excluded;   // per user
  int64_t k, n_items, padded;
  float* scores;  // n x k; places that stay empty have -infinity
  int32_t* best;
};

// `first` and `last` are rows to work on. als and kl return the first row that has an index out of range or
// no solution, or `last`; pairs returns the first entry with a row out of range, or n.
struct FactorKernels {
  FactorOutcome (*learn)(const FactorBlock&, const FactorTables&, const FactorChoices&);
  int64_t (*pairs)(const Entries&, const FactorTables&, float mean, float* scores);
  int64_t (*als)(const AlsTask&, int64_t first, int64_t last, float* scratch);
  int64_t (*kl)(const KlTask&, int64_t first, int64_t last, float* scratch, double* loss);
  void (*gram)(const float* rows, int64_t first, int64_t last, int64_t padded, float* gram);
  void (*top)(const TopTask&, int64_t first, int64_t last);
};

const FactorKernels& factor_kernels();  // the best this machine can run

}  // namespace steepest
