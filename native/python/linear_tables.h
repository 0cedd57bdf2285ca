// SPDX-License-Identifier: Apache-2.0
// Tables of linear weights that come from Python: what shape they have, and whether it is one.
#pragma once

#include <limits>

#include "linear/class_hash.h"
#include "linear/linear_table.h"
#include "python/arrays.h"

namespace steepest {

// A table (features, [numbers per weight,] outputs), which may have room for more outputs than there are; or
// one that all share, where rows may name n_columns features.
template <typename AnyTable>
TableShape shape_of(const AnyTable& table, int64_t n_outputs, int64_t per_weight, int32_t table_bits,
                    int64_t n_columns) {
  const int64_t size = size_of(table);
  TableShape shape = {n_columns, n_outputs, n_outputs, n_outputs * per_weight, table_bits, 0};
  if (table_bits) {
    require(kLeastTableBits <= table_bits && table_bits <= kMostTableBits, "table_bits must be 6 to 30");
    require(n_outputs > 0 && size == table_entries(table_bits) * per_weight, "the table has another size");
    require(0 <= n_columns && n_columns <= std::numeric_limits<int32_t>::max(), "n_columns is out of range");
    return shape;
  }
  if (table.ndim() == (per_weight == 1 ? 2 : 3))
    shape.width = static_cast<int64_t>(table.shape(table.ndim() - 1));
  shape.stride = shape.width * per_weight;
  require(0 < n_outputs && n_outputs <= shape.width && size % shape.stride == 0,
          "the weights do not fit the bias");
  shape.n_features = size / shape.stride;
  return shape;
}

inline ScoreTable score_table(const ConstFloatTable& weights, double scale, const double* bias,
                              size_t n_biases, int32_t table_bits, int64_t n_columns) {
  return {weights.data(), float_type(weights), scale, bias,
          shape_of(weights, static_cast<int64_t>(n_biases), 1, table_bits, n_columns)};
}

}  // namespace steepest
