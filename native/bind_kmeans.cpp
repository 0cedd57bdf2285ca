// SPDX-License-Identifier: Apache-2.0
// Python names for the k-means kernels. Rows are searched in contiguous parts, one a thread, and centres are
// moved by one thread each, in the order of the rows: no result depends on the number of threads.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "bind_rows.h"
#include "kmeans_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

constexpr int64_t kLeastRows = 256;  // fewer are not worth a thread

void set_weight(Rows& rows, const std::optional<In<double>>& weight, int64_t n_rows) {
  if (!weight) return;
  require(static_cast<int64_t>(weight->size()) == n_rows, "weight does not fit the rows");
  rows.weight = weight->data();
  for (int64_t q = 0; q < rows.n; ++q) {
    const double w = rows.weight[rows.order ? rows.order[q] : q];
    require(w >= 0 && std::isfinite(w), "a weight must be finite and not negative");
  }
}

Rows part_of(const Rows& rows, int64_t first, int64_t last) {
  Rows part = rows;
  part.n = last - first;
  if (part.order) {
    part.order += first;
  } else {
    part.indptr += first;
    if (part.weight) part.weight += first;
  }
  return part;
}

struct Table {
  Centres centres;
  int64_t n_features;
};

template <typename AnyTable>
int64_t stride_of(const AnyTable& table) {
  require(table.ndim() == 2 && table.shape(1) > 0 && table.shape(1) % kLanes == 0,
          "the table needs two dimensions, the second a multiple of 8");
  return static_cast<int64_t>(table.shape(1));
}

Table table_of(const In<float>& table, const In<float>& scale, const In<float>& norm, int64_t k) {
  const int64_t stride = stride_of(table);
  require(0 < k && k <= stride, "there are more clusters than columns");
  require(static_cast<int64_t>(scale.size()) == stride && static_cast<int64_t>(norm.size()) == stride,
          "scale and norm need one entry a column");
  return {{table.data(), scale.data(), norm.data(), k, stride}, static_cast<int64_t>(table.shape(0))};
}

// Left unset, because most searches never touch the room for dense rows.
std::unique_ptr<float[]> new_scratch(const Table& table) {
  return std::unique_ptr<float[]>(new float[kmeans_scratch(table.n_features, table.centres.stride)]);
}

nb::tuple search(const Rows& rows, const Table& table, const Nearest& out, const Bounds* bounds,
                 int n_threads) {
  const int64_t parts = parts_for(rows.n, n_threads, kLeastRows);
  std::vector<std::unique_ptr<float[]>> scratch;
  for (int64_t part = 0; part < parts; ++part) scratch.push_back(new_scratch(table));
  std::vector<Searched> found(parts);
  {
    nb::gil_scoped_release release;
    run_parts(parts, [&](int64_t part) {
      const int64_t first = rows.n * part / parts, last = rows.n * (part + 1) / parts;
      const Nearest mine = {out.label + first, out.best ? out.best + first : nullptr};
      Bounds own = {};
      if (bounds) {
        own = *bounds;
        own.upper += first;
        own.lower += first;
        own.row_norm += first;
      }
      Searched& result = found[part];
      result = kmeans_kernels().nearest(part_of(rows, first, last), table.centres, mine,
                                        bounds ? &own : nullptr, scratch[part].get());
      result.rows_done = result.rows_done == last - first ? rows.n : first + result.rows_done;
    });
  }
  Searched all = {rows.n, 0, 0};
  for (const Searched& part : found) {
    all.rows_done = std::min(all.rows_done, part.rows_done);
    all.measured += part.measured;
    all.changed += part.changed;
  }
  return nb::make_tuple(all.rows_done, all.measured, all.changed);
}

nb::tuple nearest(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
                  In<float> table, In<float> scale, In<float> norm, int64_t k, Out<int32_t> label,
                  std::optional<Out<double>> best, int n_threads) {
  const Table centres = table_of(table, scale, norm, k);
  const Rows rows = visited_rows(indptr, indices, values, order, centres.n_features);
  require(static_cast<int64_t>(label.size()) == rows.n, "label has another size");
  require(!best || static_cast<int64_t>(best->size()) == rows.n, "best has another size");
  return search(rows, centres, {label.data(), best ? best->data() : nullptr}, nullptr, n_threads);
}

nb::tuple nearest_bounded(In<int64_t> indptr, In<int32_t> indices, In<float> values, In<float> table,
                          In<float> scale, In<float> norm, In<double> drift, Out<int32_t> label,
                          Out<double> upper, Out<double> lower, In<double> row_norm, int n_threads) {
  const int64_t k = static_cast<int64_t>(drift.size());
  const Table centres = table_of(table, scale, norm, k);
  const Rows rows = visited_rows(indptr, indices, values, std::nullopt, centres.n_features);
  const size_t n = static_cast<size_t>(rows.n);
  require(label.size() == n && upper.size() == n && lower.size() == n && row_norm.size() == n,
          "an array of the rows has another size");
  Bounds bounds = {upper.data(), lower.data(), row_norm.data(), drift.data(), 0, 0, 0, 0};
  for (int64_t c = 0; c < k; ++c) {
    if (drift.data()[c] > bounds.most_drift) {
      bounds.other_drift = bounds.most_drift;
      bounds.most_drift = drift.data()[c];
      bounds.fastest = c;
    } else {
      bounds.other_drift = std::max(bounds.other_drift, drift.data()[c]);
    }
    bounds.longest_norm = std::max(bounds.longest_norm, static_cast<double>(norm.data()[c]));
  }
  for (size_t q = 0; q < n; ++q) require(label.data()[q] < k, "a label is out of range");
  return search(rows, centres, {label.data(), nullptr}, &bounds, n_threads);
}

int64_t distances(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
                  In<float> table, In<float> scale, In<float> norm, int64_t k, Out<double> out,
                  int n_threads) {
  const Table centres = table_of(table, scale, norm, k);
  const Rows rows = visited_rows(indptr, indices, values, order, centres.n_features);
  require(static_cast<int64_t>(out.size()) == rows.n * k, "out has another size");
  const int64_t parts = parts_for(rows.n, n_threads, kLeastRows);
  std::vector<std::unique_ptr<float[]>> scratch;
  for (int64_t part = 0; part < parts; ++part) scratch.push_back(new_scratch(centres));
  std::vector<int64_t> stopped(parts);
  nb::gil_scoped_release release;
  run_parts(parts, [&](int64_t part) {
    const int64_t first = rows.n * part / parts, last = rows.n * (part + 1) / parts;
    const int64_t done = kmeans_kernels().distances(part_of(rows, first, last), centres.centres,
                                                    out.data() + first * k, scratch[part].get());
    stopped[part] = done == last - first ? rows.n : first + done;
  });
  return *std::min_element(stopped.begin(), stopped.end());
}

int64_t add(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<double>> weight,
            std::optional<In<int64_t>> order, In<int32_t> label, Out<float> table, Out<double> count,
            Out<double> square, int n_threads) {
  const int64_t stride = stride_of(table), k = static_cast<int64_t>(count.size());
  require(k <= stride && square.size() == count.size(), "counts and squares do not fit the table");
  Rows rows = visited_rows(indptr, indices, values, order, static_cast<int64_t>(table.shape(0)));
  set_weight(rows, weight, static_cast<int64_t>(indptr.size()) - 1);
  require(static_cast<int64_t>(label.size()) == rows.n, "label has another size");
  for (int64_t q = 0; q < rows.n; ++q)
    require(0 <= label.data()[q] && label.data()[q] < k, "a label is out of range");
  const int64_t parts = std::min(parts_for(rows.n, n_threads, kLeastRows), k);
  std::vector<int64_t> done(parts);
  nb::gil_scoped_release release;
  run_parts(parts, [&](int64_t part) {
    done[part] = kmeans_kernels().add(rows, label.data(), k * part / parts, k * (part + 1) / parts,
                                      table.data(), stride, count.data(), square.data());
  });
  return *std::min_element(done.begin(), done.end());
}

// Rows of one cluster stand together in `members`, from starts[c] to starts[c + 1]; `which` are the clusters
// to compute.
void means(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<double>> weight,
           In<int64_t> members, In<int64_t> starts, In<int64_t> which, Out<float> table, Out<double> mass,
           Out<double> norm, Out<double> drift, int n_threads) {
  const int64_t stride = stride_of(table), n_features = static_cast<int64_t>(table.shape(0));
  const int64_t k = static_cast<int64_t>(mass.size());
  require(k <= stride && norm.size() == mass.size() && drift.size() == mass.size(), "the sizes of k differ");
  require(static_cast<int64_t>(starts.size()) == k + 1, "starts needs k + 1 entries");
  Rows rows = visited_rows(indptr, indices, values, members, n_features);
  set_weight(rows, weight, static_cast<int64_t>(indptr.size()) - 1);
  for (int64_t c = 0; c < k; ++c)
    require(0 <= starts.data()[c] && starts.data()[c] <= starts.data()[c + 1], "starts must not decrease");
  require(starts.data()[k] <= rows.n, "starts do not fit the members");
  const int64_t n_which = static_cast<int64_t>(which.size());
  std::vector<bool> seen(k);
  for (int64_t n = 0; n < n_which; ++n) {
    const int64_t c = which.data()[n];
    require(0 <= c && c < k && !seen[c], "a cluster to compute is out of range or named twice");
    seen[c] = true;
  }
  const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(n_threads, n_which));
  std::vector<std::vector<double>> sums(parts, std::vector<double>(n_features));
  std::atomic<int64_t> next{0};
  nb::gil_scoped_release release;
  run_parts(parts, [&](int64_t part) {
    for (int64_t n = next++; n < n_which; n = next++) {
      const int64_t c = which.data()[n];
      const Rows mine = part_of(rows, starts.data()[c], starts.data()[c + 1]);
      const Mean found = kmeans_kernels().mean(mine, sums[part].data(), table.data(), stride, c);
      mass.data()[c] = found.weight;
      norm.data()[c] = found.norm;
      drift.data()[c] = found.drift;
    }
  });
}

}  // namespace
}  // namespace steepest

using namespace steepest;

void bind_kmeans(nb::module_& module) {
  module.attr("kmeans_lanes") = kLanes;
  module.def("kmeans_nearest", &nearest, "indptr"_a, "indices"_a, "values"_a, "order"_a.none(), "table"_a,
             "scale"_a, "norm"_a, "k"_a, "label"_a.noconvert(), "best"_a.noconvert().none(), "n_threads"_a);
  module.def("kmeans_nearest_bounded", &nearest_bounded, "indptr"_a, "indices"_a, "values"_a, "table"_a,
             "scale"_a, "norm"_a, "drift"_a, "label"_a.noconvert(), "upper"_a.noconvert(),
             "lower"_a.noconvert(), "row_norm"_a, "n_threads"_a);
  module.def("kmeans_distances", &distances, "indptr"_a, "indices"_a, "values"_a, "order"_a.none(), "table"_a,
             "scale"_a, "norm"_a, "k"_a, "out"_a.noconvert(), "n_threads"_a);
  module.def("kmeans_add", &add, "indptr"_a, "indices"_a, "values"_a, "weight"_a.none(), "order"_a.none(),
             "label"_a, "table"_a.noconvert(), "count"_a.noconvert(), "square"_a.noconvert(), "n_threads"_a);
  module.def("kmeans_means", &means, "indptr"_a, "indices"_a, "values"_a, "weight"_a.none(), "members"_a,
             "starts"_a, "which"_a, "table"_a.noconvert(), "mass"_a.noconvert(), "norm"_a.noconvert(),
             "drift"_a.noconvert(), "n_threads"_a);
}
