// SPDX-License-Identifier: Apache-2.0
// What the factorization kernels take and return. A row of a table holds the factors, padded with zeros to a
// multiple of eight, and a tail of eight floats: what belongs to the same user or item lies in neighbouring
// cache lines. Arrays belong to the caller and are changed in place.
#pragma once
#include <stdint.h>

namespace steepest {

// The tail of a row. The last three belong to the block kernel: the steps of the row while a block is
// learned, and its mean squared factor when the block began.
enum Tail {
  kBias = 0,
  kSquares = 1,
  kBiasSquares = 2,
  kShrink = 3,
  kBiasShrink = 4,
  kStep = 5,
  kBiasStep = 6,
  kMeanSquare = 7
};
constexpr int kTail = 8;
constexpr int kMostFixedRank = 128;  // up to here ranks are compiled in, in steps of eight

struct Table {
  float* rows;
  int64_t n;
  int64_t padded;  // factors of a row, padded; a row is padded + kTail floats long
};

// Known entries of the matrix, in the order in which they are visited.
struct Entries {
  const int32_t* users;
  const int32_t* items;
  const float* values;
  const float* weights;  // null: all ones
  int64_t n;
};

// The rows that the entries of a block may name.
struct Stripes {
  int64_t first_user, last_user, first_item, last_item;
};

// What stays the same during a call.
struct FactorChoices {
  int32_t loss;  // LossId
  float mean;    // score = mean + user's bias + item's bias + p q
  float eta;
  float l2;       // times the row's kShrink, at each visit
  float l2_bias;  // times the row's kBiasShrink
  float l1;
  int32_t rank;  // factors without the padding: squares of slopes are averaged over them
  bool
      adaptive;  // steps eta / sqrt(sum of squared slopes), one for the factors of a row and one for its bias
  bool biases;
  bool nonnegative;
};

enum FactorStatus { kAllFine = 0, kUnknownRow = 1, kOverflow = 2 };

struct FactorOutcome {
  double loss_sum;  // weighted losses before learning
  int64_t done;     // entries learned, or where the one in trouble stands
  int32_t status;
};

// For pairwise ranking: the items each user is known to like, to be left out as negatives, and where
// negatives are drawn from.
struct Liked {
  const int64_t* indptr;
  const int32_t* indices;  // ascending in each row
  int64_t first, last;     // negatives are items first..last-1
  uint64_t seed;
};

// One side's rows, to be solved with the other side fixed. `known` are CSR rows: other side's row and value.
struct Known {
  const int64_t* indptr;
  const int32_t* indices;
  const float* values;   // targets; for implicit feedback the confidence beyond one
  const float* weights;  // null: all ones
  int64_t first, last;   // rows to solve
};

struct AlsChoices {
  int32_t rank;      // unknowns of a row
  int32_t cg_steps;  // 0: exact, by Cholesky
  int32_t bias_at;   // which unknown is a bias, or -1
  float bias_ridge;  // of that one
  bool implicit;     // every cell counts: the normal matrix starts from `gram`, targets are one
  bool nonnegative;  // coordinate descent with a floor at zero instead
};

typedef FactorOutcome (*SgdFunction)(const Entries&, const Table& users, const Table& items,
                                     const FactorChoices&);
typedef FactorOutcome (*BlockFunction)(const Entries&, const Stripes&, const Table& users, const Table& items,
                                       const FactorChoices&);
typedef FactorOutcome (*BprFunction)(const Entries&, const Liked&, const Table& users, const Table& items,
                                     const FactorChoices&);
// Scores of pairs; returns the first pair with a row out of range, or n.
typedef int64_t (*PairFunction)(const Entries&, const Table& users, const Table& items, float mean,
                                float* out);
// other: n x padded factors; gram: rank x padded, or null; ridge: one a row; solved: n x padded, warm start
// in. Returns the first row that has an index out of range or no solution, or `last`.
typedef int64_t (*AlsFunction)(const Known&, const float* other, int64_t n_other, int64_t padded,
                               const float* gram, const float* ridge, const AlsChoices&, float* solved,
                               float* scratch);
// Multiplicative steps for generalised Kullback-Leibler; sums: the other side's column sums plus penalties.
typedef int64_t (*KlFunction)(const Known&, const float* other, int64_t n_other, int64_t padded,
                              const float* sums, int32_t steps, float* solved, float* scratch, double* loss);
typedef void (*GramFunction)(const float* rows, int64_t first, int64_t last, int64_t stride, int64_t padded,
                             float* gram);
// The best items of some users. users: n x padded; panels: items by sixteen, see pack_panels; floor: what a
// score must exceed to be told; hits come as (item, score) and the callback's answer is the new floor.
struct TopChoices {
  int64_t k;
  int64_t n_items;
  int64_t padded;
};
typedef void (*TopFunction)(const float* users, int64_t n_users, const float* panels, const float* bias,
                            const int64_t* excluded_indptr, const int32_t* excluded, const TopChoices&,
                            float* scores, int32_t* best);

struct FactorKernels {
  SgdFunction sgd;
  BlockFunction block;
  BprFunction bpr;
  PairFunction pairs;
  AlsFunction als;
  KlFunction kl;
  GramFunction gram;
  TopFunction top;
};

const FactorKernels& factor_kernels();  // the best this machine can run

}  // namespace steepest
