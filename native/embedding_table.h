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

// What one replica learns in a round: the head is its own, the table waits. Of the losses that ask few rows
// of the head, those that answered are listed.
struct EmbeddingReplica {
  float* head;
  float* slope;       // a row for each text: sum g_k W_k
  float* move;        // what that is to be multiplied by, and by a feature's value; 0: nothing was learned
  uint8_t* answered;  // a mark for each row of the head, or null: all do
  int32_t* listed;    // rows that are marked
  int64_t n_listed;
};

struct EmbeddingMove {
  int32_t feature;
  float by;       // times a slope, to be added to the feature's row
  int64_t slope;  // where it begins
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

typedef EmbeddingOutcome (*EmbeddingLearnApart)(const Rows&, const Targets&, const Embedding&, const Tree&,
                                                const EmbeddingRule&, double t, float* scratch,
                                                EmbeddingReplica& replica);
typedef int64_t (*EmbeddingAddUp)(const Rows&, const Embedding&, const float* slope, const float* move,
                                  int64_t part, int64_t n_parts, EmbeddingMove* own, int32_t* fresh);
typedef void (*EmbeddingMeet)(const Embedding&, EmbeddingReplica* replicas, int64_t n, int64_t part,
                              int64_t n_parts);

struct EmbeddingTable {
  EmbeddingLearn learn;    // rows count t, t + every, ...; `fresh` has room for each entry and one more
  EmbeddingScores scores;  // n x n_outputs, or log-probabilities of n x (n_nodes + 1) labels of a tree
  EmbeddingHidden hidden;  // n x stride
  EmbeddingLearnApart learn_apart;  // like `learn`, but the table stays as it is
  EmbeddingAddUp add_up;  // adds what texts have learned to those rows of the table that a part owns
  EmbeddingMeet meet;     // likewise with the heads, which are then all the same
};

const EmbeddingTable& embedding_kernels();

// Replicas: in a round each of `n` learns `rows_each` texts from common rows and a common head; then what
// they have learned is added up, text by text and replica by replica, in their order. Threads take replicas,
// and then the rows that they own, so the bits depend on `n` and `rows_each`, not on threads. All rows must
// fill whole rounds; where one is in trouble, the outcome tells the start of its round, of which nothing was
// learned.
EmbeddingOutcome learn_embedding_replicas(const Rows&, const Targets&, const Embedding&, const Tree&,
                                          const EmbeddingRule&, double t, int64_t n, int64_t rows_each,
                                          int64_t n_threads, int32_t* fresh);

// Visits first..last; weights are those of the block, targets those of the visits.
struct EmbeddingPart {
  Rows rows;
  Targets targets;
};

inline EmbeddingPart part_of(const Rows& rows, const Targets& targets, int64_t first, int64_t last) {
  EmbeddingPart part = {rows, targets};
  part.rows.n = last - first;
  if (rows.order) {
    part.rows.order += first;
  } else {
    part.rows.indptr += first;
    if (rows.weight) part.rows.weight += first;
  }
  if (targets.start) {
    part.targets.start += first;
  } else if (targets.target) {
    part.targets.target += first;
  }
  return part;
}

inline int64_t entries_of(const Rows& rows, int64_t first, int64_t last) {
  int64_t n = 0;
  for (int64_t q = first; q < last; ++q) {
    const int64_t i = rows.order ? rows.order[q] : q;
    n += rows.indptr[i + 1] - rows.indptr[i];
  }
  return n;
}

// Floats of scratch for learning or scoring.
inline int64_t embedding_scratch(int64_t n_outputs, int64_t stride) {
  return 2 * stride + 2 * (n_outputs + 2 * kVector);
}

}  // namespace steepest
