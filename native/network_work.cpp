// SPDX-License-Identifier: Apache-2.0
#include "network_work.h"

namespace steepest {
namespace {

constexpr int64_t kRowsOfTile = 6;
constexpr int64_t kUnitsOfLine = 16;        // floats of a cache line
constexpr int64_t kLeastProducts = 1e5;     // multiplications that are worth another thread
constexpr int64_t kLeastNumbers = 1 << 14;  // to update, likewise

}  // namespace

Rows rows_between(Rows rows, int64_t first, int64_t last) {
  (rows.order ? rows.order : rows.indptr) += first;
  rows.n = last - first;
  return rows;
}

int64_t count_entries(const Rows& rows) {
  if (!rows.order) return rows.n > 0 ? rows.indptr[rows.n] - rows.indptr[0] : 0;
  int64_t n = 0;
  for (int64_t q = 0; q < rows.n; ++q) n += rows.indptr[rows.order[q] + 1] - rows.indptr[rows.order[q]];
  return n;
}

int64_t settle_shared(const Rows& rows, const Shape& shape, const Shrinkage& s, void* table,
                      int64_t n_threads) {
  const int64_t parts = parts_for(n_threads, rows.n / kLeastRows);
  std::vector<int64_t> done(parts);
  in_parts(parts, [&](int64_t part) {
    done[part] = network_kernels().settle_rows[shape.type](rows, {part, parts}, s, shape.n_units, table);
  });
  return first_stop(done);
}

int64_t descend_shared(const Rows& rows, const void* slopes, const Shape& shape, double eta, void* table,
                       int64_t n_threads) {
  const int64_t parts = parts_for(n_threads, rows.n / kLeastRows);
  std::vector<int64_t> done(parts);
  in_parts(parts, [&](int64_t part) {
    done[part] =
        network_kernels().descend[shape.type](rows, slopes, shape.n_units, {part, parts}, eta, table);
  });
  return first_stop(done);
}

int64_t gather_shared(const Rows& rows, const void* slopes, const Shape& shape, int32_t* slot,
                      int32_t* features, void* gradient, int64_t n_threads) {
  std::vector<int32_t> places(count_entries(rows));
  const int64_t n = network_kernels().places(rows, slot, features, places.data());
  if (n < 0) return n;
  const int64_t parts = parts_for(n_threads, shape.n_units / kUnitsOfLine);
  in_parts(parts, [&](int64_t part) {
    network_kernels().gather[shape.type](rows, places.data(), slopes, shape.n_units,
                                         part_start(shape.n_units, parts, part, kUnitsOfLine),
                                         part_start(shape.n_units, parts, part + 1, kUnitsOfLine), gradient);
  });
  return n;
}

void update_shared(const Update& rule, const int32_t* features, int64_t n_rows, const void* gradient,
                   const Moved& moved, int64_t n_threads) {
  const Shape& shape = moved.shape;
  const int64_t parts = parts_for(n_threads, n_rows * shape.n_units / kLeastNumbers);
  in_parts(parts, [&](int64_t part) {
    const int64_t from = part_start(n_rows, parts, part, 1), to = part_start(n_rows, parts, part + 1, 1);
    const auto at = [&](void* array) {  // rows that are not listed begin where the part does
      return array && !features ? static_cast<char*>(array) + from * shape.row_bytes() : array;
    };
    network_kernels().update[shape.type](rule, features ? features + from : nullptr, to - from, shape.n_units,
                                         static_cast<const char*>(gradient) + from * shape.row_bytes(),
                                         at(moved.table), at(moved.first), at(moved.second));
  });
}

void multiply_shared(int type, const Product& whole, int64_t n_threads) {
  const int64_t parts = parts_for(n_threads, whole.m * whole.p * whole.n / kLeastProducts);
  in_parts(parts, [&](int64_t part) {
    Product product = whole;
    product.first = part_start(whole.m, parts, part, kRowsOfTile);
    product.last = part_start(whole.m, parts, part + 1, kRowsOfTile);
    network_kernels().multiply[type](product);
  });
}

}  // namespace steepest
