// SPDX-License-Identifier: Apache-2.0
// The rows that come from Python, `Rows` there: the arrays, kept alive, and everything checked that could
// make a kernel read outside them, except feature indices, which kernels check row by row while they are in
// cache.
#pragma once

#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/rows.h"
#include "python/arrays.h"

namespace steepest {

class RowArrays {
 public:
  RowArrays(In<int64_t> indptr, In<int32_t> indices, In<float> values,
            std::optional<In<double>> y = std::nullopt, std::optional<In<double>> weight = std::nullopt,
            std::optional<In<int64_t>> order = std::nullopt, std::optional<In<double>> time = std::nullopt)
      : indptr_(std::move(indptr)),
        indices_(std::move(indices)),
        values_(std::move(values)),
        y_(std::move(y)),
        weight_(std::move(weight)),
        order_(std::move(order)),
        time_(std::move(time)) {
    require(n_rows() >= 0, "indptr does not fit indices and values");
    rows_.indptr = indptr_.data();
    rows_.indices = indices_.data();
    rows_.values = values_.data();
    rows_.weight = data_of(weight_, n_rows(), "weight does not fit the rows");
    rows_.time = data_of(time_, n_rows(), "time does not fit the rows");
    rows_.order = order_ ? order_->data() : nullptr;
    rows_.n = order_ ? size_of(*order_) : n_rows();
    check_visits();
  }

  // Rows of the block, of which the order may visit some only.
  int64_t n_rows() const { return size_of(indptr_) - 1; }
  int64_t n_visits() const { return rows_.n; }

  // Without targets.
  Rows view(int64_t n_features) const {
    Rows rows = rows_;
    rows.n_features = n_features;
    return rows;
  }
  // Without targets, all of them, for kernels that take rows by their number.
  Rows in_block(int64_t n_features) const {
    require(!order_, "these rows are taken by their numbers, so that they have no order");
    return view(n_features);
  }
  // With n_targets numbers per row.
  Rows with_targets(int64_t n_features, int64_t n_targets) const {
    require(y_ && size_of(*y_) == n_rows() * n_targets, "y does not fit the rows");
    Rows rows = view(n_features);
    rows.y = y_->data();
    rows.n_targets = n_targets;
    return rows;
  }
  // With the code of one of n_classes per row.
  Rows with_classes(int64_t n_features, int64_t n_classes) const {
    const Rows rows = with_targets(n_features, 1);
    for (int64_t q = 0; q < rows.n; ++q) {
      const double code = rows.y[row_at(rows, q)];
      require(code >= 0 && code < static_cast<double>(n_classes), "a class code is out of range");
    }
    return rows;
  }

 private:
  // Only what is visited, so that a short visit to a large block stays short.
  void check_visits() const {
    const int64_t n_entries = std::min(size_of(indices_), size_of(values_));
    for (int64_t q = 0; q < rows_.n; ++q) {
      const int64_t i = row_at(rows_, q);
      require(0 <= i && i < n_rows(), "the order names a row that is not there");
      const int64_t start = rows_.indptr[i], stop = rows_.indptr[i + 1];
      require(0 <= start && stop <= n_entries, "indptr does not fit indices and values");
      require(start <= stop, "indptr must not decrease");
      const double weight = weight_at(rows_, i);
      require(weight >= 0 && std::isfinite(weight), "a weight must be finite and not negative");
      require(!rows_.time || std::isfinite(rows_.time[i]), "a time must be finite");
    }
  }

  In<int64_t> indptr_;
  In<int32_t> indices_;
  In<float> values_;
  std::optional<In<double>> y_, weight_;
  std::optional<In<int64_t>> order_;
  std::optional<In<double>> time_;
  Rows rows_ = {};
};

}  // namespace steepest
