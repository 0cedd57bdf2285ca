// SPDX-License-Identifier: Apache-2.0
// What the loops of networks take and return. A table of the input layer has one row of n_units weights for
// each feature. Everything is float or double, as T says.
#pragma once
#include "core/rows.h"

namespace steepest {

template <typename T>
struct Matrix {
  T* data;
  int64_t n_rows, n_columns;

  operator Matrix<const T>() const { return {data, n_rows, n_columns}; }
  T* row(int64_t i) const { return data + i * n_columns; }
  int64_t size() const { return n_rows * n_columns; }
};

// Lazy shrinkage by l1 |w| + l2 w^2 / 2 along the path length S, the sum of the steps so far: a feature whose
// row was last up to date at `stamp` owes the flow w' = -l2 w - l1 sign(w) over S - stamp. Flows compose, so
// it does not matter when a debt is paid.
struct Shrinkage {
  double* stamp;  // n_features, or null: nothing is ever owed
  double path;    // S
  double l1, l2;
};

enum SolverKind { kPlain, kMomentum, kAdaGrad, kAdam };

// What stays the same during a call.
struct NetworkChoices {
  int32_t kind;        // SolverKind
  double keep_first;   // momentum, or how much of its mean Adam keeps
  double keep_second;  // how much of its square Adam keeps
  double epsilon;
  double l1, l2;
  int64_t batch_size;
};

struct Step {
  NetworkChoices choices;
  double eta;
  double first_seen;   // Adam: 1 - keep_first^t, what the mean has seen of its weight
  double second_seen;  // Adam: 1 - keep_second^t
};

// Weights and their moments, null where the solver has none.
template <typename T>
struct Weights {
  Matrix<T> table;
  T *first, *second;
};

// op(A) (m x p) times B (p x n). Each entry is one chain of additions over p, so its bits depend neither on
// m and n nor on how the work is cut.
template <typename T>
struct Product {
  const T* a;
  const T* b;
  T* c;
  int64_t m, p, n;
  bool a_is_transposed;  // a is p x m
  int64_t first, last;   // rows of C to compute
};

// What rows should score, in the order of their visits, and what it costs if they do not. Numbers are learned
// in units of their own: a score is shift + scale output, and gradients are those of the output's loss
// against (y - shift) / scale.
struct NetworkTargets {
  int32_t loss;  // LossId, or -1: the soft maximum
  double parameter;
  bool is_real;
  int64_t n_outputs, n_rows;
  const double* units;     // shift, scale, and the parameter of gradients: n_outputs each
  const int64_t* classes;  // one per row, or null: n_outputs targets in y
  const double* y;
  const double* weight;  // one per row, or null: all ones
};

// Some rows of outputs, and what is to be found for them.
template <typename T>
struct Judged {
  int64_t first, n;  // rows
  const T* outputs;
  const double* factor;  // what the gradients of each row are multiplied by
  double* losses;
  T* gradients;
};

// Functions that return a number of rows return the first with an index out of range, or n.
template <typename T>
struct NetworkKernels {
  // Pays what the features of these rows owe, those of this share only.
  int64_t (*pay_rows)(const Rows&, const Share&, const Shrinkage&, const Matrix<T>& table);
  // Pays what the rows named by `features` (null: the first n) owe.
  void (*pay_listed)(const Shrinkage&, const int32_t* features, int64_t n, const Matrix<T>& table);
  // The flow of a penalty over some length, for n weights at once.
  void (*pay_all)(const Shrinkage&, double length, int64_t n, T* weights);
  // out (rows x units) = X table, which owes nothing.
  int64_t (*forward)(const Rows&, const Matrix<const T>& table, T* out);
  // The same for a table that may owe, and stays as it is.
  int64_t (*scores)(const Rows&, const Matrix<const T>& table, const Shrinkage&, T* out);
  // Columns first..last of the rows of X' gradients (n_columns wide), one row per feature.
  void (*gather)(const Rows&, const int32_t* places, const Matrix<const T>& gradients, int64_t first,
                 int64_t last, T* sums);
  // table -= eta X' gradients, the rows of this share's features only.
  int64_t (*descend)(const Rows&, const T* gradients, const Share&, double eta, const Matrix<T>& table);
  // Moves the rows named by `features` (null: the first n) of the weights and of their moments.
  void (*update)(const Step&, const int32_t* features, int64_t n, const T* gradient, const Weights<T>&);
  // out (rows x n_features, zero before) = X; `used` marks the features that occur.
  int64_t (*densify)(const Rows&, T* out, uint8_t* used);
  void (*multiply)(const Product<T>&);
  void (*judge)(const NetworkTargets&, const Judged<T>&);
  // z += bias (null: none) in n rows of `size` units, then h = link(z).
  void (*activate)(int32_t link, const T* bias, int64_t n, int64_t size, T* z, T* h);
  // gradient *= dh/dz for n numbers.
  void (*pass_back)(int32_t link, const T* z, const T* h, int64_t n, T* gradient);
  void (*add)(const T* from, int64_t n, T* to);
  // out = the sum of n rows of `size` numbers, in their order.
  void (*sum_rows)(const T* rows, int64_t n, int64_t size, T* out);
  void (*transpose)(const Matrix<const T>& a, T* out);
};

struct NetworkTable {
  // The features that occur; `places` says for every entry where its feature is among them, as ~place if that
  // is its first entry. slot (n_features) is -1 everywhere, and is so again. Returns how many features there
  // are, or -1 if an index is out of range.
  int64_t (*places)(const Rows&, int32_t* slot, int32_t* features, int32_t* places);
  NetworkKernels<float> of_floats;
  NetworkKernels<double> of_doubles;
};

const NetworkTable& network_kernels();

template <typename T>
const NetworkKernels<T>& network_kernels_of() {
  if constexpr (sizeof(T) == sizeof(float))
    return network_kernels().of_floats;
  else
    return network_kernels().of_doubles;
}

}  // namespace steepest
