// SPDX-License-Identifier: Apache-2.0
// Python names for the loops of solvers over all data. Everything that could make them read outside their
// arrays is checked here, except feature indices, which most of them check row by row.
#include <nanobind/stl/tuple.h>

#include <tuple>
#include <vector>

#include "batch/batch_table.h"
#include "core/random.h"
#include "core/threads.h"
#include "python/rows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

// ---------------------------------------------------------------------------------------------------- passes

// What one pass computes, at which weights, and where it is added up.
struct PassArrays {
  int32_t kind;
  In<double> weights;
  int64_t n_outputs;
  int32_t loss;
  double parameter;
  int32_t target_kind;
  double smoothing;
  int64_t block_rows;
  Out<double> totals;
  std::optional<Out<double>> sums;
};

// Threads take whole lanes, so results do not depend on their number.
int64_t run_lanes(const BatchPass& pass, int64_t n_threads) {
  const int64_t n = std::max<int64_t>(1, std::min(n_threads, pass.rows.n / pass.block_rows + 2));
  const int64_t room = 2 * pass.n_outputs + 16;
  std::vector<int64_t> stopped(pass.n_lanes);
  std::vector<double> scratch(n * room);
  parallel_for(pass.n_lanes, n, [&](int64_t lane, int64_t thread) {
    stopped[lane] = batch_kernels().run_lane(pass, lane, scratch.data() + thread * room);
  });
  return *std::min_element(stopped.begin(), stopped.end());
}

int64_t batch_pass(const RowArrays& rows, const PassArrays& arrays, int64_t first_visit,
                   const std::optional<In<double>>& shift, const std::optional<Out<double>>& curvature,
                   const std::optional<Out<double>>& gradients, int64_t n_threads) {
  const int64_t width = size_of(arrays.weights), K = arrays.n_outputs;
  const bool softmax = arrays.target_kind == kSoftmax;
  require(K > 0 && width >= K && width % K == 0, "the weights do not fit the outputs");
  require(kGradient <= arrays.kind && arrays.kind <= kHessian, "unknown kind of pass");
  require(arrays.totals.size() > 0 && arrays.totals.size() % kTotals == 0, "totals has another size");
  require(first_visit >= 0 && arrays.block_rows > 0, "first_visit and block_rows must not be negative");
  const int64_t n_features = width / K - 1, n_lanes = size_of(arrays.totals) / kTotals;
  const int64_t lane = arrays.kind == kHessian ? K * hessian_size(n_features) : width;
  const int64_t n = rows.n_visits() * K;
  const BatchPass pass = {
      arrays.kind != kGradient         ? rows.view(n_features)
      : arrays.target_kind == kTargets ? rows.with_targets(n_features, K)
                                       : rows.with_classes(n_features, K),
      arrays.kind,
      arrays.weights.data(),
      K,
      arrays.loss,
      arrays.parameter,
      arrays.target_kind,
      arrays.smoothing,
      arrays.block_rows,
      n_lanes,
      first_visit,
      data_of(shift, n, "shift does not fit the visits"),
      data_of(curvature, n, "curvature does not fit the visits"),
      data_of(gradients, n, "gradients does not fit the visits"),
      data_of(arrays.sums, n_lanes * lane, "sums has another size"),
      arrays.totals.data(),
  };
  require(pass.kind == kGradient || curvature, "products and diagonals need the curvature");
  require(pass.kind != kHessian || (pass.sums && !softmax),
          "a Hessian needs sums, and one output apart from the other");
  nb::gil_scoped_release release;
  return run_lanes(pass, n_threads);
}

// ------------------------------------------------------------------------------------ dual coordinate
// descent

void shuffle(int64_t* list, int64_t n, uint64_t seed) {
  for (int64_t k = n - 1; k > 0; --k) {
    const uint64_t random = next_random(&seed) >> 32;
    std::swap(list[k], list[(random * static_cast<uint64_t>(k + 1)) >> 32]);
  }
}

using Swept = std::tuple<int64_t, int32_t, double, double, double>;

Swept dual_sweep(const RowArrays& block, const Out<double>& state, const FloatTable& w,
                 const Out<double>& bias, const Out<int64_t>& active, int64_t n_active,
                 const DualChoices& choices, uint64_t seed) {
  Rows rows = block.in_block(size_of(w));
  const int type = float_type(w);
  require(rows.n < (int64_t{1} << 32), "there are more than 4 billion rows");
  require(size_of(state) == kDualRowSize * rows.n, "the state does not fit the rows");
  require(bias.size() == 2, "the bias has another length");
  require(choices.relax > 0 && choices.relax < 2, "relax must lie between 0 and 2");
  require(0 <= n_active && n_active <= size_of(active), "active is too short");
  check_range(active, 0, rows.n, "active names a row that is not there", n_active);
  rows.n = n_active;
  nb::gil_scoped_release release;
  shuffle(active.data(), n_active, seed);
  const DualOutcome out =
      batch_kernels().dual_sweep[type](rows, choices, reinterpret_cast<DualRow*>(state.data()), w.data(),
                                       reinterpret_cast<DualBias*>(bias.data()), active.data());
  return {out.n_active, out.status, out.gap, out.least_gradient, out.most_gradient};
}

int64_t add_rows(const RowArrays& rows, const In<double>& amount, const Out<double>& w) {
  require(size_of(amount) == rows.n_rows(), "there must be one amount per row");
  nb::gil_scoped_release release;
  return batch_kernels().add_rows(rows.in_block(size_of(w)), amount.data(), w.data());
}

NumpyArray<double> row_squares(const RowArrays& rows) {
  const Rows all = rows.in_block(0);
  std::unique_ptr<double[]> squares(new double[rows.n_rows()]);
  batch_kernels().row_squares(all, squares.get());
  return numpy_array(std::move(squares), rows.n_rows());
}

// ------------------------------------------------------------------------------------------------------ saga

int64_t saga_epoch(const RowArrays& block, const In<double>& share, const Out<double>& gradients,
                   const Out<double>& features, const Out<double>& bias, const SagaChoices& choices) {
  const Rows rows = block.with_targets(size_of(features) / kSagaFeatureSize, 1);
  require(size_of(share) == block.n_rows() && size_of(gradients) == block.n_rows(),
          "there must be one target per row");
  require(rows.order && rows.n == block.n_rows(), "an epoch visits as many rows as there are");
  require(features.size() % kSagaFeatureSize == 0 && bias.size() == 2, "the state has another length");
  nb::gil_scoped_release release;
  return batch_kernels().saga(rows, choices, share.data(), gradients.data(),
                              reinterpret_cast<SagaFeature*>(features.data()),
                              reinterpret_cast<SagaBias*>(bias.data()));
}

// ----------------------------------------------------------------------------------------- coordinate
// descent

// A quadratic model of the objective: see CdModel.
struct ModelArrays {
  In<double> gradient, diagonal;
  Out<double> w;
  Out<float> u;
  In<float> h;
  Out<double> bias;
  double bias_gradient, l1, l2;
  bool fit_intercept;
};

// The columns, of which those of the set name rows below n_rows only.
Rows checked_columns(const RowArrays& block, const In<int64_t>& set, int64_t n_rows) {
  const Rows columns = block.in_block(n_rows);
  for (size_t k = 0; k < set.size(); ++k) {
    const int64_t j = set.data()[k];
    require(0 <= j && j < columns.n, "the set names a feature that is not there");
    require(indices_fit(get_row(columns, j), n_rows), "a column names a row that is not there");
  }
  return columns;
}

double cd_cycles(const RowArrays& block, const In<int64_t>& set, const ModelArrays& arrays, int64_t cycles,
                 double enough) {
  const int64_t n_rows = size_of(arrays.u), d = block.n_rows();
  require(size_of(arrays.h) == n_rows, "the rows do not fit");
  const Rows columns = checked_columns(block, set, n_rows);
  require(size_of(arrays.gradient) == d && size_of(arrays.diagonal) == d && size_of(arrays.w) == d,
          "there must be one number per feature");
  require(arrays.bias.size() == 1, "the bias has another length");
  const CdModel model = {
      arrays.gradient.data(), arrays.diagonal.data(), arrays.w.data(), arrays.u.data(), arrays.h.data(),
      arrays.bias.data(),     arrays.bias_gradient,   n_rows,          arrays.l1,       arrays.l2,
      arrays.fit_intercept};
  nb::gil_scoped_release release;
  double violation = 0;
  for (int64_t turn = 0; turn < cycles; ++turn) {
    violation = batch_kernels().cd_cycle(columns, model, set.data(), size_of(set));
    if (violation <= enough) break;
  }
  return violation;
}

void cd_diagonal(const RowArrays& block, const In<int64_t>& set, const In<float>& h,
                 const Out<double>& diagonal) {
  const Rows columns = checked_columns(block, set, size_of(h));
  require(size_of(diagonal) == columns.n, "there must be one number per feature");
  nb::gil_scoped_release release;
  batch_kernels().cd_diagonal(columns, h.data(), set.data(), size_of(set), diagonal.data());
}

}  // namespace
}  // namespace steepest

using namespace steepest;

void bind_batch(nb::module_& module) {
  nb::class_<PassArrays>(module, "BatchPass", "What a pass over all rows computes, and where it is added up.")
      .def(nb::init<int32_t, In<double>, int64_t, int32_t, double, int32_t, double, int64_t, Out<double>,
                    std::optional<Out<double>>>(),
           nb::kw_only(), "kind"_a, "weights"_a, "n_outputs"_a, "loss"_a, "parameter"_a, "target_kind"_a,
           "smoothing"_a, "block_rows"_a, "totals"_a.noconvert(), "sums"_a.noconvert().none());
  module.def("batch_pass", &batch_pass, "rows"_a, "this"_a, "first_visit"_a, "shift"_a = nb::none(),
             "curvature"_a.noconvert() = nb::none(), "gradients"_a.noconvert() = nb::none(),
             "n_threads"_a = 1);
  nb::class_<DualChoices>(module, "DualChoices", "What stays the same during a sweep over dual variables.")
      .def(nb::init<int32_t, double, double, double, double, double>(), nb::kw_only(), "loss"_a,
           "parameter"_a, "bias_step"_a, "least_gradient"_a, "most_gradient"_a, "relax"_a);
  module.def("dual_sweep", &dual_sweep, "rows"_a, "state"_a.noconvert(), "w"_a.noconvert(),
             "bias"_a.noconvert(), "active"_a.noconvert(), "n_active"_a, "choices"_a, "seed"_a);
  module.def("add_rows", &add_rows, "rows"_a, "amount"_a, "w"_a.noconvert());
  module.def("row_squares", &row_squares, "rows"_a);
  nb::class_<SagaChoices>(module, "SagaChoices", "What stays the same during an epoch of saga.")
      .def(nb::init<int32_t, double, double, double, double, bool>(), nb::kw_only(), "loss"_a, "parameter"_a,
           "eta"_a, "l1"_a, "l2"_a, "fit_intercept"_a);
  module.def("saga_epoch", &saga_epoch, "rows"_a, "share"_a, "gradients"_a.noconvert(),
             "features"_a.noconvert(), "bias"_a.noconvert(), "choices"_a);
  nb::class_<ModelArrays>(module, "CdModel", "A quadratic model of the objective around some weights.")
      .def(nb::init<In<double>, In<double>, Out<double>, Out<float>, In<float>, Out<double>, double, double,
                    double, bool>(),
           nb::kw_only(), "gradient"_a, "diagonal"_a, "w"_a.noconvert(), "u"_a.noconvert(), "h"_a,
           "bias"_a.noconvert(), "bias_gradient"_a, "l1"_a, "l2"_a, "fit_intercept"_a);
  module.def("cd_cycles", &cd_cycles, "columns"_a, "set"_a, "model"_a, "cycles"_a, "enough"_a);
  module.def("cd_diagonal", &cd_diagonal, "columns"_a, "set"_a, "h"_a, "diagonal"_a.noconvert());
}
