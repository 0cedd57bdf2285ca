// SPDX-License-Identifier: Apache-2.0
// Rows from Python, checked before a kernel sees them, and their parts in threads.
#pragma once

#include <algorithm>
#include <optional>

#include "bind_arrays.h"
#include "kernel_table.h"
#include "parts.h"

namespace steepest {

// Rows in the order of their visits.
inline Rows visited_rows(const In<int64_t>& indptr, const In<int32_t>& indices, const In<float>& values,
                         const std::optional<In<int64_t>>& order, int64_t n_features = 0) {
  const int64_t n_rows = size_of(indptr) - 1, n_entries = std::min(size_of(indices), size_of(values));
  require(n_rows >= 0, "indptr does not fit indices and values");
  Rows rows = {};
  rows.indptr = indptr.data();
  rows.indices = indices.data();
  rows.values = values.data();
  rows.order = order ? order->data() : nullptr;
  rows.n = order ? size_of(*order) : n_rows;
  rows.n_features = n_features;
  for (int64_t q = 0; q < rows.n; ++q) {
    const int64_t i = rows.order ? rows.order[q] : q;
    require(0 <= i && i < n_rows, "the order names a row that is not there");
    require(0 <= rows.indptr[i] && rows.indptr[i + 1] <= n_entries, "indptr does not fit indices and values");
    require(rows.indptr[i] <= rows.indptr[i + 1], "indptr must not decrease");
  }
  return rows;
}

}  // namespace steepest
