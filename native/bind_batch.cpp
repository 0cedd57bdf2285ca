// SPDX-License-Identifier: Apache-2.0
// The Python name of the batch kernels. Everything that could make them read outside their arrays is checked
// here, except feature indices, which they check row by row.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "batch_table.h"
#include "bind_arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace baseline {
extern const BatchTable batch_table;
}
#if defined(STEEPEST_HAS_V3)
namespace v3 {
extern const BatchTable batch_table;
}
#endif

const BatchTable& batch_kernels() {
#if defined(STEEPEST_HAS_V3)
  if (std::strcmp(kernels().name, "v3") == 0) return v3::batch_table;
#endif
  return baseline::batch_table;
}

namespace {

void check_visits(const BatchTask& task, int64_t n_rows, int64_t n_entries) {
  const Rows& rows = task.rows;
  const bool codes = task.target_kind != kTargets && task.kind == kGradient;
  for (int64_t q = 0; q < rows.n; ++q) {
    const int64_t i = rows.order ? rows.order[q] : q;
    require(0 <= i && i < n_rows, "the order names a row that is not there");
    require(0 <= rows.indptr[i] && rows.indptr[i] <= rows.indptr[i + 1] && rows.indptr[i + 1] <= n_entries,
            "indptr does not fit indices and values");
    require(!codes || (rows.y[i] >= 0 && rows.y[i] < static_cast<double>(rows.n_outputs)),
            "a class code is out of range");
  }
}

double* per_visit(std::optional<Out<double>>& array, const Rows& rows, const char* message) {
  if (!array) return nullptr;
  require(static_cast<int64_t>(array->size()) == rows.n * rows.n_outputs, message);
  return array->data();
}

// Threads take whole lanes, so their number changes nothing but the time.
int64_t run_lanes(const BatchTask& task, int n_threads) {
  const int64_t blocks = task.rows.n / task.block_rows + 2;
  const int64_t parts = std::max<int64_t>(1, std::min({int64_t{n_threads}, task.n_lanes, blocks}));
  std::vector<int64_t> stopped(parts, task.rows.n);
  std::vector<double> scratch(parts * (2 * task.rows.n_outputs + 16));
  auto run = [&](int64_t part) {
    for (int64_t lane = part; lane < task.n_lanes; lane += parts) {
      double* const mine = scratch.data() + part * (2 * task.rows.n_outputs + 16);
      stopped[part] = std::min(stopped[part], batch_kernels().run_lane(task, lane, mine));
    }
  };
  std::vector<std::thread> threads;
  std::vector<int64_t> left;
  for (int64_t part = 1; part < parts; ++part) {
    try {
      threads.emplace_back(run, part);
    } catch (const std::system_error&) {  // no thread to be had: the work is done here
      left.push_back(part);
    }
  }
  run(0);
  for (int64_t part : left) run(part);
  for (std::thread& thread : threads) thread.join();
  return *std::min_element(stopped.begin(), stopped.end());
}

int64_t batch_pass(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<double>> y,
                   std::optional<In<double>> weight, std::optional<In<int64_t>> order, In<double> weights,
                   int64_t n_outputs, int kind, int loss, double parameter, int target_kind, double smoothing,
                   std::optional<In<double>> shift, std::optional<Out<double>> curvature,
                   std::optional<Out<double>> slopes, std::optional<Out<double>> sums, Out<double> totals,
                   int64_t first_visit, int64_t block_rows, int n_threads) {
  const int64_t n_rows = static_cast<int64_t>(indptr.size()) - 1;
  const int64_t width = static_cast<int64_t>(weights.size());
  require(n_rows >= 0, "indptr does not fit indices and values");
  require(n_outputs > 0 && width >= n_outputs && width % n_outputs == 0,
          "the weights do not fit the outputs");
  require(kGradient <= kind && kind <= kHessian, "unknown kind of pass");
  require(totals.size() > 0 && totals.size() % kTotals == 0, "totals has another size");
  require(first_visit >= 0 && block_rows > 0, "first_visit and block_rows must not be negative");
  BatchTask task = {};
  task.rows.indptr = indptr.data();
  task.rows.indices = indices.data();
  task.rows.values = values.data();
  task.rows.n = order ? static_cast<int64_t>(order->size()) : n_rows;
  task.rows.order = order ? order->data() : nullptr;
  task.rows.n_features = width / n_outputs - 1;
  task.rows.n_outputs = n_outputs;
  if (kind == kGradient) {
    require(y && static_cast<int64_t>(y->size()) == n_rows * (target_kind == kTargets ? n_outputs : 1),
            "y does not fit the rows");
    task.rows.y = y->data();
  }
  if (weight) {
    require(static_cast<int64_t>(weight->size()) == n_rows, "weight does not fit the rows");
    task.rows.weight = weight->data();
  }
  task.first_visit = first_visit;
  task.block_rows = block_rows;
  task.n_lanes = static_cast<int64_t>(totals.size()) / kTotals;
  task.weights = weights.data();
  task.kind = kind;
  task.loss = loss;
  task.parameter = parameter;
  task.target_kind = target_kind;
  task.smoothing = smoothing;
  if (shift) {
    require(static_cast<int64_t>(shift->size()) == task.rows.n * n_outputs, "shift does not fit the visits");
    task.shift = shift->data();
  }
  task.curvature = per_visit(curvature, task.rows, "curvature does not fit the visits");
  task.slopes = per_visit(slopes, task.rows, "slopes does not fit the visits");
  require(kind == kGradient || task.curvature, "products and diagonals need the curvature");
  if (sums) {
    const int64_t lane = kind == kHessian ? n_outputs * hessian_size(task.rows.n_features) : width;
    require(static_cast<int64_t>(sums->size()) == task.n_lanes * lane, "sums has another size");
    task.sums = sums->data();
  }
  require(kind != kHessian || (task.sums && target_kind != kSoftmax),
          "a Hessian needs sums, and one output apart from the other");
  task.totals = totals.data();
  check_visits(task, n_rows, static_cast<int64_t>(std::min(indices.size(), values.size())));
  nb::gil_scoped_release release;
  return run_lanes(task, n_threads);
}

}  // namespace
}  // namespace steepest

void bind_batch(nb::module_& module) {
  module.def("batch_pass", &steepest::batch_pass, "indptr"_a, "indices"_a, "values"_a, "y"_a.none(),
             "weight"_a.none(), "order"_a.none(), "weights"_a, "n_outputs"_a, "kind"_a, "loss"_a,
             "parameter"_a, "target_kind"_a, "smoothing"_a, "shift"_a.none(),
             "curvature"_a.noconvert().none(), "slopes"_a.noconvert().none(), "sums"_a.noconvert().none(),
             "totals"_a.noconvert(), "first_visit"_a, "block_rows"_a, "n_threads"_a);
}
