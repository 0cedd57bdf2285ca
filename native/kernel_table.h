// SPDX-License-Identifier: Apache-2.0
// What the inner loops take and return: plain structs and C function pointers, so that the same table can be
// filled by any instruction set and called from any language. Arrays belong to the caller and are changed in
// place.
#pragma once
#include <stdint.h>

namespace steepest {

// The rows to visit: a CSR block, and optionally the order in which to visit it.
struct Rows {
  const int64_t* indptr;
  const int32_t* indices;
  const float* values;
  const double* y;       // n targets, n class codes, or n x n_outputs targets; null for scoring
  const double* weight;  // null: all ones
  const int64_t* order;  // null: 0, 1, ..., n-1
  int64_t n;
  int64_t n_features;
  int64_t n_outputs;
  int64_t width;         // columns of the table: n_outputs, and room for more
  int64_t stride;        // entries from a feature's weights to the next feature's
  int32_t table_bits;    // 0: a weight for each feature and output; else all share a table, see class_hash.h
  int64_t first_output;  // of the n_outputs that are learned here, if threads have shared them out
  int64_t n_targets;     // columns of y, unless it holds class codes
};

// Losses are added up by groups of outputs, so that it does not matter which of them a thread has.
constexpr int64_t kOutputGroup = 8;
inline int64_t count_groups(int64_t n_outputs) { return (n_outputs + kOutputGroup - 1) / kOutputGroup; }

enum TargetKind { kTargets, kOneVsRest, kSoftmax };
enum ScheduleId { kConstant, kInverseSqrt, kPower, kByNoise };
enum AverageKind { kNoAverage, kUniform, kByStep, kPolynomial };

// What stays the same during a call.
struct Choices {
  int32_t loss;
  double loss_parameter;
  int32_t target_kind;
  int32_t schedule;
  double eta0;
  double power;  // kPower: eta0 / (1 + eta0 * decay * t)^power
  double decay;  // the strength of the penalty, alpha
  double l1;
  double l2;
  double threshold;       // truncated gradient: weights beyond it are left alone; infinity shrinks all
  int64_t shrink_period;  // truncated gradient: steps between two shrinkages
  int32_t average;
  int64_t batch_size;
  double bias_scale;   // 0: the bias takes the common step; < 0: no bias; else AdaGrad with this size
  int32_t table_bits;  // see Rows
  int64_t n_columns;   // of a shared table: features that rows may name
};

// What moves with every step. Python holds it as an array of kClockSize doubles, saved with the model.
struct Clock {
  double t;               // rows seen, counted by their weight
  double steps;           // updates made
  double scale;           // P: w = P v
  double shrink;          // Q: total soft-threshold so far, in units of v
  double shrink_debt;     // what the next truncation will add to Q
  double average_scale;   // S: sum of c P over the steps averaged
  double average_weight;  // C: sum of c; S, C and u share a unit that may grow, see average_unit
};
constexpr int kClockSize = 7;

enum Status { kFine = 0, kBadIndex = 1, kNotFinite = 2 };  // not finite: the score or the loss

struct Outcome {
  int64_t rows_done;  // rows learned, or where the row in trouble stands: its batch taught nothing
  int32_t status;
  double loss_sum;  // weighted sum of the losses before learning
  double weight_sum;
};

// The learned arrays; which are used depends on the rule. Types are float or double, as the table says.
struct LinearState {
  void* v;         // n_features x n_outputs, or 2 accumulators each for the adaptive rules; or a shared table
  double* shrunk;  // n_features: Q when the feature was last settled; null without l1
  // As v, with the same stride: u, with mean weight (S v - u) / C; null without averaging. Best right behind
  // the weights of each feature, [feature][v, u][output], so that both come with one cache line.
  void* average;
  double* bias;          // n_outputs
  double* bias_square;   // n_outputs: sum of squared slopes
  double* bias_average;  // n_outputs
  Clock* clock;
  double* scratch;  // as many as scratch_size says
};

// Slopes of a batch, scores of a row, its losses by group, and their sums.
inline int64_t scratch_size(int64_t batch_size, int64_t n_outputs) {
  return (batch_size + 1) * n_outputs + 2 * count_groups(n_outputs);
}
inline double* row_losses(double* scratch, int64_t batch_size, int64_t n_outputs) {
  return scratch + (batch_size + 1) * n_outputs;
}
inline double* loss_sums(double* scratch, int64_t batch_size, int64_t n_outputs) {
  return row_losses(scratch, batch_size, n_outputs) + count_groups(n_outputs);
}

// Weights in use: columns of rows that stand `stride` entries apart.
struct Extent {
  int64_t n_rows;
  int64_t n_columns;
  int64_t stride;
};

typedef Outcome (*LearnFunction)(const Rows&, const Choices&, const LinearState&);
typedef int64_t (*ScoreFunction)(const Rows&, const void* weights, double scale, const double* bias,
                                 double* scores);
typedef void (*LossesFunction)(int32_t loss, double parameter, int64_t n, const double* scores,
                               const double* y, double* values, double* slopes);
// The sums of |w| and of w^2, and how many are not zero.
struct Norms {
  double absolute;
  double square;
  int64_t nonzeros;
};
typedef Norms (*NormsFunction)(const void* weights, int64_t n);
typedef void (*SettleFunction)(const Choices&, const LinearState&, const Extent&);

// One row a float type: 0 float, 1 double.
struct KernelTable {
  const char* name;
  LearnFunction sgd[2];
  LearnFunction adagrad[2];
  LearnFunction ftrl[2];
  LearnFunction coin[2];
  ScoreFunction scores[2];       // returns the first row with an index out of range, or n
  SettleFunction settle_sgd[2];  // applies the owed shrinkage and the scale to v
  NormsFunction norms[2];        // the same bits on every machine
  LossesFunction losses;         // the losses as the rules see them, one score at a time
};

const KernelTable& kernels();  // the best this machine can run; STEEPEST_ISA in the environment overrides

}  // namespace steepest
