// SPDX-License-Identifier: Apache-2.0
// The kernels of networks with their work shared among threads. Every number is the work of one of them, so
// bits do not depend on how many there are.
#pragma once
#include <algorithm>
#include <vector>

#include "core/threads.h"
#include "network/network_table.h"

namespace steepest {

constexpr int64_t kLeastRows = 4;  // of a thread

// A mini-batch is so short that one part must not pay for the thread pool.
template <typename Work>
void in_parts(int64_t n_parts, const Work& work) {
  if (n_parts <= 1) return work(0);
  parallel_for(n_parts, n_parts, work);
}

// `work(share)` does its share of all rows, and returns the first row that is not done, or rows.n.
template <typename Work>
int64_t over_shares(const Rows& rows, int64_t n_threads, const Work& work) {
  const int64_t parts = parts_for(rows.n, n_threads, kLeastRows);
  std::vector<int64_t> done(parts);
  in_parts(parts, [&](int64_t part) { done[part] = work(Share{part, parts}); });
  return *std::min_element(done.begin(), done.end());
}

template <typename T>
int64_t pay_rows(const Rows& rows, const Shrinkage& s, const Matrix<T>& table, int64_t n_threads) {
  return over_shares(rows, n_threads, [&](const Share& share) {
    return network_kernels_of<T>().pay_rows(rows, share, s, table);
  });
}

template <typename T>
int64_t descend(const Rows& rows, const T* gradients, double eta, const Matrix<T>& table, int64_t n_threads) {
  return over_shares(rows, n_threads, [&](const Share& share) {
    return network_kernels_of<T>().descend(rows, gradients, share, eta, table);
  });
}

// How many features occur, or -1 if an index is out of range; their rows of X' gradients.
template <typename T>
int64_t gather(const Rows& rows, const Matrix<const T>& gradients, int32_t* slot, int32_t* features, T* sums,
               int64_t n_threads) {
  std::vector<int32_t> places(entries_in(rows));
  const int64_t n = network_kernels().places(rows, slot, features, places.data());
  const int64_t n_units = gradients.n_columns, parts = parts_for(n_units, n_threads, kFloatsPerLine);
  if (n < 0) return n;
  in_parts(parts, [&](int64_t part) {
    network_kernels_of<T>().gather(rows, places.data(), gradients,
                                   part_start(n_units, parts, part, kFloatsPerLine),
                                   part_start(n_units, parts, part + 1, kFloatsPerLine), sums);
  });
  return n;
}

// `features` names n rows of the weights; null: the first ones.
template <typename T>
void update(const Step& step, const int32_t* features, int64_t n, const T* gradient,
            const Weights<T>& weights, int64_t n_threads) {
  const int64_t n_units = weights.table.n_columns, parts = parts_for(n * n_units, n_threads, 1 << 14);
  in_parts(parts, [&](int64_t part) {
    const int64_t from = part_start(n, parts, part, 1), to = part_start(n, parts, part + 1, 1);
    Weights<T> own = weights;
    if (!features) {  // rows that are not listed begin where the part does
      own.table.data += from * n_units;
      if (own.first) own.first += from * n_units;
      if (own.second) own.second += from * n_units;
    }
    network_kernels_of<T>().update(step, features ? features + from : nullptr, to - from,
                                   gradient + from * n_units, own);
  });
}

template <typename T>
void multiply(const Product<T>& whole, int64_t n_threads) {
  constexpr int64_t kRowsOfTile = 6, kLeastProducts = 100000;  // multiplications worth another thread
  const int64_t parts = parts_for(whole.m * whole.p * whole.n, n_threads, kLeastProducts);
  in_parts(parts, [&](int64_t part) {
    Product<T> product = whole;
    product.first = part_start(whole.m, parts, part, kRowsOfTile);
    product.last = part_start(whole.m, parts, part + 1, kRowsOfTile);
    network_kernels_of<T>().multiply(product);
  });
}

}  // namespace steepest
