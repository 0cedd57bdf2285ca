// SPDX-License-Identifier: Apache-2.0
// Python names for the kernels of networks. Shapes, types and lists of features are checked here; the kernels
// check the indices of rows while they read them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "bind_arrays.h"
#include "network_step.h"
#include "network_work.h"

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

int64_t forward(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
                FloatTable table, std::optional<Out<double>> stamp, double path, double l1, double l2,
                FloatTable out, int64_t n_threads) {
  const Shape shape = shape_of(table);
  const Rows rows = rows_of({indptr, indices, values, order}, shape.n_features);
  require(float_type(out) == shape.type && size_of(out) == rows.n * shape.n_units, "out does not fit");
  const Shrinkage s = shrinkage_of(stamp, shape.n_features, path, l1, l2);
  nb::gil_scoped_release release;
  const int64_t settled = s.stamp ? settle_shared(rows, shape, s, table.data(), n_threads) : rows.n;
  if (settled < rows.n) return settled;
  return over_rows(rows, n_threads, [&](const Rows& part, int64_t first) {
    return network_kernels().forward[shape.type](part, table.data(), shape.n_units,
                                                 static_cast<char*>(out.data()) + first * shape.row_bytes());
  });
}

int64_t scores(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
               ConstFloatTable table, std::optional<In<double>> stamp, double path, double l1, double l2,
               FloatTable out, int64_t n_threads) {
  const Shape shape = shape_of(table);
  const Rows rows = rows_of({indptr, indices, values, order}, shape.n_features);
  require(float_type(out) == shape.type && size_of(out) == rows.n * shape.n_units, "out does not fit");
  const Shrinkage s = shrinkage_of(stamp, shape.n_features, path, l1, l2);
  nb::gil_scoped_release release;
  return over_rows(rows, n_threads, [&](const Rows& part, int64_t first) {
    return network_kernels().scores[shape.type](part, table.data(), shape.n_units, s,
                                                static_cast<char*>(out.data()) + first * shape.row_bytes());
  });
}

int64_t gather(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
               ConstFloatTable slopes, Out<int32_t> slot, Out<int32_t> features, FloatTable gradient,
               int64_t n_threads) {
  const Shape shape = shape_of(gradient);
  const int64_t n_features = size_of(slot);
  const Rows rows = rows_of({indptr, indices, values, order}, n_features);
  const int64_t room = std::min(size_of(features), shape.n_features);
  require(float_type(slopes) == shape.type && size_of(slopes) == rows.n * shape.n_units, "slopes do not fit");
  require(room >= std::min(count_entries(rows), n_features), "the gradient has too few rows");
  nb::gil_scoped_release release;
  return gather_shared(rows, slopes.data(), shape, slot.data(), features.data(), gradient.data(), n_threads);
}

int64_t descend(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
                ConstFloatTable slopes, double eta, FloatTable table, int64_t n_threads) {
  const Shape shape = shape_of(table);
  const Rows rows = rows_of({indptr, indices, values, order}, shape.n_features);
  require(float_type(slopes) == shape.type && size_of(slopes) == rows.n * shape.n_units, "slopes do not fit");
  nb::gil_scoped_release release;
  return descend_shared(rows, slopes.data(), shape, eta, table.data(), n_threads);
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
  update_shared(rule, list, n_rows, gradient.data(), {shape, table.data(), mean, square}, n_threads);
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
  multiply_shared(left.type, whole, n_threads);
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

// ------------------------------------------------------------------------------------------- whole batches

using Tables = std::vector<FloatTable>;

Network network_of(const In<int64_t>& stations, const In<int64_t>& wires, size_t n_tables, int type) {
  Network network = {};
  network.type = type;
  const int64_t n = size_of(stations) / 2;
  require(n > 0 && size_of(stations) % 2 == 0 && size_of(wires) % 2 == 0, "a graph is two lists of pairs");
  for (int64_t q = 0; q < n; ++q) {
    require(stations.data()[2 * q] > 0, "a station has no units");
    network.stations.push_back({stations.data()[2 * q], static_cast<int32_t>(stations.data()[2 * q + 1])});
  }
  for (int64_t e = 0; e < size_of(wires) / 2; ++e) {
    const int64_t source = wires.data()[2 * e], target = wires.data()[2 * e + 1];
    require(kInput <= source && source < target && target < n, "a wire leads nowhere");
    network.wires.push_back({static_cast<int32_t>(source), static_cast<int32_t>(target)});
  }
  const size_t n_wires = network.wires.size();
  require(n_tables == n_wires || n_tables == n_wires + network.stations.size(),
          "each wire has a table, and each station a bias or none has one");
  return network;
}

void* part_of(const Tables& moments, size_t place, bool wanted, const FloatTable& table) {
  if (!wanted) return nullptr;
  require(place < moments.size() && float_type(moments[place]) == float_type(table) &&
              size_of(moments[place]) == size_of(table),
          "an array of the rule does not fit the table");
  return moments[place].data();
}

Moved moved_of(int rule, const Shape& shape, const Tables& tables, const Tables& first, const Tables& second,
               size_t place) {
  const FloatTable& table = tables[place];
  require(float_type(table) == shape.type && size_of(table) == shape.n_features * shape.n_units,
          "an array does not fit the graph");
  return {shape, table.data(), part_of(first, place, rule == kMomentum || rule == kAdam, table),
          part_of(second, place, rule == kAdaGrad || rule == kAdam, table)};
}

void add_arrays(Network& network, const Tables& tables, const Tables& first, const Tables& second,
                int64_t n_features) {
  size_t place = 0;
  for (const Wire& wire : network.wires) {
    const int64_t from = wire.source == kInput ? n_features : network.stations[wire.source].size;
    const Shape shape = {network.type, from, network.stations[wire.target].size};
    network.weights.push_back(moved_of(network.rule.kind, shape, tables, first, second, place++));
  }
  for (size_t node = 0; place < tables.size(); ++node) {
    const Shape shape = {network.type, 1, network.stations[node].size};
    network.biases.push_back(moved_of(network.rule.kind, shape, tables, first, second, place++));
  }
}

void add_stamps(Network& network, const std::vector<Out<double>>& stamps, int64_t n_features) {
  size_t place = 0;
  for (const Wire& wire : network.wires) {
    network.stamps.push_back(nullptr);
    if (wire.source != kInput || stamps.empty()) continue;
    require(place < stamps.size() && size_of(stamps[place]) == n_features, "stamp does not fit the table");
    network.stamps.back() = stamps[place++].data();
  }
}

struct Targets {
  std::optional<In<int64_t>> classes;
  std::optional<In<double>> y;
};

Answers answers_of(std::tuple<int, double, bool> loss, const In<double>& units, const Targets& targets,
                   int64_t n_rows, int64_t k) {
  const auto [id, parameter, is_real] = loss;
  const auto& [classes, y] = targets;
  require(size_of(units) == 3 * k, "shift, scale and parameter do not fit the outputs");
  require(classes.has_value() != y.has_value() && (id >= 0 || classes), "give classes or targets");
  require(!y || size_of(*y) == n_rows * k, "targets do not fit the rows");
  require(!classes || size_of(*classes) == n_rows, "classes do not fit the rows");
  for (int64_t q = 0; classes && q < n_rows; ++q)
    require(0 <= classes->data()[q] && classes->data()[q] < k, "a class is out of range");
  const double* const shift = units.data();
  return {id,
          is_real,
          parameter,
          shift + 2 * k,
          shift,
          shift + k,
          classes ? classes->data() : nullptr,
          y ? y->data() : nullptr,
          k};
}

std::pair<int64_t, int64_t> learn(In<int64_t> indptr, In<int32_t> indices, In<float> values,
                                  std::optional<In<int64_t>> order, In<int64_t> stations, In<int64_t> wires,
                                  Tables tables, Tables first, Tables second, std::vector<Out<double>> stamps,
                                  Out<int32_t> slot, Out<double> clock,
                                  std::tuple<int, double, double, double> rule,
                                  std::pair<double, double> penalties, In<double> steps, int64_t batch_size,
                                  std::tuple<int, double, bool> loss, In<double> units,
                                  std::optional<In<int64_t>> classes, std::optional<In<double>> y,
                                  std::optional<In<double>> weight, Out<double> totals, int64_t n_threads) {
  const auto [kind, keep_first, keep_second, epsilon] = rule;
  const int64_t n_features = size_of(slot);
  require(kPlain <= kind && kind <= kAdam, "there is no such rule");
  require(!tables.empty() && size_of(clock) == 2 && batch_size > 0, "there is nothing to learn with");
  Network network = network_of(stations, wires, tables.size(), float_type(tables[0]));
  network.rule = {kind, 0, keep_first, keep_second, epsilon, 0, 0};
  add_arrays(network, tables, first, second, n_features);
  add_stamps(network, stamps, n_features);
  std::tie(network.l1, network.l2) = penalties;
  network.slot = slot.data();
  network.clock = clock.data();
  Lesson lesson = {};
  lesson.rows = rows_of({indptr, indices, values, order}, n_features);
  const int64_t n_rows = lesson.rows.n, n_batches = (n_rows + batch_size - 1) / batch_size;
  lesson.answers = answers_of(loss, units, {classes, y}, n_rows, network.stations.back().size);
  require(size_of(steps) == n_batches && size_of(totals) == n_batches, "steps do not fit the batches");
  require(!weight || size_of(*weight) == n_rows, "weights do not fit the rows");
  lesson.weight = weight ? weight->data() : nullptr;
  lesson.steps = steps.data();
  lesson.totals = totals.data();
  lesson.batch_size = std::min(batch_size, std::max<int64_t>(n_rows, 1));
  nb::gil_scoped_release release;
  const Stop stop = learn_batches(network, lesson, n_threads);
  return {stop.batches, stop.bad_row};
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
  module.def("network_learn", &learn, "indptr"_a, "indices"_a, "values"_a, "order"_a.none(), "stations"_a,
             "wires"_a, "tables"_a.noconvert(), "first"_a.noconvert(), "second"_a.noconvert(),
             "stamps"_a.noconvert(), "slot"_a.noconvert(), "clock"_a.noconvert(), "rule"_a, "penalties"_a,
             "steps"_a, "batch_size"_a, "loss"_a, "units"_a, "classes"_a.none(), "y"_a.none(),
             "weight"_a.none(), "totals"_a.noconvert(), "n_threads"_a = 1);
}
