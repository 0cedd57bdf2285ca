// SPDX-License-Identifier: Apache-2.0
// Python names for the loops of dual coordinate descent, with the checks that keep them inside their arrays.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bind_arrays.h"
#include "dual_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

Rows all_rows(const In<int64_t>& indptr, const In<int32_t>& indices, const In<float>& values,
              size_t n_features) {
  const int64_t n = static_cast<int64_t>(indptr.size()) - 1;
  const int64_t n_entries = static_cast<int64_t>(std::min(indices.size(), values.size()));
  require(n >= 0, "indptr does not fit indices and values");
  const int64_t* at = indptr.data();
  require(at[0] >= 0 && at[n] <= n_entries, "indptr does not fit indices and values");
  for (int64_t i = 0; i < n; ++i) require(at[i] <= at[i + 1], "indptr does not fit indices and values");
  Rows rows = {};
  rows.indptr = at;
  rows.indices = indices.data();
  rows.values = values.data();
  rows.n = n;
  rows.n_features = static_cast<int64_t>(n_features);
  return rows;
}

// Steps of the generator splitmix64.
uint64_t next_random(uint64_t& state) {
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

void shuffle(int64_t* list, int64_t n, uint64_t seed) {
  for (int64_t k = n - 1; k > 0; --k) {
    const uint64_t random = next_random(seed) >> 32;
    std::swap(list[k], list[(random * static_cast<uint64_t>(k + 1)) >> 32]);
  }
}

nb::tuple sweep(In<int64_t> indptr, In<int32_t> indices, In<float> values, Out<double> state, FloatTable w,
                Out<double> bias, Out<int64_t> active, int64_t n_active, int loss, double parameter,
                double bias_step, double least_slope, double most_slope, double relax, uint64_t seed) {
  Rows rows = all_rows(indptr, indices, values, w.size());
  require(rows.n < (int64_t{1} << 32), "there are more than 4 billion rows");
  const bool single = w.dtype() == nb::dtype<float>();
  require(single || w.dtype() == nb::dtype<double>(), "weights must be float32 or float64");
  require(static_cast<int64_t>(state.size()) == kDualRowSize * rows.n, "the state does not fit the rows");
  require(bias.size() == 2, "the bias has another length");
  require(relax > 0 && relax < 2, "relax must lie between 0 and 2");
  require(0 <= n_active && n_active <= static_cast<int64_t>(active.size()), "active is too short");
  for (int64_t k = 0; k < n_active; ++k)
    require(0 <= active.data()[k] && active.data()[k] < rows.n, "active names a row that is not there");
  rows.n = n_active;
  const DualChoices choices = {loss, parameter, bias_step, most_slope, least_slope, relax};
  DualOutcome out;
  {
    nb::gil_scoped_release release;
    shuffle(active.data(), n_active, seed);
    out = dual_kernels().sweep[single ? 0 : 1](rows, choices, reinterpret_cast<DualRow*>(state.data()),
                                               w.data(), reinterpret_cast<DualBias*>(bias.data()),
                                               active.data());
  }
  return nb::make_tuple(out.n_active, out.status, out.gap, out.least_slope, out.most_slope);
}

int64_t gather(In<int64_t> indptr, In<int32_t> indices, In<float> values, In<double> amount, Out<double> w) {
  const Rows rows = all_rows(indptr, indices, values, w.size());
  require(static_cast<int64_t>(amount.size()) == rows.n, "there must be one amount a row");
  nb::gil_scoped_release release;
  return dual_kernels().gather(rows, amount.data(), w.data());
}

void squares(In<int64_t> indptr, In<int32_t> indices, In<float> values, Out<double> out) {
  const Rows rows = all_rows(indptr, indices, values, 0);
  require(static_cast<int64_t>(out.size()) == rows.n, "there must be one place a row");
  nb::gil_scoped_release release;
  dual_kernels().squares(rows, out.data());
}

int64_t saga(In<int64_t> indptr, In<int32_t> indices, In<float> values, In<double> y, In<double> share,
             In<int64_t> order, Out<double> slopes, Out<double> features, Out<double> bias, int loss,
             double parameter, double eta, double l1, double l2, bool fit_intercept) {
  Rows rows = all_rows(indptr, indices, values, features.size() / kSagaFeatureSize);
  const size_t n = static_cast<size_t>(rows.n);
  require(y.size() == n && share.size() == n && slopes.size() == n, "there must be one target a row");
  require(order.size() == n, "an epoch visits as many rows as there are");
  require(features.size() % kSagaFeatureSize == 0 && bias.size() == 2, "the state has another length");
  for (size_t q = 0; q < order.size(); ++q)
    require(0 <= order.data()[q] && order.data()[q] < rows.n, "the order names a row that is not there");
  rows.y = y.data();
  rows.order = order.data();
  rows.n = static_cast<int64_t>(order.size());
  const SagaChoices choices = {loss, parameter, eta, l1, l2, fit_intercept};
  nb::gil_scoped_release release;
  return dual_kernels().saga(rows, choices, share.data(), slopes.data(),
                             reinterpret_cast<SagaFeature*>(features.data()),
                             reinterpret_cast<SagaBias*>(bias.data()));
}

// The columns of a CSR block, as the rows of another: a counting sort.
void transpose(In<int64_t> indptr, In<int32_t> indices, In<float> values, Out<int64_t> out_indptr,
               Out<int32_t> out_indices, Out<float> out_values) {
  require(out_indptr.size() > 0, "the new indptr is empty");
  const Rows rows = all_rows(indptr, indices, values, out_indptr.size() - 1);
  const int64_t n_features = rows.n_features, first = rows.indptr[0], last = rows.indptr[rows.n];
  require(rows.n <= INT32_MAX, "there are more than 2 billion rows");
  require(static_cast<int64_t>(out_indices.size()) == last - first && out_values.size() == out_indices.size(),
          "the new arrays do not fit");
  int64_t* start = out_indptr.data();
  int32_t* row_of = out_indices.data();
  float* value_of = out_values.data();
  int64_t bad = -1;
  {
    nb::gil_scoped_release release;
    std::fill(start, start + n_features + 1, 0);
    for (int64_t e = first; e < last && bad < 0; ++e) {
      const int64_t j = rows.indices[e];
      if (j < 0 || j >= n_features)
        bad = e;
      else
        ++start[j];
    }
    if (bad < 0) {
      int64_t sum = 0;  // start[j] becomes where column j begins, then where its next entry goes
      for (int64_t j = 0; j <= n_features; ++j) sum += std::exchange(start[j], sum);
      for (int64_t i = 0; i < rows.n; ++i)
        for (int64_t e = rows.indptr[i]; e < rows.indptr[i + 1]; ++e) {
          const int64_t place = start[rows.indices[e]]++;
          row_of[place] = static_cast<int32_t>(i);
          value_of[place] = rows.values[e];
        }
      for (int64_t j = n_features; j > 0; --j) start[j] = start[j - 1];
      start[0] = 0;
    }
  }
  require(bad < 0, "a column index is out of range");
}

// The list of features to visit, and their rows, checked.
void check_columns(const Rows& columns, const In<int64_t>& set, int64_t n_rows) {
  for (size_t k = 0; k < set.size(); ++k) {
    const int64_t j = set.data()[k];
    require(0 <= j && j < columns.n, "the set names a feature that is not there");
    uint32_t largest = 0;
    for (int64_t e = columns.indptr[j]; e < columns.indptr[j + 1]; ++e)
      largest = std::max(largest, static_cast<uint32_t>(columns.indices[e]));
    require(columns.indptr[j] == columns.indptr[j + 1] || largest < static_cast<uint64_t>(n_rows),
            "a column names a row that is not there");
  }
  require(columns.n_features == n_rows, "the rows do not fit");
}

double cycle(In<int64_t> indptr, In<int32_t> indices, In<float> values, In<int64_t> set, In<double> gradient,
             In<double> diagonal, Out<double> w, Out<float> u, In<float> h, Out<double> bias,
             double bias_slope, double l1, double l2, bool fit_intercept, int cycles, double enough) {
  const Rows columns = all_rows(indptr, indices, values, u.size());
  check_columns(columns, set, static_cast<int64_t>(h.size()));
  const size_t d = static_cast<size_t>(columns.n);
  require(gradient.size() == d && diagonal.size() == d && w.size() == d,
          "there must be one number a feature");
  require(bias.size() == 1, "the bias has another length");
  const CdModel model = {gradient.data(),
                         diagonal.data(),
                         w.data(),
                         u.data(),
                         h.data(),
                         bias.data(),
                         bias_slope,
                         static_cast<int64_t>(u.size()),
                         l1,
                         l2,
                         fit_intercept};
  nb::gil_scoped_release release;
  double violation = 0;
  for (int turn = 0; turn < cycles; ++turn) {
    violation = dual_kernels().cd_cycle(columns, model, set.data(), static_cast<int64_t>(set.size()));
    if (violation <= enough) break;
  }
  return violation;
}

void diagonal(In<int64_t> indptr, In<int32_t> indices, In<float> values, In<int64_t> set, In<float> h,
              Out<double> out) {
  const Rows columns = all_rows(indptr, indices, values, h.size());
  check_columns(columns, set, static_cast<int64_t>(h.size()));
  require(static_cast<int64_t>(out.size()) == columns.n, "there must be one number a feature");
  nb::gil_scoped_release release;
  dual_kernels().cd_diagonal(columns, h.data(), set.data(), static_cast<int64_t>(set.size()), out.data());
}

}  // namespace
}  // namespace steepest

void bind_dual(nb::module_& module) {
  using namespace steepest;
  module.def("dual_sweep", &sweep, "indptr"_a, "indices"_a, "values"_a, "state"_a.noconvert(),
             "w"_a.noconvert(), "bias"_a.noconvert(), "active"_a.noconvert(), "n_active"_a, nb::kw_only(),
             "loss"_a, "parameter"_a, "bias_step"_a, "least_slope"_a, "most_slope"_a, "relax"_a, "seed"_a);
  module.def("dual_gather", &gather, "indptr"_a, "indices"_a, "values"_a, "amount"_a, "w"_a.noconvert());
  module.def("row_squares", &squares, "indptr"_a, "indices"_a, "values"_a, "squares"_a.noconvert());
  module.def("saga_epoch", &saga, "indptr"_a, "indices"_a, "values"_a, "y"_a, "share"_a, "order"_a,
             "slopes"_a.noconvert(), "features"_a.noconvert(), "bias"_a.noconvert(), nb::kw_only(), "loss"_a,
             "parameter"_a, "eta"_a, "l1"_a, "l2"_a, "fit_intercept"_a);
  module.def("transpose", &transpose, "indptr"_a, "indices"_a, "values"_a, "out_indptr"_a.noconvert(),
             "out_indices"_a.noconvert(), "out_values"_a.noconvert());
  module.def("cd_cycles", &cycle, "indptr"_a, "indices"_a, "values"_a, "set"_a, "gradient"_a, "diagonal"_a,
             "w"_a.noconvert(), "u"_a.noconvert(), "h"_a, "bias"_a.noconvert(), nb::kw_only(), "bias_slope"_a,
             "l1"_a, "l2"_a, "fit_intercept"_a, "cycles"_a, "enough"_a);
  module.def("cd_diagonal", &diagonal, "indptr"_a, "indices"_a, "values"_a, "set"_a, "h"_a,
             "diagonal"_a.noconvert());
}
