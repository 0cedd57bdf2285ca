// SPDX-License-Identifier: Apache-2.0
// Python names for the kernels of networks, each for float32 and for float64. Shapes and lists of features
// are checked here; the kernels check the indices of rows while they read them.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "network/network_learner.h"
#include "python/rows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

template <typename T>
Matrix<T> matrix_of(const Table<T>& table) {
  require(table.shape(1) > 0, "a table needs columns");
  return {table.data(), rows_in(table), columns_in(table)};
}

// What features owe: when each was last up to date, the path length of penalties, l1 and l2.
template <typename Stamp>
using Debts = std::tuple<Stamp, double, double, double>;

template <typename Stamp>
Shrinkage shrinkage_of(const std::optional<Debts<Stamp>>& debts, int64_t n_features) {
  if (!debts) return {};
  const auto& [stamp, path, l1, l2] = *debts;
  require(size_of(stamp) == n_features, "stamp does not fit the table");
  return {const_cast<double*>(stamp.data()), path, l1, l2};
}

// ----------------------------------------------------------------------------------------- the input layer

// kPays: what features owe is paid into the table first; else it stays as it is.
template <typename T, bool kPays, typename Weight = std::conditional_t<kPays, T, const T>,
          typename Stamp = std::conditional_t<kPays, Out<double>, In<double>>>
int64_t forward(const RowArrays& arrays, Table<Weight> table, std::optional<Debts<Stamp>> debts, Table<T> out,
                int64_t n_threads) {
  const Matrix<Weight> w = matrix_of(table);
  const Rows rows = arrays.view(w.n_rows);
  require(size_of(out) == rows.n * w.n_columns, "out does not fit");
  Shrinkage s = shrinkage_of(debts, w.n_rows);
  nb::gil_scoped_release release;
  if constexpr (kPays) {
    const int64_t paid = s.stamp ? pay_rows(rows, s, w, n_threads) : rows.n;
    if (paid < rows.n) return paid;
    s = {};
  }
  return over_rows(rows, n_threads, kLeastRows, [&](const Rows& part, int64_t first) {
    return network_kernels_of<T>().scores(part, w, s, out.data() + first * w.n_columns);
  });
}

template <typename T>
int64_t gather_gradient(const RowArrays& arrays, Table<const T> gradients, Out<int32_t> slot,
                        Out<int32_t> features, Table<T> sums, int64_t n_threads) {
  const Rows rows = arrays.view(size_of(slot));
  const Matrix<const T> g = matrix_of(gradients);
  require(g.n_rows == rows.n && sums.shape(1) == gradients.shape(1), "gradients do not fit");
  const int64_t room = std::min(size_of(features), rows_in(sums));
  require(room >= std::min(entries_in(rows), rows.n_features), "the gradient has too few rows");
  nb::gil_scoped_release release;
  return gather<T>(rows, g, slot.data(), features.data(), sums.data(), n_threads);
}

template <typename T>
int64_t descend_rows(const RowArrays& arrays, Table<const T> gradients, double eta, Table<T> table,
                     int64_t n_threads) {
  const Matrix<T> w = matrix_of(table);
  const Rows rows = arrays.view(w.n_rows);
  require(size_of(gradients) == rows.n * w.n_columns, "gradients do not fit");
  nb::gil_scoped_release release;
  return descend<T>(rows, gradients.data(), eta, w, n_threads);
}

template <typename T>
int64_t densify(const RowArrays& arrays, Table<T> out, Out<uint8_t> used) {
  const Matrix<T> dense = matrix_of(out);
  const Rows rows = arrays.view(dense.n_columns);
  require(rows.n == dense.n_rows && size_of(used) == dense.n_columns, "out does not fit the rows");
  nb::gil_scoped_release release;
  return network_kernels_of<T>().densify(rows, dense.data, used.data());
}

// -------------------------------------------------------------------------------------- steps and penalties

using Features = std::optional<In<int32_t>>;  // rows of a table; none: all of them

const int32_t* checked(const Features& features, int64_t n_features) {
  if (!features) return nullptr;
  check_range(*features, 0, n_features, "a feature is out of range");
  return features->data();
}

// The moment of a solver that has one, else null.
template <typename T>
T* moment_of(const Out<T>* moment, bool needed, int64_t size) {
  require(!needed || (moment && size_of(*moment) == size), "the solver needs another array");
  return needed ? moment->data() : nullptr;
}

template <typename T>
Weights<T> weights_of(const Matrix<T>& table, const Out<T>* first, const Out<T>* second, int32_t kind) {
  return {table, moment_of(first, kind == kMomentum || kind == kAdam, table.size()),
          moment_of(second, kind == kAdaGrad || kind == kAdam, table.size())};
}

// `clock`: eta and the steps so far.
template <typename T>
void update_rows(const NetworkChoices& choices, std::pair<double, double> clock, Features features,
                 Table<const T> gradient, Table<T> table, std::optional<Out<T>> first,
                 std::optional<Out<T>> second, int64_t n_threads) {
  const Weights<T> weights =
      weights_of(matrix_of(table), first ? &*first : nullptr, second ? &*second : nullptr, choices.kind);
  const int32_t* const list = checked(features, weights.table.n_rows);
  const int64_t n = features ? size_of(*features) : weights.table.n_rows;
  require(size_of(gradient) >= n * weights.table.n_columns, "the gradient does not fit");
  nb::gil_scoped_release release;
  update<T>(step_of(choices, clock.first, clock.second), list, n, gradient.data(), weights, n_threads);
}

template <typename T>
void apply_penalty(Features features, std::optional<Debts<Out<double>>> debts, Table<T> table) {
  const Matrix<T> w = matrix_of(table);
  const Shrinkage s = shrinkage_of(debts, w.n_rows);
  const int32_t* const list = checked(features, w.n_rows);
  nb::gil_scoped_release release;
  if (s.stamp) network_kernels_of<T>().pay_listed(s, list, features ? size_of(*features) : w.n_rows, w);
}

// ------------------------------------------------------------------------------- dense matrices and the loss

template <typename T>
void multiply_matrices(Table<const T> a, Table<const T> b, Table<T> c, bool a_is_transposed,
                       int64_t n_threads) {
  const Matrix<const T> left = matrix_of(a), right = matrix_of(b);
  const Matrix<T> result = matrix_of(c);
  const int64_t m = a_is_transposed ? left.n_columns : left.n_rows;
  const int64_t p = a_is_transposed ? left.n_rows : left.n_columns;
  require(right.n_rows == p && result.n_rows == m && result.n_columns == right.n_columns,
          "the matrices do not fit");
  nb::gil_scoped_release release;
  multiply<T>({left.data, right.data, result.data, m, p, right.n_columns, a_is_transposed, 0, m}, n_threads);
}

template <typename T>
void softmax(Table<const T> scores, In<int64_t> classes, In<double> factor, Out<double> losses,
             Table<T> gradients) {
  const Matrix<const T> s = matrix_of(scores);
  require(size_of(classes) == s.n_rows && size_of(factor) == s.n_rows && size_of(losses) == s.n_rows,
          "classes do not fit the scores");
  require(size_of(gradients) == s.size(), "gradients do not fit the scores");
  check_range(classes, 0, s.n_columns, "a class is out of range");
  NetworkTargets targets = {};
  targets.loss = -1;
  targets.n_outputs = s.n_columns;
  targets.classes = classes.data();
  nb::gil_scoped_release release;
  network_kernels_of<T>().judge(targets,
                                {0, s.n_rows, s.data, factor.data(), losses.data(), gradients.data()});
}

// ------------------------------------------------------------------------------------------- whole batches

void make_targets(NetworkTargets* self, int loss, double parameter, bool is_real, In<double> units,
                  std::optional<In<int64_t>> classes, std::optional<In<double>> y,
                  std::optional<In<double>> weight) {
  const int64_t k = size_of(units) / 3;
  require(k > 0 && size_of(units) == 3 * k, "shift, scale and parameter do not fit the outputs");
  require(classes.has_value() != y.has_value() && (loss >= 0 || classes), "give classes or targets");
  const int64_t n = classes ? size_of(*classes) : size_of(*y) / k;
  if (classes) check_range(*classes, 0, k, "a class is out of range");
  const int64_t* const codes = classes ? classes->data() : nullptr;
  const double* const numbers = data_of(y, n * k, "targets do not fit the outputs");
  const double* const weights = data_of(weight, n, "weights do not fit the rows");
  *self = {loss, parameter, is_real, k, n, units.data(), codes, numbers, weights};
}

// (size, link) of each station, and (source, target) of each wire.
using Graph = std::pair<In<int64_t>, In<int64_t>>;

// Weights of each wire and biases of each station, or none, and their moments; when each feature of a wire
// from the input was up to date; room for the places of features; steps so far and the path length of
// penalties.
template <typename T>
using NetworkArrays = std::tuple<std::vector<Out<T>>, std::vector<Out<T>>, std::vector<Out<T>>,
                                 std::vector<Out<double>>, Out<int32_t>, Out<double>>;

template <typename T>
void add_graph(Network<T>& network, const Graph& graph) {
  const auto& [stations, wires] = graph;
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
}

template <typename T>
void add_arrays(Network<T>& network, const NetworkArrays<T>& arrays) {
  const auto& [tables, first, second, stamps, slot, clock] = arrays;
  const size_t n_wires = network.wires.size();
  require(tables.size() == n_wires || tables.size() == n_wires + network.stations.size(),
          "each wire has a table, and each station a bias or none has one");
  require(size_of(clock) == 2, "the clock needs two numbers");
  network.slot = slot.data();
  network.clock = clock.data();
  size_t stamp = 0;
  for (size_t place = 0; place < tables.size(); ++place) {
    const bool is_wire = place < n_wires;
    const Station& to = network.stations[is_wire ? network.wires[place].target : place - n_wires];
    const bool is_input = is_wire && network.wires[place].source == kInput;
    const int64_t n_rows = !is_wire   ? 1
                           : is_input ? size_of(slot)
                                      : network.stations[network.wires[place].source].size;
    require(size_of(tables[place]) == n_rows * to.size, "an array does not fit the graph");
    (is_wire ? network.weights : network.biases)
        .push_back(weights_of(Matrix<T>{tables[place].data(), n_rows, to.size},
                              place < first.size() ? &first[place] : nullptr,
                              place < second.size() ? &second[place] : nullptr, network.choices.kind));
    if (is_wire) network.stamps.push_back(nullptr);
    if (!is_input || stamps.empty()) continue;
    require(stamp < stamps.size() && size_of(stamps[stamp]) == n_rows, "stamp does not fit the table");
    network.stamps.back() = stamps[stamp++].data();
  }
}

template <typename T>
std::pair<int64_t, int64_t> learn(const RowArrays& rows, const NetworkTargets& targets, Graph graph,
                                  NetworkArrays<T> arrays, const NetworkChoices& choices, In<double> steps,
                                  Out<double> totals, int64_t n_threads) {
  Network<T> network = {};
  network.choices = choices;
  add_graph(network, graph);
  add_arrays(network, arrays);
  const Batches batches = {rows.view(size_of(std::get<4>(arrays))), targets, steps.data(), totals.data()};
  require(targets.n_rows == batches.rows.n && targets.n_outputs == network.stations.back().size,
          "targets do not fit the rows and outputs");
  const int64_t n_batches = (batches.rows.n + choices.batch_size - 1) / choices.batch_size;
  require(size_of(steps) == n_batches && size_of(totals) == n_batches, "steps do not fit the batches");
  nb::gil_scoped_release release;
  const Stop stop = NetworkLearner<T>(network, batches, n_threads).learn();
  return {stop.batches, stop.bad_row};
}

// What is changed in place is taken as it is: a converted copy would be learned into and thrown away.
template <typename T>
void bind_type(nb::module_& module) {
  module.def("network_forward", &forward<T, true>, "rows"_a, "table"_a.noconvert(),
             "debts"_a.noconvert().none(), "out"_a.noconvert(), "n_threads"_a = 1);
  module.def("network_scores", &forward<T, false>, "rows"_a, "table"_a, "debts"_a.none(), "out"_a.noconvert(),
             "n_threads"_a = 1);
  module.def("network_gather", &gather_gradient<T>, "rows"_a, "gradients"_a, "slot"_a.noconvert(),
             "features"_a.noconvert(), "sums"_a.noconvert(), "n_threads"_a = 1);
  module.def("network_descend", &descend_rows<T>, "rows"_a, "gradients"_a, "eta"_a, "table"_a.noconvert(),
             "n_threads"_a = 1);
  module.def("network_update", &update_rows<T>, "choices"_a, "clock"_a, "features"_a.none(), "gradient"_a,
             "table"_a.noconvert(), "first"_a.noconvert().none(), "second"_a.noconvert().none(),
             "n_threads"_a = 1);
  module.def("network_apply_penalty", &apply_penalty<T>, "features"_a.none(), "debts"_a.noconvert().none(),
             "table"_a.noconvert());
  module.def("network_densify", &densify<T>, "rows"_a, "out"_a.noconvert(), "used"_a.noconvert());
  module.def("network_multiply", &multiply_matrices<T>, "a"_a, "b"_a, "c"_a.noconvert(),
             "a_is_transposed"_a = false, "n_threads"_a = 1);
  module.def("network_softmax", &softmax<T>, "scores"_a, "classes"_a, "factor"_a, "losses"_a.noconvert(),
             "gradients"_a.noconvert());
  module.def("network_learn", &learn<T>, "rows"_a, "targets"_a, "graph"_a, "arrays"_a.noconvert(),
             "choices"_a, "steps"_a, "totals"_a.noconvert(), "n_threads"_a = 1);
}

}  // namespace
}  // namespace steepest

void bind_network(nb::module_& module) {
  using namespace steepest;
  nb::class_<NetworkChoices>(module, "NetworkChoices", "What stays the same while a network learns.")
      .def(
          "__init__",
          [](NetworkChoices* self, int kind, double keep_first, double keep_second, double epsilon, double l1,
             double l2, int64_t batch_size) {
            require(kPlain <= kind && kind <= kAdam, "there is no such solver");
            require(batch_size > 0, "a batch needs rows");
            *self = {kind, keep_first, keep_second, epsilon, l1, l2, batch_size};
          },
          nb::kw_only(), "kind"_a, "keep_first"_a = 0.0, "keep_second"_a = 0.0, "epsilon"_a = 0.0,
          "l1"_a = 0.0, "l2"_a = 0.0, "batch_size"_a = 1);
  nb::class_<NetworkTargets>(module, "NetworkTargets",
                             "What rows should score, in the order of their visits.")
      .def("__init__", &make_targets, "loss"_a, "parameter"_a, "is_real"_a, "units"_a.noconvert(),
           "classes"_a.noconvert().none(), "y"_a.noconvert().none(), "weight"_a.noconvert().none(),
           nb::keep_alive<1, 5>(), nb::keep_alive<1, 6>(), nb::keep_alive<1, 7>(), nb::keep_alive<1, 8>());
  bind_type<float>(module);
  bind_type<double>(module);
}
