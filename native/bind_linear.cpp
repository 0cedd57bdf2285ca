// SPDX-License-Identifier: Apache-2.0
// Python names for the linear kernels. Everything that could make a kernel read outside its arrays is checked
// here, except feature indices, which the kernels check row by row while they are in cache.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernel_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

template <typename T>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<nb::c_contig, nb::device::cpu>;  // float32 or float64
using ReadOnlyTable = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

template <typename AnyTable>
int float_type(const AnyTable& table) {
  if (table.dtype() == nb::dtype<float>()) return 0;
  require(table.dtype() == nb::dtype<double>(), "weights must be float32 or float64");
  return 1;
}

struct Block {
  In<int64_t> indptr;
  In<int32_t> indices;
  In<float> values;
  std::optional<In<double>> y;
  std::optional<In<double>> weight;
  std::optional<In<int64_t>> order;
};

Rows rows_of(const Block& block, int64_t n_features, int64_t n_outputs, int32_t target_kind) {
  const int64_t n_rows = static_cast<int64_t>(block.indptr.size()) - 1;
  const int64_t n_entries = static_cast<int64_t>(std::min(block.indices.size(), block.values.size()));
  const int64_t* indptr = block.indptr.data();
  require(n_rows >= 0 && indptr[0] >= 0 && indptr[n_rows] <= n_entries,
          "indptr does not fit indices and values");
  for (int64_t i = 0; i < n_rows; ++i) require(indptr[i] <= indptr[i + 1], "indptr must not decrease");
  Rows rows = {
      indptr,   block.indices.data(), block.values.data(), nullptr, nullptr, nullptr, n_rows, n_features,
      n_outputs};
  if (block.y) {
    const bool codes = target_kind != kTargets;
    require(static_cast<int64_t>(block.y->size()) == n_rows * (codes ? 1 : n_outputs),
            "y does not fit the rows");
    rows.y = block.y->data();
    for (int64_t i = 0; codes && i < n_rows; ++i)
      require(rows.y[i] >= 0 && rows.y[i] < static_cast<double>(n_outputs), "a class code is out of range");
  }
  if (block.weight) {
    require(static_cast<int64_t>(block.weight->size()) == n_rows, "weight does not fit the rows");
    rows.weight = block.weight->data();
  }
  if (block.order) {
    rows.order = block.order->data();
    rows.n = static_cast<int64_t>(block.order->size());
    for (int64_t q = 0; q < rows.n; ++q)
      require(rows.order[q] >= 0 && rows.order[q] < n_rows, "the order names a row that is not there");
  }
  return rows;
}

template <typename T>
T* optional_data(std::optional<Out<T>>& array, size_t size, const char* message) {
  if (!array) return nullptr;
  require(array->size() == size, message);
  return array->data();
}

nb::tuple learn(LearnFunction const (&rule)[2], int64_t entries_per_weight, const Block& block, Table v,
                std::optional<Out<double>> shrunk, std::optional<Table> average, Out<double> bias,
                Out<double> bias_square, Out<double> bias_average, Out<double> clock,
                const Choices& choices) {
  const int type = float_type(v);
  const size_t n_outputs = bias.size();
  require(n_outputs > 0 && v.size() % (n_outputs * entries_per_weight) == 0,
          "the weights do not fit the bias");
  const size_t n_features = v.size() / n_outputs / entries_per_weight;
  require(bias_square.size() == n_outputs && bias_average.size() == n_outputs, "the biases differ in length");
  require(clock.size() == kClockSize, "the clock has another length");
  require(choices.batch_size >= 1, "batch_size must be at least 1");
  require((choices.average != kNoAverage) == average.has_value(), "averaging needs its array");
  require((choices.l1 > 0) == shrunk.has_value() || entries_per_weight == 2, "l1 needs its clocks");
  if (average)
    require(average->size() == v.size() && float_type(*average) == type, "the average does not fit");
  const Rows rows =
      rows_of(block, static_cast<int64_t>(n_features), static_cast<int64_t>(n_outputs), choices.target_kind);
  require(rows.y != nullptr, "learning needs y");
  std::vector<double> scratch((choices.batch_size + 3) * n_outputs);
  const LinearState state = {v.data(),
                             optional_data(shrunk, n_features, "shrunk does not fit"),
                             average ? average->data() : nullptr,
                             bias.data(),
                             bias_square.data(),
                             bias_average.data(),
                             reinterpret_cast<Clock*>(clock.data()),
                             scratch.data()};
  Outcome outcome;
  {
    nb::gil_scoped_release release;
    outcome = rule[type](rows, choices, state);
  }
  return nb::make_tuple(outcome.rows_done, outcome.status, outcome.loss_sum, outcome.weight_sum);
}

// Rows are scored in contiguous parts, one a thread; each row's score does not depend on the split.
int64_t score(const Block& block, ReadOnlyTable weights, In<double> bias, Out<double> scores, int n_threads) {
  const int type = float_type(weights);
  const int64_t n_outputs = static_cast<int64_t>(bias.size());
  require(n_outputs > 0 && weights.size() % n_outputs == 0, "the weights do not fit the bias");
  const Rows rows = rows_of(block, static_cast<int64_t>(weights.size()) / n_outputs, n_outputs, kTargets);
  require(static_cast<int64_t>(scores.size()) == rows.n * n_outputs, "scores has another size");
  const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(n_threads, rows.n / 1024));
  std::vector<int64_t> stopped(parts);
  nb::gil_scoped_release release;
  auto run = [&](int64_t part) {
    const int64_t first = rows.n * part / parts, last = rows.n * (part + 1) / parts;
    Rows mine = rows;
    mine.n = last - first;
    if (mine.order)
      mine.order += first;
    else
      mine.indptr += first;
    const int64_t done =
        kernels().scores[type](mine, weights.data(), bias.data(), scores.data() + first * n_outputs);
    stopped[part] = done == mine.n ? rows.n : first + done;
  };
  std::vector<std::thread> others;
  for (int64_t part = 1; part < parts; ++part) others.emplace_back(run, part);
  run(0);
  for (std::thread& other : others) other.join();
  return *std::min_element(stopped.begin(), stopped.end());
}

void settle(Table v, std::optional<Out<double>> shrunk, Out<double> clock, int64_t n_outputs,
            const Choices& choices, std::optional<Table> average) {
  require(n_outputs > 0 && v.size() % n_outputs == 0 && clock.size() == kClockSize, "the state does not fit");
  const int type = float_type(v);
  if (average)
    require(average->size() == v.size() && float_type(*average) == type, "the average does not fit");
  const size_t n_features = v.size() / n_outputs;
  LinearState state = {};
  state.v = v.data();
  state.shrunk = optional_data(shrunk, n_features, "shrunk does not fit");
  state.average = average ? average->data() : nullptr;
  state.clock = reinterpret_cast<Clock*>(clock.data());
  nb::gil_scoped_release release;
  kernels().settle_sgd[type](choices, state, static_cast<int64_t>(n_features), n_outputs);
}

nb::ndarray<nb::numpy, double> new_array(size_t n) {
  double* data = new double[n];
  return nb::ndarray<nb::numpy, double>(
      data, {n}, nb::capsule(data, [](void* p) noexcept { delete[] static_cast<double*>(p); }));
}

nb::tuple loss_value_slope(int loss, double parameter, In<double> scores, In<double> y) {
  require(scores.size() == y.size(), "scores and y differ in length");
  auto values = new_array(scores.size()), slopes = new_array(scores.size());
  const int64_t n = static_cast<int64_t>(scores.size());
  kernels().losses(loss, parameter, n, scores.data(), y.data(), values.data(), slopes.data());
  return nb::make_tuple(values, slopes);
}

}  // namespace
}  // namespace steepest

using namespace steepest;

#define LEARNER(name, rule, entries)                                                                     \
  module.def(                                                                                            \
      name,                                                                                              \
      [](In<int64_t> indptr, In<int32_t> indices, In<float> values, In<double> y,                        \
         std::optional<In<double>> weight, std::optional<In<int64_t>> order, Table v,                    \
         std::optional<Out<double>> shrunk, std::optional<Table> average, Out<double> bias,              \
         Out<double> bias_square, Out<double> bias_average, Out<double> clock, const Choices& choices) { \
        return learn(kernels().rule, entries, {indptr, indices, values, y, weight, order}, v, shrunk,    \
                     average, bias, bias_square, bias_average, clock, choices);                          \
      },                                                                                                 \
      "indptr"_a, "indices"_a, "values"_a, "y"_a, "weight"_a.none(), "order"_a.none(), "v"_a,            \
      "shrunk"_a.none(), "average"_a.none(), "bias"_a, "bias_square"_a, "bias_average"_a, "clock"_a,     \
      "choices"_a)

void bind_linear(nb::module_& module) {
  nb::class_<Choices>(module, "Choices")
      .def(
          "__init__",
          [](Choices* self, int loss, double loss_parameter, int target_kind, int schedule, double eta0,
             double power, double decay, double l1, double l2, double threshold, int64_t shrink_period,
             int average, int64_t batch_size, double bias_scale) {
            *self = Choices{loss, loss_parameter, target_kind,   schedule, eta0,       power,     decay, l1,
                            l2,   threshold,      shrink_period, average,  batch_size, bias_scale};
          },
          nb::kw_only(), "loss"_a, "loss_parameter"_a, "target_kind"_a, "schedule"_a, "eta0"_a, "power"_a,
          "decay"_a, "l1"_a, "l2"_a, "threshold"_a, "shrink_period"_a, "average"_a, "batch_size"_a,
          "bias_scale"_a);
  LEARNER("linear_sgd", sgd, 1);
  LEARNER("linear_adagrad", adagrad, 2);
  LEARNER("linear_ftrl", ftrl, 2);
  module.def(
      "linear_scores",
      [](In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
         ReadOnlyTable weights, In<double> bias, Out<double> scores, int n_threads) {
        return score({indptr, indices, values, std::nullopt, std::nullopt, order}, weights, bias, scores,
                     n_threads);
      },
      "indptr"_a, "indices"_a, "values"_a, "order"_a.none(), "weights"_a, "bias"_a, "scores"_a,
      "n_threads"_a);
  module.def("loss_value_slope", &loss_value_slope, "loss"_a, "parameter"_a, "scores"_a, "y"_a);
  module.def("linear_settle", &settle, "v"_a, "shrunk"_a.none(), "clock"_a, "n_outputs"_a, "choices"_a,
             "average"_a.none() = nb::none());
}
