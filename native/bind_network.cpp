// SPDX-License-Identifier: Apache-2.0
// Python names for the kernels of networks. Shapes, types and lists of features are checked here; the kernels
// check the indices of rows while they read them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include "bind_arrays.h"
#include "crew.h"
#include "network_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

struct Block {
  In<int64_t> indptr;
  In<int32_t> indices;
  In<float> values;
  std::optional<In<int64_t>> order;
};

Rows rows_of(const Block& block, int64_t n_features) {
  const int64_t n_rows = size_of(block.indptr) - 1;
  const int64_t n_entries = std::min(size_of(block.indices), size_of(block.values));
  require(n_rows >= 0, "indptr does not fit indices and values");
  Rows rows = {};
  rows.indptr = block.indptr.data();
  rows.indices = block.indices.data();
  rows.values = block.values.data();
  rows.order = block.order ? block.order->data() : nullptr;
  rows.n = block.order ? size_of(*block.order) : n_rows;
  rows.n_features = n_features;
  for (int64_t q = 0; q < rows.n; ++q) {
    const int64_t i = rows.order ? rows.order[q] : q;
    require(0 <= i && i < n_rows, "the order names a row that is not there");
    require(0 <= rows.indptr[i] && rows.indptr[i] <= rows.indptr[i + 1] && rows.indptr[i + 1] <= n_entries,
            "indptr does not fit indices and values");
  }
  return rows;
}

struct Shape {
  int type;
  int64_t n_features, n_units;
};

template <typename AnyTable>
Shape shape_of(const AnyTable& table) {
  require(table.ndim() == 2 && table.shape(1) > 0, "a table has two dimensions");
  return {float_type(table), static_cast<int64_t>(table.shape(0)), static_cast<int64_t>(table.shape(1))};
}

template <typename Stamp>
Shrinkage shrinkage_of(Stamp& stamp, int64_t n_features, double path, double l1, double l2) {
  Shrinkage s = {nullptr, path, l1, l2};
  if (stamp) {
    require(size_of(*stamp) == n_features, "stamp does not fit the table");
    s.stamp = const_cast<double*>(stamp->data());
  }
  return s;
}

constexpr int64_t kRowsOfTile = 6;
constexpr int64_t kLeastRows = 4;           // of a thread
constexpr int64_t kUnitsOfLine = 16;        // floats of a cache line
constexpr int64_t kLeastProducts = 1e5;     // multiplications that are worth another thread
constexpr int64_t kLeastNumbers = 1 << 14;  // to update, likewise

int64_t parts_for(int64_t n_threads, int64_t most) {
  return std::max<int64_t>(1, std::min<int64_t>(n_threads, most));
}

Rows rows_between(Rows rows, int64_t first, int64_t last) {
  (rows.order ? rows.order : rows.indptr) += first;
  rows.n = last - first;
  return rows;
}

// The first row that some part could not take, where rows were cut among parts.
int64_t first_stop(const std::vector<int64_t>& done) { return *std::min_element(done.begin(), done.end()); }

// `work(rows of the part, first row)` returns how many rows it has done.
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

int64_t forward(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
                FloatTable table, std::optional<Out<double>> stamp, double path, double l1, double l2,
                FloatTable out, int64_t n_threads) {
  const Shape shape = shape_of(table);
  const Rows rows = rows_of({indptr, indices, values, order}, shape.n_features);
  require(float_type(out) == shape.type && size_of(out) == rows.n * shape.n_units, "out does not fit");
  const Shrinkage s = shrinkage_of(stamp, shape.n_features, path, l1, l2);
  const NetworkTable& kernels = network_kernels();
  const int64_t bytes = shape.n_units * (shape.type ? 8 : 4);
  nb::gil_scoped_release release;
  if (s.stamp) {
    const int64_t parts = parts_for(n_threads, rows.n / kLeastRows);
    std::vector<int64_t> done(parts);
    in_parts(parts, [&](int64_t part) {
      done[part] = kernels.settle_rows[shape.type](rows, {part, parts}, s, shape.n_units, table.data());
    });
    if (first_stop(done) < rows.n) return first_stop(done);
  }
  return over_rows(rows, n_threads, [&](const Rows& part, int64_t first) {
    return kernels.forward[shape.type](part, table.data(), shape.n_units,
                                       static_cast<char*>(out.data()) + first * bytes);
  });
}

int64_t scores(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
               ConstFloatTable table, std::optional<In<double>> stamp, double path, double l1, double l2,
               FloatTable out, int64_t n_threads) {
  const Shape shape = shape_of(table);
  const Rows rows = rows_of({indptr, indices, values, order}, shape.n_features);
  require(float_type(out) == shape.type && size_of(out) == rows.n * shape.n_units, "out does not fit");
  const Shrinkage s = shrinkage_of(stamp, shape.n_features, path, l1, l2);
  const int64_t bytes = shape.n_units * (shape.type ? 8 : 4);
  nb::gil_scoped_release release;
  return over_rows(rows, n_threads, [&](const Rows& part, int64_t first) {
    return network_kernels().scores[shape.type](part, table.data(), shape.n_units, s,
                                                static_cast<char*>(out.data()) + first * bytes);
  });
}

int64_t gather(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
               ConstFloatTable slopes, Out<int32_t> slot, Out<int32_t> features, FloatTable gradient,
               int64_t n_threads) {
  const Shape shape = shape_of(gradient);
  const int64_t n_features = size_of(slot);
  const Rows rows = rows_of({indptr, indices, values, order}, n_features);
  int64_t n_entries = 0;
  for (int64_t q = 0; q < rows.n; ++q) {
    const int64_t i = rows.order ? rows.order[q] : q;
    n_entries += rows.indptr[i + 1] - rows.indptr[i];
  }
  const int64_t room = std::min(size_of(features), shape.n_features);
  require(float_type(slopes) == shape.type && size_of(slopes) == rows.n * shape.n_units, "slopes do not fit");
  require(room >= std::min(n_entries, n_features), "the gradient has too few rows");
  nb::gil_scoped_release release;
  std::vector<int32_t> places(n_entries);
  const int64_t n = network_kernels().places(rows, slot.data(), features.data(), places.data());
  if (n < 0) return n;
  const int64_t parts = parts_for(n_threads, shape.n_units / kUnitsOfLine);
  in_parts(parts, [&](int64_t part) {
    network_kernels().gather[shape.type](rows, places.data(), slopes.data(), shape.n_units,
                                         part_start(shape.n_units, parts, part, kUnitsOfLine),
                                         part_start(shape.n_units, parts, part + 1, kUnitsOfLine),
                                         gradient.data());
  });
  return n;
}

int64_t descend(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
                ConstFloatTable slopes, double eta, FloatTable table, int64_t n_threads) {
  const Shape shape = shape_of(table);
  const Rows rows = rows_of({indptr, indices, values, order}, shape.n_features);
  require(float_type(slopes) == shape.type && size_of(slopes) == rows.n * shape.n_units, "slopes do not fit");
  nb::gil_scoped_release release;
  const int64_t parts = parts_for(n_threads, rows.n / kLeastRows);
  std::vector<int64_t> done(parts);
  in_parts(parts, [&](int64_t part) {
    done[part] = network_kernels().descend[shape.type](rows, slopes.data(), shape.n_units, {part, parts}, eta,
                                                       table.data());
  });
  return first_stop(done);
}

// The list of rows of a table, or null for all of them; how many there are is told as well.
const int32_t* checked(const std::optional<In<int32_t>>& features, int64_t n_features, int64_t& n_rows) {
  n_rows = features ? size_of(*features) : n_features;
  if (!features) return nullptr;
  for (int64_t q = 0; q < n_rows; ++q)
    require(0 <= features->data()[q] && features->data()[q] < n_features, "a feature is out of range");
  return features->data();
}

void* moment(std::optional<FloatTable>& array, bool wanted, const Shape& shape) {
  require(array.has_value() || !wanted, "this rule needs another array");
  if (!wanted) return nullptr;
  require(float_type(*array) == shape.type && size_of(*array) == shape.n_features * shape.n_units,
          "an array of the rule does not fit the table");
  return array->data();
}

void update(int kind, double eta, double keep_first, double keep_second, double epsilon, double first_seen,
            double second_seen, std::optional<In<int32_t>> features, ConstFloatTable gradient,
            FloatTable table, std::optional<FloatTable> first, std::optional<FloatTable> second,
            int64_t n_threads) {
  require(kPlain <= kind && kind <= kAdam, "there is no such rule");
  const Shape shape = shape_of(table);
  int64_t n_rows;
  const int32_t* list = checked(features, shape.n_features, n_rows);
  require(float_type(gradient) == shape.type && size_of(gradient) >= n_rows * shape.n_units,
          "the gradient does not fit");
  const Update rule = {kind, eta, keep_first, keep_second, epsilon, first_seen, second_seen};
  void* mean = moment(first, kind == kMomentum || kind == kAdam, shape);
  void* square = moment(second, kind == kAdaGrad || kind == kAdam, shape);
  nb::gil_scoped_release release;
  const int64_t parts = parts_for(n_threads, n_rows * shape.n_units / kLeastNumbers);
  const int64_t bytes = shape.n_units * (shape.type ? 8 : 4);
  in_parts(parts, [&](int64_t part) {
    const int64_t from = part_start(n_rows, parts, part, 1), to = part_start(n_rows, parts, part + 1, 1);
    const auto at = [&](void* array) {  // rows that are not listed begin where the part does
      return array && !list ? static_cast<char*>(array) + from * bytes : array;
    };
    network_kernels().update[shape.type](rule, list ? list + from : nullptr, to - from, shape.n_units,
                                         static_cast<const char*>(gradient.data()) + from * bytes,
                                         at(table.data()), at(mean), at(square));
  });
}

void settle(std::optional<In<int32_t>> features, Out<double> stamp, double path, double l1, double l2,
            FloatTable table) {
  const Shape shape = shape_of(table);
  require(size_of(stamp) == shape.n_features, "stamp does not fit the table");
  int64_t n_rows;
  const int32_t* list = checked(features, shape.n_features, n_rows);
  const Shrinkage s = {stamp.data(), path, l1, l2};
  nb::gil_scoped_release release;
  network_kernels().settle[shape.type](s, list, n_rows, shape.n_units, table.data());
}

int64_t densify(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
                FloatTable out, Out<uint8_t> used) {
  const Shape shape = shape_of(out);
  const Rows rows = rows_of({indptr, indices, values, order}, shape.n_units);
  require(rows.n == shape.n_features && size_of(used) == shape.n_units, "out does not fit the rows");
  nb::gil_scoped_release release;
  return network_kernels().densify[shape.type](rows, out.data(), used.data());
}

void multiply(ConstFloatTable a, ConstFloatTable b, FloatTable c, bool a_is_transposed, int64_t n_threads) {
  const Shape left = shape_of(a), right = shape_of(b), result = shape_of(c);
  const int64_t m = a_is_transposed ? left.n_units : left.n_features;
  const int64_t p = a_is_transposed ? left.n_features : left.n_units;
  require(left.type == right.type && left.type == result.type, "the matrices differ in type");
  require(right.n_features == p && result.n_features == m && result.n_units == right.n_units,
          "the matrices do not fit");
  const Product whole = {a.data(), b.data(), c.data(), m, p, right.n_units, a_is_transposed, 0, m};
  nb::gil_scoped_release release;
  const int64_t parts = parts_for(n_threads, m * p * right.n_units / kLeastProducts);
  in_parts(parts, [&](int64_t part) {
    Product product = whole;
    product.first = part_start(m, parts, part, kRowsOfTile);
    product.last = part_start(m, parts, part + 1, kRowsOfTile);
    network_kernels().multiply[left.type](product);
  });
}

void softmax(ConstFloatTable scores, In<int64_t> classes, In<double> factor, Out<double> losses,
             FloatTable slopes) {
  const Shape shape = shape_of(scores);
  const int64_t n = shape.n_features, k = shape.n_units;
  require(size_of(classes) == n && size_of(factor) == n && size_of(losses) == n,
          "classes do not fit the scores");
  require(float_type(slopes) == shape.type && size_of(slopes) == n * k, "slopes do not fit the scores");
  for (int64_t q = 0; q < n; ++q)
    require(0 <= classes.data()[q] && classes.data()[q] < k, "a class is out of range");
  nb::gil_scoped_release release;
  network_kernels().softmax[shape.type](scores.data(), n, k, classes.data(), factor.data(), losses.data(),
                                        slopes.data());
}

}  // namespace
}  // namespace steepest

// What is changed in place is taken as it is: a converted copy would be learned into and thrown away.
void bind_network(nb::module_& module) {
  using namespace steepest;
  module.def("network_forward", &forward, "indptr"_a, "indices"_a, "values"_a, "order"_a.none(),
             "table"_a.noconvert(), "stamp"_a.noconvert().none(), "path"_a, "l1"_a, "l2"_a,
             "out"_a.noconvert(), "n_threads"_a = 1);
  module.def("network_scores", &scores, "indptr"_a, "indices"_a, "values"_a, "order"_a.none(), "table"_a,
             "stamp"_a.none(), "path"_a, "l1"_a, "l2"_a, "out"_a.noconvert(), "n_threads"_a = 1);
  module.def("network_gather", &gather, "indptr"_a, "indices"_a, "values"_a, "order"_a.none(), "slopes"_a,
             "slot"_a.noconvert(), "features"_a.noconvert(), "gradient"_a.noconvert(), "n_threads"_a = 1);
  module.def("network_descend", &descend, "indptr"_a, "indices"_a, "values"_a, "order"_a.none(), "slopes"_a,
             "eta"_a, "table"_a.noconvert(), "n_threads"_a = 1);
  module.def("network_update", &update, "kind"_a, "eta"_a, "keep_first"_a, "keep_second"_a, "epsilon"_a,
             "first_seen"_a, "second_seen"_a, "features"_a.none(), "gradient"_a, "table"_a.noconvert(),
             "first"_a.noconvert().none(), "second"_a.noconvert().none(), "n_threads"_a = 1);
  module.def("network_settle", &settle, "features"_a.none(), "stamp"_a.noconvert(), "path"_a, "l1"_a, "l2"_a,
             "table"_a.noconvert());
  module.def("network_densify", &densify, "indptr"_a, "indices"_a, "values"_a, "order"_a.none(),
             "out"_a.noconvert(), "used"_a.noconvert());
  module.def("network_multiply", &multiply, "a"_a, "b"_a, "c"_a.noconvert(), "a_is_transposed"_a = false,
             "n_threads"_a = 1);
  module.def("network_softmax", &softmax, "scores"_a, "classes"_a, "factor"_a, "losses"_a.noconvert(),
             "slopes"_a.noconvert());
}
