// SPDX-License-Identifier: Apache-2.0
// What the loops of networks take and return. A table of the input layer has one row of n_units weights for
// each feature; everything is float or double, as the table's place says (0 float, 1 double).
#pragma once
#include "kernel_table.h"

namespace steepest {

// Lazy shrinkage by l1 |w| + l2 w^2 / 2 along the path length S, the sum of the steps so far: a feature whose
// row was last settled at `stamp` owes the flow w' = -l2 w - l1 sign(w) over S - stamp. Flows compose, so it
// does not matter when a debt is paid.
struct Shrinkage {
  double* stamp;  // n_features, or null: nothing is ever owed
  double path;    // S
  double l1;
  double l2;
};

enum UpdateKind { kPlain, kMomentum, kAdaGrad, kAdam };

struct Update {
  int32_t kind;
  double eta;
  double keep_first;   // momentum, or Adam's decay of the mean
  double keep_second;  // Adam's decay of the square
  double epsilon;
  double first_seen;   // Adam: 1 - keep_first^t, what the mean has seen of its weight
  double second_seen;  // Adam: 1 - keep_second^t
};

// op(A) (m x p) times B (p x n). Each entry is one chain of additions over p, so its bits depend neither on
// m and n nor on how the work is cut.
struct Product {
  const void* a;
  const void* b;
  void* c;
  int64_t m, p, n;
  bool a_is_transposed;  // a is p x m
  int64_t first, last;   // rows of C to compute
};

// What rows should score, and what it costs if they do not. Numbers are learned in units of their own: a
// score is shift + scale output, and slopes are those of the output's loss against (y - shift) / scale.
struct Answers {
  int32_t loss;  // LossId, or -1: the soft maximum
  bool is_real;
  double parameter;
  const double* slope_parameter;  // n_outputs, as are shift and scale
  const double* shift;
  const double* scale;
  const int64_t* classes;  // one a row, or null: n_outputs targets in y
  const double* y;
  int64_t n_outputs;
};

// One of `n` that share the work on a batch.
struct Share {
  int64_t part, n;
};

struct NetworkTable {
  // Pays what the features of these rows owe, those of this share only. Returns the first bad row, or n.
  int64_t (*settle_rows[2])(const Rows&, const Share&, const Shrinkage&, int64_t n_units, void* table);
  // out (rows x units) = X table, which owes nothing. Returns as settle_rows does.
  int64_t (*forward[2])(const Rows&, const void* table, int64_t n_units, void* out);
  // The same for a table that may owe, and stays as it is.
  int64_t (*scores[2])(const Rows&, const void* table, int64_t n_units, const Shrinkage&, void* out);
  // The features that occur; `places` tells for every entry where its feature stands among them, as ~place if
  // that is its first entry. slot (n_features) is -1 everywhere, and is so again. Returns how many features
  // there are, or -1 if an index is out of range.
  int64_t (*places)(const Rows&, int32_t* slot, int32_t* features, int32_t* places);
  // Columns first..last of the rows of X' slopes, one row a feature.
  void (*gather[2])(const Rows&, const int32_t* places, const void* slopes, int64_t n_units, int64_t first,
                    int64_t last, void* gradient);
  // Moves the rows named by `features` (null: the first n_rows) of the weights and of their moments.
  void (*update[2])(const Update&, const int32_t* features, int64_t n_rows, int64_t n_units,
                    const void* gradient, void* table, void* first, void* second);
  // Pays what the rows named by `features` (null: the first n_rows) owe.
  void (*settle[2])(const Shrinkage&, const int32_t* features, int64_t n_rows, int64_t n_units, void* table);
  // out (rows x n_features, zero before) = X; `used` marks the features that occur. Returns as forward does.
  int64_t (*densify[2])(const Rows&, void* out, uint8_t* used);
  void (*multiply[2])(const Product&);
  // table -= eta X' slopes, the rows of this share's features only. Returns as settle_rows does.
  int64_t (*descend[2])(const Rows&, const void* slopes, int64_t n_units, const Share&, double eta,
                        void* table);
  // The soft maximum of n rows of k scores against the class of each: its loss, and its slopes times
  // `factor`.
  void (*softmax[2])(const void* scores, int64_t n, int64_t k, const int64_t* classes, const double* factor,
                     double* losses, void* slopes);
  // The same for rows first .. first + n and every loss but the soft maximum; outputs, factor, losses and
  // slopes begin with the first of these rows.
  void (*losses[2])(const Answers&, int64_t first, int64_t n, const void* outputs, const double* factor,
                    double* losses, void* slopes);
  // z += bias (null: none) in n rows of `size` units, then h = link(z).
  void (*activate[2])(int32_t link, const void* bias, int64_t n, int64_t size, void* z, void* h);
  // slope *= dh/dz for n numbers.
  void (*pass_back[2])(int32_t link, const void* z, const void* h, int64_t n, void* slope);
  void (*add[2])(const void* from, int64_t n, void* to);
  // out = the sum of n rows of `size` numbers, in their order.
  void (*sum_rows[2])(const void* rows, int64_t n, int64_t size, void* out);
  // out (n x m) = a' for a of m x n.
  void (*transpose[2])(const void* a, int64_t m, int64_t n, void* out);
  // The flow of a penalty over some length, for n weights at once.
  void (*shrink[2])(double l1, double l2, double length, int64_t n, void* weights);
};

const NetworkTable& network_kernels();

}  // namespace steepest
