// SPDX-License-Identifier: Apache-2.0
// Python names for the linear kernels. Everything that could make a kernel read outside its arrays is checked
// here, except feature indices, which the kernels check row by row while they are in cache.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bind_arrays.h"
#include "by_outputs.h"
#include "class_hash.h"
#include "kernel_table.h"
#include "replicas.h"
#include "score.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

struct Block {
  In<int64_t> indptr;
  In<int32_t> indices;
  In<float> values;
  std::optional<In<double>> y;
  std::optional<In<double>> weight;
  std::optional<In<int64_t>> order;
};

// Only the visited rows are checked, so that a short visit to a large block stays short.
void check_rows(const Rows& rows, int64_t n_rows, int64_t n_entries, bool codes) {
  for (int64_t q = 0; q < rows.n; ++q) {
    const int64_t i = rows.order ? rows.order[q] : q;
    require(0 <= i && i < n_rows, "the order names a row that is not there");
    const int64_t start = rows.indptr[i], stop = rows.indptr[i + 1];
    require(0 <= start && stop <= n_entries, "indptr does not fit indices and values");
    require(start <= stop, "indptr must not decrease");
    if (codes)
      require(rows.y[i] >= 0 && rows.y[i] < static_cast<double>(rows.n_outputs),
              "a class code is out of range");
    if (rows.weight)
      require(rows.weight[i] >= 0 && std::isfinite(rows.weight[i]),
              "a weight must be finite and not negative");
  }
}

Rows rows_of(const Block& block, int64_t n_features, int64_t n_outputs, int64_t width, int64_t stride,
             int32_t target_kind, int32_t table_bits) {
  const int64_t n_rows = static_cast<int64_t>(block.indptr.size()) - 1;
  require(n_rows >= 0, "indptr does not fit indices and values");
  const int64_t n_entries = static_cast<int64_t>(std::min(block.indices.size(), block.values.size()));
  const bool codes = block.y && target_kind != kTargets;
  Rows rows = {};
  rows.indptr = block.indptr.data();
  rows.indices = block.indices.data();
  rows.values = block.values.data();
  rows.n = n_rows;
  rows.n_features = n_features;
  rows.n_outputs = n_outputs;
  rows.width = width;
  rows.stride = stride;
  rows.table_bits = table_bits;
  rows.n_targets = n_outputs;
  if (block.y) {
    require(!codes || n_outputs > 1, "class codes need two outputs or more");
    require(static_cast<int64_t>(block.y->size()) == n_rows * (codes ? 1 : n_outputs),
            "y does not fit the rows");
    rows.y = block.y->data();
  }
  if (block.weight) {
    require(static_cast<int64_t>(block.weight->size()) == n_rows, "weight does not fit the rows");
    rows.weight = block.weight->data();
  }
  if (block.order) {
    rows.order = block.order->data();
    rows.n = static_cast<int64_t>(block.order->size());
  }
  check_rows(rows, n_rows, n_entries, codes);
  return rows;
}

template <typename T>
T* optional_data(std::optional<Out<T>>& array, size_t size, const char* message) {
  if (!array) return nullptr;
  require(array->size() == size, message);
  return array->data();
}

bool is_paired(const FloatTable& v, int64_t entries_per_weight, const Choices& choices, bool has_average) {
  return entries_per_weight == 1 && choices.average != kNoAverage && !has_average &&
         choices.table_bits == 0 && v.ndim() == 3 && v.shape(1) == 2;
}

void* behind(void* table, int type, int64_t entries) {
  return type == 0 ? static_cast<void*>(static_cast<float*>(table) + entries)
                   : static_cast<double*>(table) + entries;
}

// How many learn at once, and the replicas' own weights.
struct Parallel {
  ParallelChoices choices = {0, 0, 0, 1, 1};
  std::optional<FloatTable> v;
  std::optional<FloatTable> average;
  bool synced = false;
};

nb::tuple learn(LearnFunction const (&rule)[2], int64_t entries_per_weight, const Block& block, FloatTable v,
                std::optional<Out<double>> shrunk, std::optional<FloatTable> average, Out<double> bias,
                Out<double> bias_square, Out<double> bias_average, Out<double> clock, Choices choices,
                const Parallel& parallel) {
  const int type = float_type(v);
  const size_t n_outputs = bias.size();
  const int32_t table_bits = choices.table_bits;
  // Weights and their averages may come as one table (features, 2, outputs).
  const bool paired = is_paired(v, entries_per_weight, choices, average.has_value());
  const int64_t accumulators = paired ? 2 : entries_per_weight;
  const int64_t width =
      width_of(v, static_cast<int64_t>(n_outputs), static_cast<size_t>(accumulators), table_bits);
  const size_t n_features = static_cast<size_t>(count_features(
      v.size(), static_cast<int64_t>(n_outputs), width, accumulators, table_bits, choices.n_columns));
  require(table_bits == 0 || entries_per_weight <= 2, "a shared table has no room for coins");
  require(table_bits == 0 || !shrunk, "a shared table has no clocks of shrinkage");
  require(bias_square.size() == n_outputs && bias_average.size() == n_outputs, "the biases differ in length");
  require(clock.size() == kClockSize, "the clock has another length");
  require(choices.batch_size >= 1, "batch_size must be at least 1");
  require((choices.average != kNoAverage) == (average.has_value() || paired), "averaging needs its array");
  require((choices.l1 > 0) == shrunk.has_value() || entries_per_weight > 1, "l1 needs its clocks");
  // A weight that decays between two visits may pass the threshold there, which shrinkage paid late cannot
  // see.
  require(entries_per_weight > 1 || choices.l2 == 0 ||
              choices.threshold == std::numeric_limits<double>::infinity(),
          "a truncation threshold needs l2 = 0");
  if (average)
    require(average->size() == v.size() && float_type(*average) == type, "the average does not fit");
  const Rows rows = rows_of(block, static_cast<int64_t>(n_features), static_cast<int64_t>(n_outputs), width,
                            width * accumulators, choices.target_kind, table_bits);
  // A batch longer than the visit is the visit; but never 1, which learns heavy rows in another way.
  choices.batch_size = std::min(choices.batch_size, std::max<int64_t>(rows.n, 2));
  ParallelChoices several = parallel.choices;
  several.accumulators = entries_per_weight;
  const bool replicas = several.n_replicas > 1, hogwild = several.n_replicas == 0 && several.n_threads > 1;
  ReplicaTables tables = {nullptr, nullptr, parallel.synced};
  if (replicas || hogwild) require(!shrunk, "clocks of shrinkage cannot be summed");
  if (replicas) {
    require(!paired || width == 1, "replicas take averages behind the weights of one output only");
    require(several.rows_each >= 1 && several.rows_each % choices.batch_size == 0,
            "a replica learns whole batches");
    require(
        parallel.v && parallel.v->size() == v.size() * several.n_replicas && float_type(*parallel.v) == type,
        "the replicas do not fit the weights");
    require(parallel.average.has_value() == average.has_value() &&
                (!average ||
                 (parallel.average->size() == parallel.v->size() && float_type(*parallel.average) == type)),
            "the replicas do not fit the average");
    tables = {parallel.v->data(), average ? parallel.average->data() : nullptr, parallel.synced};
  }
  std::vector<double> scratch(scratch_size(choices.batch_size, static_cast<int64_t>(n_outputs)));
  const LinearState state = {v.data(),
                             optional_data(shrunk, n_features, "shrunk does not fit"),
                             average  ? average->data()
                             : paired ? behind(v.data(), type, width)
                                      : nullptr,
                             bias.data(),
                             bias_square.data(),
                             bias_average.data(),
                             reinterpret_cast<Clock*>(clock.data()),
                             scratch.data()};
  Outcome outcome;
  {
    nb::gil_scoped_release release;
    if (replicas)
      outcome =
          learn_replicas(rule[type], kernels().settle_sgd[type], type, rows, choices, state, several, tables);
    else if (hogwild)
      outcome = learn_hogwild(rule[type], kernels().settle_sgd[type], rows, choices, state, several);
    else if (has_parts_by_outputs(rows, choices, state, several.n_threads))
      outcome = learn_by_outputs(rule[type], type, rows, choices, state, several.n_threads);
    else
      outcome = rule[type](rows, choices, state);
  }
  return nb::make_tuple(outcome.rows_done, outcome.status, outcome.loss_sum, outcome.weight_sum);
}

std::pair<int64_t, int64_t> score_block(const Block& block, ConstFloatTable weights, double scale,
                                        In<double> bias, Out<double> scores, int n_threads, int table_bits,
                                        int64_t n_columns) {
  const ScoreTable table(weights, scale, bias.data(), bias.size(), table_bits, n_columns);
  const Rows rows =
      rows_of(block, table.n_features, table.n_outputs, table.width, table.width, kTargets, table_bits);
  require(static_cast<int64_t>(scores.size()) == rows.n * table.n_outputs, "scores has another size");
  nb::gil_scoped_release release;
  return score(rows, table, scores.data(), n_threads);
}

void settle(FloatTable v, std::optional<Out<double>> shrunk, Out<double> clock, int64_t n_outputs,
            const Choices& choices, std::optional<FloatTable> average) {
  require(n_outputs > 0 && v.size() % n_outputs == 0 && clock.size() == kClockSize, "the state does not fit");
  const int type = float_type(v);
  if (average)
    require(average->size() == v.size() && float_type(*average) == type, "the average does not fit");
  const bool paired = is_paired(v, 1, choices, average.has_value());
  const int64_t stride = paired ? 2 * n_outputs : n_outputs;
  require(v.size() % stride == 0, "the state does not fit");
  const size_t n_features = v.size() / stride;
  LinearState state = {};
  state.v = v.data();
  state.shrunk = optional_data(shrunk, n_features, "shrunk does not fit");
  state.average = average ? average->data() : paired ? behind(v.data(), type, n_outputs) : nullptr;
  state.clock = reinterpret_cast<Clock*>(clock.data());
  nb::gil_scoped_release release;
  kernels().settle_sgd[type](choices, state, {static_cast<int64_t>(n_features), n_outputs, stride});
}

// What each of these features weighs for one output, read from a shared table.
template <typename W>
void read_class_weights(const W* table, const In<int64_t>& features, int64_t output, int table_bits, W* out) {
  const uint64_t mask = (uint64_t{1} << table_bits) - 1;
  for (size_t k = 0; k < features.size(); ++k) {
    const ClassPlace place = place_classes(static_cast<uint32_t>(features.data()[k]),
                                           static_cast<uint32_t>(output / kWindow), mask);
    const W weight = table[place.first + output % kWindow];
    out[k] = place.negative ? -weight : weight;
  }
}

template <typename W>
nb::object class_weights_of(ConstFloatTable table, In<int64_t> features, int64_t output, int table_bits) {
  W* out = new W[features.size()];
  nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<W*>(p); });
  read_class_weights(static_cast<const W*>(table.data()), features, output, table_bits, out);
  return nb::cast(nb::ndarray<nb::numpy, W>(out, {features.size()}, owner));
}

nb::object class_weights(ConstFloatTable table, In<int64_t> features, int64_t output, int table_bits) {
  require(table_bits > 0, "table_bits must be 6 to 30");
  count_features(table.size(), 1, 1, 1, table_bits, 0);
  require(0 <= output && output <= std::numeric_limits<int32_t>::max(), "an output is out of range");
  for (size_t k = 0; k < features.size(); ++k)
    require(0 <= features.data()[k] && features.data()[k] <= std::numeric_limits<int32_t>::max(),
            "a feature is out of range");
  return float_type(table) == 0 ? class_weights_of<float>(table, features, output, table_bits)
                                : class_weights_of<double>(table, features, output, table_bits);
}

nb::ndarray<nb::numpy, double> new_array(size_t n) {
  double* data = new double[n];
  return nb::ndarray<nb::numpy, double>(
      data, {n}, nb::capsule(data, [](void* p) noexcept { delete[] static_cast<double*>(p); }));
}

template <typename W>
void write_means(const W* v, const W* u, int64_t n, int64_t run, int64_t stride, double sum_of_scales,
                 double total, W* out) {
  for (int64_t first = 0; first < n; first += run, v += stride, u += stride)
    for (int64_t k = 0; k < run; ++k)
      out[first + k] = static_cast<W>((sum_of_scales * static_cast<double>(v[k]) - u[k]) / total);
}

// (S v - u) / C, where u comes behind v or as a table of its own.
void mean_weights(ConstFloatTable v, std::optional<ConstFloatTable> average, double sum_of_scales,
                  double total, FloatTable out) {
  const int type = float_type(v);
  const int64_t n = size_of(out), run = average ? n : static_cast<int64_t>(v.shape(v.ndim() - 1));
  require(float_type(out) == type && size_of(v) == (average ? n : 2 * n), "the means do not fit the weights");
  require(average ? float_type(*average) == type && size_of(*average) == n : v.ndim() == 3 && v.shape(1) == 2,
          "the average does not fit");
  if (n == 0) return;
  const int64_t stride = 2 * run;  // of one run there is no next
  nb::gil_scoped_release release;
  if (type == 0) {
    const float* first = static_cast<const float*>(v.data());
    const float* second = average ? static_cast<const float*>(average->data()) : first + run;
    write_means(first, second, n, run, stride, sum_of_scales, total, static_cast<float*>(out.data()));
  } else {
    const double* first = static_cast<const double*>(v.data());
    const double* second = average ? static_cast<const double*>(average->data()) : first + run;
    write_means(first, second, n, run, stride, sum_of_scales, total, static_cast<double*>(out.data()));
  }
}

// The norms of (S v - u) / C, as if it were written out and its blocks of `rows_each` rows added up one after
// the other.
template <typename W>
Norms norms_of_means(const W* v, const W* u, int64_t n_rows, int64_t run, int64_t stride, int64_t rows_each,
                     double sum_of_scales, double total, int n_threads) {
  const int type = sizeof(W) == sizeof(float) ? 0 : 1;
  const int64_t n_blocks = (n_rows + rows_each - 1) / rows_each, parts = parts_for(n_blocks, n_threads, 4);
  std::vector<Norms> found(n_blocks);
  run_parts(parts, [&](int64_t part) {
    std::vector<W> means(rows_each * run);
    for (int64_t block = n_blocks * part / parts; block < n_blocks * (part + 1) / parts; ++block) {
      const int64_t first = block * rows_each, n = std::min(rows_each, n_rows - first) * run;
      write_means(v + first * stride, u + first * stride, n, run, stride, sum_of_scales, total, means.data());
      found[block] = kernels().norms[type](means.data(), n);
    }
  });
  Norms sum = {0, 0, 0};
  for (const Norms& block : found) {
    sum.absolute += block.absolute;
    sum.square += block.square;
    sum.nonzeros += block.nonzeros;
  }
  return sum;
}

nb::tuple mean_norms(ConstFloatTable v, std::optional<ConstFloatTable> average, int64_t n_outputs,
                     double sum_of_scales, double total, int64_t rows_each, int n_threads) {
  const int type = float_type(v);
  const int64_t width = static_cast<int64_t>(v.shape(v.ndim() - 1)), stride = average ? width : 2 * width;
  require(0 < n_outputs && n_outputs <= width && rows_each > 0, "the outputs do not fit the weights");
  require(average ? float_type(*average) == type && average->size() == v.size()
                  : v.ndim() == 3 && v.shape(1) == 2,
          "the average does not fit");
  const int64_t n_rows = size_of(v) / stride;
  Norms norms;
  {
    nb::gil_scoped_release release;
    if (type == 0) {
      const float* first = static_cast<const float*>(v.data());
      const float* second = average ? static_cast<const float*>(average->data()) : first + width;
      norms = norms_of_means(first, second, n_rows, n_outputs, stride, rows_each, sum_of_scales, total,
                             n_threads);
    } else {
      const double* first = static_cast<const double*>(v.data());
      const double* second = average ? static_cast<const double*>(average->data()) : first + width;
      norms = norms_of_means(first, second, n_rows, n_outputs, stride, rows_each, sum_of_scales, total,
                             n_threads);
    }
  }
  return nb::make_tuple(norms.absolute, norms.square, norms.nonzeros);
}

// One pass without a copy.
nb::tuple table_norms(ConstFloatTable table) {
  const int type = float_type(table);
  Norms norms;
  {
    nb::gil_scoped_release release;
    norms = kernels().norms[type](table.data(), static_cast<int64_t>(table.size()));
  }
  return nb::make_tuple(norms.absolute, norms.square, norms.nonzeros);
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

// What is changed in place is taken as it is: a converted copy would be learned into and thrown away.
#define LEARNER(name, rule, entries)                                                                      \
  module.def(                                                                                             \
      name,                                                                                               \
      [](In<int64_t> indptr, In<int32_t> indices, In<float> values, In<double> y,                         \
         std::optional<In<double>> weight, std::optional<In<int64_t>> order, FloatTable v,                \
         std::optional<Out<double>> shrunk, std::optional<FloatTable> average, Out<double> bias,          \
         Out<double> bias_square, Out<double> bias_average, Out<double> clock, const Choices& choices,    \
         int64_t n_threads, int64_t n_replicas, int64_t rows_each, double gain,                           \
         std::optional<FloatTable> replica_v, std::optional<FloatTable> replica_average, bool synced) {   \
        return learn(kernels().rule, entries, {indptr, indices, values, y, weight, order}, v, shrunk,     \
                     average, bias, bias_square, bias_average, clock, choices,                            \
                     {{n_replicas, rows_each, gain, n_threads, 1}, replica_v, replica_average, synced});  \
      },                                                                                                  \
      "indptr"_a, "indices"_a, "values"_a, "y"_a, "weight"_a.none(), "order"_a.none(), "v"_a.noconvert(), \
      "shrunk"_a.noconvert().none(), "average"_a.noconvert().none(), "bias"_a.noconvert(),                \
      "bias_square"_a.noconvert(), "bias_average"_a.noconvert(), "clock"_a.noconvert(), "choices"_a,      \
      "n_threads"_a = 1, "n_replicas"_a = 0, "rows_each"_a = 0, "gain"_a = 0.0,                           \
      "replica_v"_a.noconvert().none() = nb::none(), "replica_average"_a.noconvert().none() = nb::none(), \
      "synced"_a = false)

void bind_linear(nb::module_& module) {
  nb::class_<Choices>(module, "Choices")
      .def(
          "__init__",
          [](Choices* self, int loss, double loss_parameter, int target_kind, int schedule, double eta0,
             double power, double decay, double l1, double l2, double threshold, int64_t shrink_period,
             int average, int64_t batch_size, double bias_scale, int table_bits, int64_t n_columns) {
            *self = Choices{
                loss, loss_parameter, target_kind,   schedule, eta0,       power,      decay,      l1,
                l2,   threshold,      shrink_period, average,  batch_size, bias_scale, table_bits, n_columns};
          },
          nb::kw_only(), "loss"_a, "loss_parameter"_a, "target_kind"_a, "schedule"_a, "eta0"_a, "power"_a,
          "decay"_a, "l1"_a, "l2"_a, "threshold"_a, "shrink_period"_a, "average"_a, "batch_size"_a,
          "bias_scale"_a, "table_bits"_a = 0, "n_columns"_a = 0);
  LEARNER("linear_sgd", sgd, 1);
  LEARNER("linear_adagrad", adagrad, 2);
  LEARNER("linear_ftrl", ftrl, 2);
  LEARNER("linear_coin", coin, 4);
  module.def(
      "linear_scores",
      [](In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
         ConstFloatTable weights, double scale, In<double> bias, Out<double> scores, int n_threads,
         int table_bits, int64_t n_columns) {
        return score_block({indptr, indices, values, std::nullopt, std::nullopt, order}, weights, scale, bias,
                           scores, n_threads, table_bits, n_columns);
      },
      "indptr"_a, "indices"_a, "values"_a, "order"_a.none(), "weights"_a, "scale"_a, "bias"_a,
      "scores"_a.noconvert(), "n_threads"_a, "table_bits"_a = 0, "n_columns"_a = 0);
  module.attr("class_hash_id") = kClassHashId;
  module.attr("class_window") = kWindow;
  module.attr("outputs_a_thread") = kOutputsAThread;
  module.def("class_weights", &class_weights, "table"_a, "features"_a, "output"_a, "table_bits"_a);
  module.def("table_norms", &table_norms, "table"_a);
  module.def("mean_weights", &mean_weights, "v"_a, "average"_a.none(), "sum_of_scales"_a, "total"_a,
             "out"_a.noconvert());
  module.def("mean_norms", &mean_norms, "v"_a, "average"_a.none(), "n_outputs"_a, "sum_of_scales"_a,
             "total"_a, "rows_each"_a, "n_threads"_a = 1);
  module.def("loss_value_slope", &loss_value_slope, "loss"_a, "parameter"_a, "scores"_a, "y"_a);
  module.def("linear_settle", &settle, "v"_a.noconvert(), "shrunk"_a.noconvert().none(),
             "clock"_a.noconvert(), "n_outputs"_a, "choices"_a, "average"_a.noconvert().none() = nb::none());
}
