// SPDX-License-Identifier: Apache-2.0
// What the embedding kernels take and return. A text is the mean of the rows of its features and of one row
// that ends every text: h = (E_end + sum v_j E_j) / (1 + sum |v_j|). Outputs are W h.
#pragma once
#include "core/rows.h"

namespace steepest {

enum EmbeddingLoss { kSoftmaxLoss, kOneVersusAll, kNegatives, kHierarchical };

constexpr int64_t kVector = 8;  // `stride` is a multiple of it

// A binary tree whose leaves are the labels. The way to a label leads through inner nodes, to the left (+1)
// or to the right (-1).
struct LabelTree {
  const int64_t* start;  // n_labels + 1
  const int32_t* node;
  const float* side;
  const int32_t* children;  // n_nodes x 2: an inner node, or -1 - label
  const int32_t* top_down;  // n_nodes: each after its parent
  int64_t n_nodes;          // 0: there is no tree
};

struct Embedding {
  float* table;  // (n_features + 1) x stride; the last row ends every text
  float* head;   // n_outputs x stride: one row per output, or per inner node of the tree
  int64_t n_features, n_outputs, stride;
  LabelTree tree;

  int64_t n_labels() const { return tree.n_nodes ? tree.n_nodes + 1 : n_outputs; }
  // Floats of scratch for learning or scoring.
  int64_t n_scratch() const { return 2 * stride + 2 * (n_outputs + 2 * kVector); }
};

// Targets in visiting order: the labels label[start[q]] .. label[start[q + 1]], or the one label[q].
struct LabelLists {
  const int64_t* start;  // null: one label per row, or -1
  const int32_t* label;
};

struct EmbeddingChoices {
  int32_t loss;
  double eta0;
  double total;  // rows in all: the step falls linearly to zero; 0: eta0 / sqrt(1 + t / half)
  double half;   // rows after which an endless stream has slowed down by sqrt(2)
  int32_t negatives;
  uint64_t seed;
  const int32_t* sample;  // labels to draw from, each as often as it is likely
  int64_t n_sample;
  int64_t n_replicas, rows_each;  // see learn_embedding
};

// Texts to learn; the first has number t, the next t + every.
struct EmbeddingTask {
  Rows rows;
  LabelLists targets;
  Embedding model;
  EmbeddingChoices choices;
  double t, every;

  EmbeddingTask part(int64_t first, int64_t last) const {
    EmbeddingTask task = *this;
    task.rows = slice(rows, first, last);
    if (targets.start)
      task.targets.start += first;
    else
      task.targets.label += first;
    return task;
  }
};

// What one replica learns in a round: the head is its own, the table waits. Of the losses that move few rows
// of the head, those that moved are listed.
struct EmbeddingReplica {
  float* head;
  float* gradient;  // a row for each text: sum g_k W_k
  float* move;      // what that is to be multiplied by, and by a feature's value; 0: nothing was learned
  uint8_t* moved;   // a mark for each row of the head, or null: all move
  int32_t* listed;  // rows that are marked
  int64_t n_listed;
};

struct EmbeddingMove {
  int32_t feature;
  float by;          // times a gradient, to be added to the feature's row
  int64_t gradient;  // where it begins
};

struct EmbeddingOutcome : Outcome {
  int64_t n_fresh;  // features that were learned for the first time
};

struct EmbeddingTable {
  // `fresh` has room for each entry and one more. A replica (else null) leaves the table as it is.
  EmbeddingOutcome (*learn)(const EmbeddingTask&, float* scratch, int32_t* fresh, EmbeddingReplica* replica);
  // n x n_outputs, or log-probabilities of n x (n_nodes + 1) labels of a tree; returns rows done.
  int64_t (*scores)(const Rows&, const Embedding&, float* out, float* scratch);
  int64_t (*hidden)(const Rows&, const Embedding&, float* out);  // n x stride
  // Adds what texts have learned to those rows of the table that are this share's.
  int64_t (*add_up)(const Rows&, const Embedding&, const float* gradient, const float* move, const Share&,
                    EmbeddingMove* own, int32_t* fresh);
  // Likewise with the heads of n replicas, which are then all the same.
  void (*merge_heads)(const Embedding&, EmbeddingReplica* replicas, int64_t n, const Share&);
};

const EmbeddingTable& embedding_kernels();

// Learns all rows. One replica: rows in turn; more than one thread cut them into parts that overwrite each
// other's work now and then (Hogwild). More replicas: in a round each learns `rows_each` texts from the same
// rows and the same head; then what they have learned is added up, text by text and replica by replica, in
// their order. Threads take replicas, and then the rows that are theirs, so the bits depend on n_replicas and
// rows_each, not on threads. All rows must fill whole rounds; where one is in trouble, the outcome names the
// start of its round, of which nothing was learned. `fresh` has room for each entry and one more per thread.
EmbeddingOutcome learn_embedding(const EmbeddingTask& task, int64_t n_threads, int32_t* fresh);

}  // namespace steepest
