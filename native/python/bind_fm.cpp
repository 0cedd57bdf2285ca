// SPDX-License-Identifier: Apache-2.0
// Python names for the loops of factorization machines. Scoring splits rows among threads, and results are
// bit-identical for any number of them.
#include <nanobind/stl/tuple.h>

#include <vector>

#include "core/threads.h"
#include "fm/fm_table.h"
#include "python/rows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

constexpr int64_t kLeastRows = 64;  // fewer are not worth a thread

// The table of all features and the numbers of the outputs, as (bias, sums of squares), which change in
// place, and (sign, shift, scale, unit of the loss, its parameter, gain).
struct FmArrays {
  Out<float> table;  // (features, outputs, stride)
  int64_t n_fields, n_factors;
  std::optional<In<int32_t>> field;
  Out<double> bias, outputs;  // (2, outputs), (6, outputs)

  FmTable view() const {
    require(table.ndim() == 3, "the table needs three dimensions");
    const int64_t n = rows_in(table), k = columns_in(table);
    require(n_fields > 0 && n_factors > 0 && n_factors < 1 << 20 && n_fields < 1 << 20,
            "a machine needs factors");
    const int64_t width = (n_factors + kFactorLanes - 1) / kFactorLanes * kFactorLanes;
    require(size_of(bias) == 2 * k && size_of(outputs) == 6 * k, "the outputs do not fit the table");
    const double* const o = outputs.data();
    FmTable t = {table.data(),    n, k,     n_fields,  n_factors, width,     nullptr,  bias.data(),
                 bias.data() + k, o, o + k, o + 2 * k, o + 3 * k, o + 4 * k, o + 5 * k};
    require(static_cast<int64_t>(table.shape(2)) == t.stride(),
            "the table does not fit its fields and factors");
    t.field = data_of(field, n, "each feature needs a field");
    require(t.field || n_fields == 1, "each feature needs a field");
    if (field) check_range(*field, 0, n_fields, "a field is out of range");
    return t;
  }
};

// Scratch for the rows that are visited.
struct OwnedScratch {
  OwnedScratch(const Rows& rows, const FmTable& table) {
    for (int64_t q = 0; q < rows.n; ++q) longest = std::max(longest, row_in_turn(rows, q).n);
    floats.resize(table.n_floats(longest));
    places.resize(table.n_places(longest));
  }
  FmScratch view() { return {floats.data(), places.data(), longest}; }

  int64_t longest = 0;
  std::vector<float> floats;
  std::vector<int32_t> places;
};

std::tuple<int64_t, int32_t, double, double> learn(const RowArrays& block, const FmArrays& arrays,
                                                   const FmChoices& choices) {
  const FmTable table = arrays.view();
  const Rows rows = choices.target_kind == kOneVsRest ? block.with_classes(table.n_features, table.n_outputs)
                                                      : block.with_targets(table.n_features, table.n_outputs);
  nb::gil_scoped_release release;
  OwnedScratch scratch(rows, table);
  const Outcome done = fm_kernels().learn(rows, choices, table, scratch.view());
  return {done.rows_done, done.status, done.loss_sum, done.weight_sum};
}

int64_t scores(const RowArrays& block, const FmArrays& arrays, const FmChoices& choices,
               const Out<double>& out, int64_t n_threads) {
  const FmTable table = arrays.view();
  const Rows rows = block.view(table.n_features);
  require(size_of(out) == rows.n * table.n_outputs, "out has another size");
  nb::gil_scoped_release release;
  return over_rows(rows, n_threads, kLeastRows, [&](const Rows& part, int64_t first) {
    OwnedScratch scratch(part, table);
    return fm_kernels().scores(part, choices, table, scratch.view(), out.data() + first * table.n_outputs);
  });
}

void start(const FmArrays& arrays, const In<int32_t>& owners, const In<int64_t>& fields, uint64_t seed,
           double size, int64_t first_row, int64_t first_field, int64_t first_output) {
  const FmTable table = arrays.view();
  require(size_of(owners) == table.n_features && size_of(fields) == table.n_fields,
          "owners and fields do not fit the table");
  require(first_row >= 0 && first_field >= 0 && first_output >= 0,
          "there is no row, field or output before 0");
  nb::gil_scoped_release release;
  fm_kernels().start(table, {seed, size, owners.data(), fields.data(), first_row, first_field, first_output});
}

}  // namespace
}  // namespace steepest

using namespace steepest;

// What is changed in place is taken as it is: a converted copy would be learned into and thrown away.
void bind_fm(nb::module_& module) {
  nb::class_<FmChoices>(module, "FmChoices", "What stays the same while a factorization machine learns.")
      .def(nb::init<int32_t, int32_t, double, double, double, double>(), nb::kw_only(), "loss"_a,
           "target_kind"_a, "eta"_a, "l2"_a, "start_square"_a, "unit"_a);
  nb::class_<FmArrays>(module, "FmArrays",
                       "What a factorization machine learns: arrays that change in place.")
      .def(nb::init<Out<float>, int64_t, int64_t, std::optional<In<int32_t>>, Out<double>, Out<double>>(),
           "table"_a.noconvert(), "n_fields"_a, "n_factors"_a, "field"_a.noconvert().none(),
           "bias"_a.noconvert(), "outputs"_a.noconvert());
  module.def("fm_learn", &learn, "rows"_a, "arrays"_a, "choices"_a);
  module.def("fm_scores", &scores, "rows"_a, "arrays"_a, "choices"_a, "out"_a.noconvert(), "n_threads"_a = 1);
  module.def("fm_start", &start, "arrays"_a, "owners"_a.noconvert(), "fields"_a.noconvert(), "seed"_a,
             "size"_a, "first_row"_a = 0, "first_field"_a = 0, "first_output"_a = 0);
}
