// SPDX-License-Identifier: Apache-2.0
// Python names for the linear kernels. Everything that could make a kernel read outside its arrays is checked
// here, except feature indices, which the kernels check row by row while they are in cache.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <limits>
#include <tuple>
#include <vector>

#include "linear/parallel.h"
#include "python/linear_tables.h"
#include "python/rows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

// What was learned: arrays that are changed in place. A table of weights may hold their averages as well, as
// (features, 2, outputs).
struct StateArrays {
  FloatTable v;
  Out<double> bias, bias_square, bias_average, clock;
  std::optional<Out<double>> shrunk;
  std::optional<FloatTable> average;
  int32_t table_bits;
  int64_t n_columns;
  std::optional<Out<double>> ages;
};

// How many learn at once, and the replicas' own weights.
struct ParallelArrays {
  int64_t n_threads = 1, n_replicas = 1, rows_each = 0;
  double gain = 0;
  std::optional<FloatTable> v = std::nullopt, average = std::nullopt;
  bool synced = false;
};

LinearState state_of(const StateArrays& arrays, const LinearChoices& c) {
  const int64_t K = size_of(arrays.bias), per_weight = entries_per_weight(c.solver);
  const FloatTable& v = arrays.v;
  const bool paired = per_weight == 1 && c.average != kNoAverage && !arrays.average && !arrays.table_bits &&
                      v.ndim() == 3 && v.shape(1) == 2;
  LinearState state = {};
  state.type = float_type(v);
  state.shape = shape_of(v, K, paired ? 2 : per_weight, arrays.table_bits, arrays.n_columns);
  require(!arrays.table_bits || per_weight <= 2, "a shared table has no room for coins");
  require(!arrays.table_bits || !arrays.shrunk, "a shared table has no clocks of shrinkage");
  require(size_of(arrays.bias_square) == K && size_of(arrays.bias_average) == K,
          "the biases differ in length");
  require(size_of(arrays.clock) == kClockSize, "the clock has another length");
  require((c.average != kNoAverage) == (arrays.average || paired), "averaging needs its array");
  require((c.l1 > 0) == arrays.shrunk.has_value() || per_weight > 1, "l1 needs its clocks");
  require(!arrays.average || float_type(*arrays.average) == state.type, "the average does not fit");
  state.v = v.data();
  state.average = data_of(arrays.average, size_of(v), "the average does not fit");
  if (paired)
    state.average =
        static_cast<char*>(v.data()) + state.shape.width * (state.type ? sizeof(double) : sizeof(float));
  state.shrunk = data_of(arrays.shrunk, state.shape.n_features, "shrunk does not fit");
  state.bias = arrays.bias.data();
  state.bias_square = arrays.bias_square.data();
  state.bias_average = arrays.bias_average.data();
  state.clock = reinterpret_cast<Clock*>(arrays.clock.data());
  state.ages = reinterpret_cast<Ages*>(data_of(arrays.ages, kAgesSize, "ages has another length"));
  return state;
}

LinearParallel parallel_of(const ParallelArrays& arrays, const LinearState& s, const StateArrays& common,
                           const LinearChoices& c) {
  const int64_t n = arrays.n_replicas;
  LinearParallel p = {arrays.n_threads, n, arrays.rows_each, arrays.gain, nullptr, nullptr, arrays.synced};
  require(!s.shrunk || n == 1 || (n == 0 && p.n_threads <= 1), "clocks of shrinkage cannot be summed");
  if (n <= 1) return p;
  require(common.average || !s.average || s.shape.width == 1,
          "replicas take averages behind the weights of one output only");
  require(p.rows_each >= 1 && p.rows_each % c.batch_size == 0, "a replica learns whole batches");
  const int64_t size = size_of(common.v) * n;
  require(arrays.v && float_type(*arrays.v) == s.type, "the replicas do not fit the weights");
  p.v = data_of(arrays.v, size, "the replicas do not fit the weights");
  require(arrays.average.has_value() == common.average.has_value() &&
              (!arrays.average || float_type(*arrays.average) == s.type),
          "the replicas do not fit the average");
  p.average = data_of(arrays.average, size, "the replicas do not fit the average");
  return p;
}

using Learned = std::tuple<int64_t, int32_t, double, double>;

Learned learn(const RowArrays& block, const StateArrays& arrays, LinearChoices c,
              const ParallelArrays& parallel) {
  require(c.batch_size >= 1, "batch_size must be at least 1");
  // A weight that decays between two visits may pass the limit there, which shrinkage paid late cannot see.
  require(c.solver != kSgd || c.l2 == 0 || c.truncate_below == std::numeric_limits<double>::infinity(),
          "truncate_below needs l2 = 0");
  const bool forgets = c.half_life != std::numeric_limits<double>::infinity();
  require(!forgets || (c.half_life >= 1 && (c.solver == kSgd || c.solver == kAdagrad)),
          "a half-life is one row or more, of sgd or adagrad");
  require(!forgets || parallel.n_replicas == 1, "learners that forget cannot be summed");
  LinearState state = state_of(arrays, c);
  const int64_t n_features = state.shape.n_features, K = state.shape.n_outputs;
  const bool codes = c.target_kind != kTargets;
  require(!codes || K > 1, "class codes need two outputs or more");
  const Rows rows = codes ? block.with_classes(n_features, K) : block.with_targets(n_features, K);
  // A batch longer than the visit is the visit; but never 1, which learns heavy rows in another way.
  c.batch_size = std::min(c.batch_size, std::max<int64_t>(rows.n, 2));
  require(!state.ages || (c.half_life == 1 && rows.time), "ages need a half-life of 1 and the times of rows");
  const LinearParallel p = parallel_of(parallel, state, arrays, c);
  std::vector<double> scratch(scratch_size(c.batch_size, K));
  state.scratch = scratch.data();
  nb::gil_scoped_release release;
  const Outcome done = learn_linear(rows, c, state, p);
  return {done.rows_done, done.status, done.loss_sum, done.weight_sum};
}

void apply_penalty(const StateArrays& arrays, const LinearChoices& c) {
  const LinearState state = state_of(arrays, c);
  nb::gil_scoped_release release;
  linear_kernels().apply_penalty[state.type](c, state);
}

std::pair<int64_t, int64_t> scores(const RowArrays& block, const ConstFloatTable& weights, double scale,
                                   const In<double>& bias, const Out<double>& scores, int64_t n_threads,
                                   int32_t table_bits, int64_t n_columns) {
  const ScoreTable table = score_table(weights, scale, bias.data(), bias.size(), table_bits, n_columns);
  const Rows rows = block.view(table.shape.n_features);
  require(size_of(scores) == rows.n * table.shape.n_outputs, "scores has another size");
  nb::gil_scoped_release release;
  return score_linear(rows, table, scores.data(), n_threads);
}

template <typename W>
nb::ndarray<nb::numpy> read_class_weights(const ConstFloatTable& table, const In<int64_t>& features,
                                          int64_t output, uint64_t mask) {
  std::unique_ptr<W[]> out(new W[features.size()]);
  for (size_t k = 0; k < features.size(); ++k) {
    const ClassPlace place = place_classes(static_cast<uint32_t>(features.data()[k]),
                                           static_cast<uint32_t>(output / kWindow), mask);
    const W weight = static_cast<const W*>(table.data())[place.first + output % kWindow];
    out[k] = place.negative ? -weight : weight;
  }
  return nb::ndarray<nb::numpy>(numpy_array(std::move(out), size_of(features)));
}

// What each of these features weighs for one output, read from a shared table.
nb::ndarray<nb::numpy> class_weights(const ConstFloatTable& table, const In<int64_t>& features,
                                     int64_t output, int32_t table_bits) {
  require(table_bits > 0, "table_bits must be 6 to 30");
  shape_of(table, 1, 1, table_bits, 0);
  require(0 <= output && output <= std::numeric_limits<int32_t>::max(), "an output is out of range");
  check_range(features, 0, int64_t{1} << 31, "a feature is out of range");
  const uint64_t mask = (uint64_t{1} << table_bits) - 1;
  return float_type(table) == 0 ? read_class_weights<float>(table, features, output, mask)
                                : read_class_weights<double>(table, features, output, mask);
}

// (S v - u) / C for the first `run` columns, where u is behind v or a table of its own.
AverageTable average_table(const ConstFloatTable& v, const std::optional<ConstFloatTable>& average,
                           int64_t run, double sum_of_scales, double total) {
  const int type = float_type(v);
  require(v.ndim() > 0, "the weights have no columns");
  require(average ? float_type(*average) == type && average->size() == v.size()
                  : v.ndim() == 3 && v.shape(1) == 2,
          "the average does not fit");
  const int64_t width = static_cast<int64_t>(v.shape(v.ndim() - 1)), stride = average ? width : 2 * width;
  require(0 < run && run <= width, "the outputs do not fit the weights");
  const void* u = average
                      ? average->data()
                      : static_cast<const char*>(v.data()) + width * (type ? sizeof(double) : sizeof(float));
  return {type, v.data(), u, size_of(v) / stride, run, stride, sum_of_scales, total};
}

void mean_weights(const ConstFloatTable& v, const std::optional<ConstFloatTable>& average,
                  double sum_of_scales, double total, const FloatTable& out) {
  if (v.size() == 0 && out.size() == 0) return;
  const int64_t width = v.ndim() ? static_cast<int64_t>(v.shape(v.ndim() - 1)) : 0;
  const AverageTable table = average_table(v, average, width, sum_of_scales, total);
  require(float_type(out) == table.type && size_of(out) == table.n_rows * width,
          "the means do not fit the weights");
  nb::gil_scoped_release release;
  linear_kernels().means[table.type](table, 0, table.n_rows, out.data());
}

using NormsFound = std::tuple<double, double, int64_t>;

NormsFound norms_of_means(const ConstFloatTable& v, const std::optional<ConstFloatTable>& average,
                          int64_t n_outputs, double sum_of_scales, double total, int64_t rows_each,
                          int64_t n_threads) {
  const AverageTable table = average_table(v, average, n_outputs, sum_of_scales, total);
  require(rows_each > 0, "the outputs do not fit the weights");
  nb::gil_scoped_release release;
  const Norms found = mean_norms(table, rows_each, n_threads);
  return {found.absolute, found.square, found.nonzeros};
}

// One pass without a copy.
NormsFound table_norms(const ConstFloatTable& table) {
  const int type = float_type(table);
  nb::gil_scoped_release release;
  const Norms found = linear_kernels().norms[type](table.data(), size_of(table));
  return {found.absolute, found.square, found.nonzeros};
}

std::pair<NumpyArray<double>, NumpyArray<double>> loss_value_gradient(int32_t loss, double parameter,
                                                                      const In<double>& scores,
                                                                      const In<double>& y) {
  require(scores.size() == y.size(), "scores and y differ in length");
  const int64_t n = size_of(scores);
  std::unique_ptr<double[]> values(new double[n]), gradients(new double[n]);
  linear_kernels().losses(loss, parameter, n, scores.data(), y.data(), values.get(), gradients.get());
  return {numpy_array(std::move(values), n), numpy_array(std::move(gradients), n)};
}

}  // namespace
}  // namespace steepest

using namespace steepest;

// What is changed in place is taken as it is: a converted copy would be learned into and thrown away.
void bind_linear(nb::module_& module) {
  module.attr("isa") = linear_kernels().name;
  module.attr("class_hash_id") = kClassHashId;
  module.attr("class_window") = kWindow;
  module.attr("outputs_per_thread") = kOutputsPerThread;
  nb::class_<LinearChoices>(module, "LinearChoices", "What stays the same while a linear model learns.")
      .def(nb::init<int32_t, int32_t, double, int32_t, int32_t, double, double, double, double, double,
                    double, int64_t, int32_t, int64_t, double, double>(),
           nb::kw_only(), "solver"_a, "loss"_a, "loss_parameter"_a, "target_kind"_a, "schedule"_a, "eta0"_a,
           "power"_a, "alpha"_a, "l1"_a, "l2"_a, "truncate_below"_a, "truncate_every"_a, "average"_a,
           "batch_size"_a, "bias_scale"_a, "half_life"_a = std::numeric_limits<double>::infinity());
  nb::class_<StateArrays>(module, "LinearState", "What a linear model learns: arrays that change in place.")
      .def(
          nb::init<FloatTable, Out<double>, Out<double>, Out<double>, Out<double>, std::optional<Out<double>>,
                   std::optional<FloatTable>, int32_t, int64_t, std::optional<Out<double>>>(),
          "v"_a.noconvert(), "bias"_a.noconvert(), "bias_square"_a.noconvert(), "bias_average"_a.noconvert(),
          "clock"_a.noconvert(), "shrunk"_a.noconvert() = nb::none(), "average"_a.noconvert() = nb::none(),
          "table_bits"_a = 0, "n_columns"_a = 0, "ages"_a.noconvert() = nb::none());
  nb::class_<ParallelArrays>(module, "LinearParallel", "How many learn a linear model at once.")
      .def(nb::init<int64_t, int64_t, int64_t, double, std::optional<FloatTable>, std::optional<FloatTable>,
                    bool>(),
           "n_threads"_a = 1, "n_replicas"_a = 1, "rows_each"_a = 0, "gain"_a = 0.0,
           "v"_a.noconvert() = nb::none(), "average"_a.noconvert() = nb::none(), "synced"_a = false);
  module.def("linear_learn", &learn, "rows"_a, "state"_a, "choices"_a, "parallel"_a = ParallelArrays{});
  module.def("linear_apply_penalty", &apply_penalty, "state"_a, "choices"_a);
  module.def("linear_scores", &scores, "rows"_a, "weights"_a, "scale"_a, "bias"_a, "scores"_a.noconvert(),
             "n_threads"_a = 1, "table_bits"_a = 0, "n_columns"_a = 0);
  module.def("class_weights", &class_weights, "table"_a, "features"_a, "output"_a, "table_bits"_a);
  module.def("table_norms", &table_norms, "table"_a);
  module.def("mean_weights", &mean_weights, "v"_a, "average"_a.none(), "sum_of_scales"_a, "total"_a,
             "out"_a.noconvert());
  module.def("mean_norms", &norms_of_means, "v"_a, "average"_a.none(), "n_outputs"_a, "sum_of_scales"_a,
             "total"_a, "rows_each"_a, "n_threads"_a = 1);
  module.def("loss_value_gradient", &loss_value_gradient, "loss"_a, "parameter"_a, "scores"_a, "y"_a);
}
