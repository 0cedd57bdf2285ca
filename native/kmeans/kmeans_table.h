// SPDX-License-Identifier: Apache-2.0
// What the k-means kernels take and return. Centres lie feature by feature, so that one value of a sparse row
// meets all clusters in one contiguous stretch, eight at a time.
#pragma once
#include "core/rows.h"

namespace steepest {

constexpr int64_t kLanes = 8;     // clusters in a vector; `stride` is a multiple of it
constexpr int64_t kTileRows = 4;  // dense rows that share one reading of the centres

// Centre c is scale[c] * table[:, c]. The mini-batch solver keeps sums there and one over the counts as
// scale.
struct Centres {
  const float* table;  // n_features x stride
  const float* scale;  // stride
  const float* norm;   // stride: squared length of the centre
  int64_t n_features, k, stride;
};

// Hamerly's bounds: `upper` is no less than the distance to the own centre, `lower` no more than that to any
// other.
struct Bounds {
  double* upper;
  double* lower;
  const double* row_norm;  // squared lengths of the rows
  const double* drift;     // k: how far each centre has moved since the last call
  int64_t fastest;         // the centre that moved most, and how far
  double most_drift;
  double other_drift;   // the most that any other moved
  double longest_norm;  // the largest squared length of a centre
};

struct Nearest {
  int32_t* label;  // with bounds: also read, -1 for a row that has none yet
  double* best;    // squared distance; null: not requested; rows that the bounds decide leave theirs alone
};

struct Searched {
  int64_t rows_done;  // n, or the first row that has no nearest centre or an index out of range
  int64_t measured;   // rows for which the distances were computed
  int64_t changed;    // rows whose label is new
};

struct Mean {
  double weight;  // of the members; 0: the centre was left alone
  double norm;    // squared length
  double drift;   // how far the centre moved
};

// Sums of the rows of each cluster.
struct ClusterSums {
  float* table;  // n_features x stride
  int64_t stride;
  double* count;   // weight of the rows of each cluster
  double* square;  // squared length of each sum
};

struct KMeansTable {
  // `scratch`: kTileRows x (n_features + stride) floats.
  Searched (*nearest)(const Rows&, const Centres&, const Nearest&, const Bounds*, float* scratch);
  // All squared distances, n x k; returns rows done.
  int64_t (*distances)(const Rows&, const Centres&, double* out, float* scratch);
  // Adds rows to the sums of their clusters, for clusters first..last; returns rows done.
  int64_t (*add)(const Rows&, const int32_t* label, int64_t first, int64_t last, const ClusterSums&);
  // Centre c becomes the mean of the rows; `sums` are n_features zeros, before and after.
  Mean (*mean)(const Rows&, double* sums, float* table, int64_t stride, int64_t c);
};

const KMeansTable& kmeans_kernels();

}  // namespace steepest
