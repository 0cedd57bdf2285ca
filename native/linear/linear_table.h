// SPDX-License-Identifier: Apache-2.0
// What the loops of linear models take and return: plain structs and C function pointers, so that the same
// table can be filled by any instruction set and called from any language. Arrays belong to the caller and
// are changed in place.
#pragma once
#include "core/rows.h"

namespace steepest {

enum SolverId { kSgd, kAdagrad, kFtrl, kCoin, kSolvers };
enum TargetKind { kTargets, kOneVsRest, kSoftmax };
enum ScheduleId { kConstant, kInverseSqrt, kPower, kByNoise };
enum AverageKind { kNoAverage, kUniform, kByStep, kPolynomial };

// Numbers that a solver has for each weight.
constexpr int64_t entries_per_weight(int32_t solver) { return solver == kSgd ? 1 : solver == kCoin ? 4 : 2; }

// What stays the same during a call.
struct LinearChoices {
  int32_t solver;
  int32_t loss;
  double loss_parameter;
  int32_t target_kind;
  int32_t schedule;
  double eta0;
  double power;  // kPower: eta0 / (1 + eta0 * alpha * t)^power
  double alpha;  // the strength of the penalty
  double l1;
  double l2;
  double truncate_below;   // truncated gradient: weights beyond it are left alone; infinity shrinks all
  int64_t truncate_every;  // truncated gradient: steps between two truncations
  int32_t average;
  int64_t batch_size;
  double bias_scale;  // 0: the bias takes the common step; < 0: no bias; else AdaGrad with this size
  double half_life;   // a row counts half after so many others; infinity forgets nothing. With the times of
                      // rows, it is 1, since these are in half-lives
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

// What moves as well where rows have times. Python holds it as an array of kAgesSize doubles.
struct Ages {
  double now;     // the latest time so far, in half-lives
  double effect;  // the weights of all rows at that time; 0 before the first
};
constexpr int kAgesSize = 2;

// Where the weights of features and outputs are in a table.
struct TableShape {
  int64_t n_features;    // that rows may name
  int64_t n_outputs;     // that are learned or scored here
  int64_t width;         // columns of the table: all outputs, and room for more
  int64_t stride;        // entries from a feature's weights to the next feature's
  int32_t table_bits;    // 0: a weight for each feature and output; else all share a table, see class_hash.h
  int64_t first_output;  // if threads have shared out the outputs
};

// The learned arrays; which are used depends on the solver.
struct LinearState {
  int type;        // of v and average: 0 float, 1 double
  void* v;         // n_features x width, with 2 or 4 numbers per weight for all solvers but sgd; or shared
  double* shrunk;  // n_features: Q when the feature last paid its share of it; null without l1
  // As v, with the same stride: u, with mean weight (S v - u) / C; null without averaging. Best right behind
  // the weights of each feature, [feature][v, u][output], so that both come with one cache line.
  void* average;
  double* bias;          // n_outputs
  double* bias_square;   // n_outputs: sum of squared gradients
  double* bias_average;  // n_outputs
  Clock* clock;
  Ages* ages;  // null if a half-life is in rows
  TableShape shape;
  double* scratch;  // as many as scratch_size says
};

// Losses are added up by groups of outputs, so that it does not matter which of them a thread has.
constexpr int64_t kOutputGroup = 8;
inline int64_t count_groups(int64_t n_outputs) { return (n_outputs + kOutputGroup - 1) / kOutputGroup; }

// Gradients of a batch, scores of a row, its losses by group, and their sums.
inline int64_t scratch_size(int64_t batch_size, int64_t n_outputs) {
  return (batch_size + 1) * n_outputs + 2 * count_groups(n_outputs);
}
inline double* row_losses(double* scratch, int64_t batch_size, int64_t n_outputs) {
  return scratch + (batch_size + 1) * n_outputs;
}
inline double* loss_sums(double* scratch, int64_t batch_size, int64_t n_outputs) {
  return row_losses(scratch, batch_size, n_outputs) + count_groups(n_outputs);
}

// Weights to score with.
struct ScoreTable {
  const void* weights;
  int type;
  double scale;
  const double* bias;
  TableShape shape;
};

// Means (S v - u) / C of the iterates: n_rows runs of `run` weights each, which are `stride` entries apart.
struct AverageTable {
  int type;
  const void *v, *u;
  int64_t n_rows, run, stride;
  double sum_of_scales, total;  // S and C
};

// The sums of |w| and of w^2, and how many are not zero.
struct Norms {
  double absolute;
  double square;
  int64_t nonzeros;
};

// One entry per float type: 0 float, 1 double.
struct LinearKernels {
  const char* name;
  Outcome (*learn[kSolvers][2])(const Rows&, const LinearChoices&, const LinearState&);
  // scale * w.x + bias; returns the first row with an index out of range, or n.
  int64_t (*scores[2])(const Rows&, const ScoreTable&, double* scores);
  // sgd: the shrinkage that is owed and the scale go into v.
  void (*apply_penalty[2])(const LinearChoices&, const LinearState&);
  void (*means[2])(const AverageTable&, int64_t first_row, int64_t n_rows, void* out);
  Norms (*norms[2])(const void* weights, int64_t n);  // the same bits on every machine
  // The losses as the solvers see them, one score at a time.
  void (*losses)(int32_t loss, double parameter, int64_t n, const double* scores, const double* y,
                 double* values, double* gradients);
};

const LinearKernels& linear_kernels();  // for this machine; STEEPEST_ISA in the environment overrides

}  // namespace steepest
