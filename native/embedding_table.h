// SPDX-License-Identifier: Apache-2.0
// What the embedding kernels take and return. A text is the mean of the rows of its features and of one row
// that stands at the end of every text: h = (E_end + sum v_j E_j) / (1 + sum |v_j|). Outputs are W h.
#pragma once
#include "kernel_table.h"

namespace steepest {

enum EmbeddingLoss { kSoftmaxLoss, kOneVersusAll, kNegatives, kHierarchical };

constexpr int64_t kVector = 8;  // `stride` is a multiple of it

struct Embedding {
  float* table;  // (n_features + 1) x stride; the last row ends every text
  float* head;   // n_outputs x stride: one row an output, or an inner node of the tree
  int64_t n_features;
  int64_t n_outputs;
  int64_t stride;
};

// Targets of the rows in visiting order: the labels target[start[q]] .. target[start[q + 1]], or the one
// label target[q].
struct Targets {
  const int64_t* start;  // null: one label a row
  const int32_t* target;
};

// A binary tree whose leaves are the labels. The way to a label leads through inner nodes, to the left (+1)
// or to the right (-1).
struct Tree {
  const int64_t* start;  // n_labels + 1
  const int32_t* node;
  const float* side;
  const int32_t* children;  // n_nodes x 2: an inner node, or -1 - label
  const int32_t* top_down;  // n_nodes: each after its parent
  int64_t n_nodes;
};

struct EmbeddingRule {
  int32_t loss;
  double eta0;
  double total;  // rows in all: the step falls linearly to zero; 0: eta0 / sqrt(1 + t / half)
  double half;   // rows after which an endless stream has slowed down by sqrt(2)
  int32_t negatives;
  uint64_t seed;
  const int32_t* sample;  // labels to draw from, each as often as it is likely
  int64_t n_sample;
};

struct EmbeddingOutcome {
  int64_t rows_done;
  int32_t status;  // see Status
  double loss_sum;
  double weight_sum;
  int64_t n_fresh;  // features that were learned for the first time
};

typedef EmbeddingOutcome (*EmbeddingLearn)(const Rows&, const Targets&, const Embedding&, const Tree&,
                                           const EmbeddingRule&, double t, double every, float* scratch,
                                           int32_t* fresh);
typedef int64_t (*EmbeddingScores)(const Rows&, const Embedding&, const Tree&, float* out, float* scratch);
typedef int64_t (*EmbeddingHidden)(const Rows&, const Embedding&, float* out);

struct EmbeddingTable {
  EmbeddingLearn learn;    // rows count t, t + every, ...; `fresh` has room for each entry and one more
  EmbeddingScores scores;  // n x n_outputs, or log-probabilities of n x (n_nodes + 1) labels of a tree
  EmbeddingHidden hidden;  // n x stride
};

const EmbeddingTable& embedding_kernels();

// Floats of scratch for learning or scoring.
inline int64_t embedding_scratch(int64_t n_outputs, int64_t stride) {
  return 2 * stride + 2 * (n_outputs + 2 * kVector);
}

}  // namespace steepest
