// SPDX-License-Identifier: Apache-2.0
// The kernels of networks with their work shared among threads. Every number is the work of one of them, so
// bits do not depend on how many there are. Arrays are float or double, as `type` says (0 float, 1 double).
#pragma once
#include <algorithm>
#include <vector>

#include "crew.h"
#include "network_table.h"

namespace steepest {

constexpr int64_t kLeastRows = 4;  // of a thread

// A table: what its numbers are, its rows (features) and its columns (units).
struct Shape {
  int type;
  int64_t n_features, n_units;

  int64_t row_bytes() const { return n_units * (type ? 8 : 4); }
};

// What an update may move: rows of weights and of their moments (null: the rule has none).
struct Moved {
  Shape shape;
  void *table, *first, *second;
};

inline int64_t parts_for(int64_t n_threads, int64_t most) {
  return std::max<int64_t>(1, std::min<int64_t>(n_threads, most));
}

Rows rows_between(Rows rows, int64_t first, int64_t last);
int64_t count_entries(const Rows& rows);

// The first row that some part could not take, where rows were cut among parts.
inline int64_t first_stop(const std::vector<int64_t>& done) {
  return *std::min_element(done.begin(), done.end());
}

// `work(rows of the part, first row)` returns how many rows it has done; all of them are rows.n.
template <typename Work>
int64_t over_rows(const Rows& rows, int64_t n_threads, Work work) {
  const int64_t parts = parts_for(n_threads, rows.n / kLeastRows);
  std::vector<int64_t> done(parts);
  in_parts(parts, [&](int64_t part) {
    const int64_t first = part_start(rows.n, parts, part, 1), last = part_start(rows.n, parts, part + 1, 1);
    const int64_t n = work(rows_between(rows, first, last), first);
    done[part] = n == last - first ? rows.n : first + n;
  });
  return first_stop(done);
}

// These return the first row with an index out of range, or rows.n.
int64_t settle_shared(const Rows& rows, const Shape& shape, const Shrinkage& s, void* table,
                      int64_t n_threads);
int64_t descend_shared(const Rows& rows, const void* slopes, const Shape& shape, double eta, void* table,
                       int64_t n_threads);
// How many features occur, or -1 if an index is out of range.
int64_t gather_shared(const Rows& rows, const void* slopes, const Shape& shape, int32_t* slot,
                      int32_t* features, void* gradient, int64_t n_threads);
// `features` names n_rows rows of the table; null: its first ones.
void update_shared(const Update& rule, const int32_t* features, int64_t n_rows, const void* gradient,
                   const Moved& moved, int64_t n_threads);
void multiply_shared(int type, const Product& whole, int64_t n_threads);

}  // namespace steepest
