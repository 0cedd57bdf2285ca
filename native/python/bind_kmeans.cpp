// SPDX-License-Identifier: Apache-2.0
// Python names for the k-means kernels. Rows are searched in contiguous parts, one per thread, and centres
// are moved by one thread each, in the order of the rows: no result depends on the number of threads.
#include <nanobind/stl/tuple.h>

#include "core/threads.h"
#include "kmeans/kmeans_table.h"
#include "python/rows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

constexpr int64_t kLeastRows = 256;  // fewer are not worth a thread

template <typename AnyTable>
int64_t stride_of(const AnyTable& table) {
  require(table.ndim() == 2 && table.shape(1) > 0 && table.shape(1) % kLanes == 0,
          "the table needs two dimensions, the second a multiple of 8");
  return columns_in(table);
}

// Centres of Python: the arrays are kept, as they are.
void make_centres(Centres* self, In<float> table, In<float> scale, In<float> norm, int64_t k) {
  const int64_t stride = stride_of(table);
  require(0 < k && k <= stride, "there are more clusters than columns");
  require(size_of(scale) == stride && size_of(norm) == stride, "scale and norm need one entry per column");
  const int64_t n_features = rows_in(table);
  new (self) Centres{table.data(), scale.data(), norm.data(), n_features, k, stride};
}

// Left unset, because most searches never touch the room for dense rows.
std::unique_ptr<float[]> new_scratch(const Centres& centres) {
  return std::unique_ptr<float[]>(new float[kTileRows * (centres.n_features + centres.stride)]);
}

// Upper and lower bounds, the squared length of each row, and how far each centre has moved.
using BoundArrays = std::tuple<Out<double>, Out<double>, In<double>, In<double>>;

Bounds bounds_of(const BoundArrays& arrays, const Centres& centres, int64_t n_rows) {
  const auto& [upper, lower, row_norm, drift] = arrays;
  require(size_of(upper) == n_rows && size_of(lower) == n_rows && size_of(row_norm) == n_rows &&
              size_of(drift) == centres.k,
          "the bounds do not fit the rows and centres");
  Bounds bounds = {upper.data(), lower.data(), row_norm.data(), drift.data(), 0, 0, 0, 0};
  for (int64_t c = 0; c < centres.k; ++c) {
    if (bounds.drift[c] > bounds.most_drift) {
      bounds.other_drift = bounds.most_drift;
      bounds.most_drift = bounds.drift[c];
      bounds.fastest = c;
    } else {
      bounds.other_drift = std::max(bounds.other_drift, bounds.drift[c]);
    }
    bounds.longest_norm = std::max(bounds.longest_norm, static_cast<double>(centres.norm[c]));
  }
  return bounds;
}

std::tuple<int64_t, int64_t, int64_t> nearest(const RowArrays& arrays, const Centres& centres,
                                              Out<int32_t> label, std::optional<Out<double>> best,
                                              std::optional<BoundArrays> bounds, int64_t n_threads) {
  const Rows rows = arrays.view(centres.n_features);
  require(size_of(label) == rows.n, "label has another size");
  const Nearest out = {label.data(), data_of(best, rows.n, "best has another size")};
  Bounds all = {};
  if (bounds) all = bounds_of(*bounds, centres, rows.n);
  if (bounds) check_range(label, INT32_MIN, centres.k, "a label is out of range");
  nb::gil_scoped_release release;
  const int64_t parts = parts_for(rows.n, n_threads, kLeastRows);
  std::vector<Searched> found(parts);
  Searched total = {};
  total.rows_done = parallel_rows(rows, parts, [&](const Rows& part, int64_t first, int64_t p) {
    Bounds own = all;
    if (bounds) {
      own.upper += first;
      own.lower += first;
      own.row_norm += first;
    }
    found[p] =
        kmeans_kernels().nearest(part, centres, {out.label + first, out.best ? out.best + first : nullptr},
                                 bounds ? &own : nullptr, new_scratch(centres).get());
    return found[p].rows_done;
  });
  for (const Searched& part : found) {
    total.measured += part.measured;
    total.changed += part.changed;
  }
  return {total.rows_done, total.measured, total.changed};
}

int64_t distances(const RowArrays& arrays, const Centres& centres, Out<double> out, int64_t n_threads) {
  const Rows rows = arrays.view(centres.n_features);
  require(size_of(out) == rows.n * centres.k, "out has another size");
  nb::gil_scoped_release release;
  return over_rows(rows, n_threads, kLeastRows, [&](const Rows& part, int64_t first) {
    return kmeans_kernels().distances(part, centres, out.data() + first * centres.k,
                                      new_scratch(centres).get());
  });
}

int64_t add(const RowArrays& arrays, In<int32_t> label, Out<float> table, Out<double> count,
            Out<double> square, int64_t n_threads) {
  const ClusterSums sums = {table.data(), stride_of(table), count.data(), square.data()};
  const int64_t k = size_of(count);
  require(k <= sums.stride && size_of(square) == k, "counts and squares do not fit the table");
  const Rows rows = arrays.view(rows_in(table));
  require(size_of(label) == rows.n, "label has another size");
  check_range(label, 0, k, "a label is out of range");
  const int64_t parts = std::min(parts_for(rows.n, n_threads, kLeastRows), k);
  std::vector<int64_t> done(parts);
  nb::gil_scoped_release release;
  parallel_for(parts, parts, [&](int64_t p) {
    done[p] = kmeans_kernels().add(rows, label.data(), k * p / parts, k * (p + 1) / parts, sums);
  });
  return *std::min_element(done.begin(), done.end());
}

// Rows of one cluster are visited together, from starts[c] to starts[c + 1]; `which` are the clusters to
// compute.
void means(const RowArrays& arrays, In<int64_t> starts, In<int64_t> which, Out<float> table, Out<double> mass,
           Out<double> norm, Out<double> drift, int64_t n_threads) {
  const int64_t stride = stride_of(table), n_features = rows_in(table);
  const int64_t k = size_of(mass), *const start = starts.data();
  require(k <= stride && size_of(norm) == k && size_of(drift) == k, "the sizes of k differ");
  const Rows rows = arrays.view(n_features);
  check_starts(starts, k, rows.n, "starts must not decrease, and fit the members");
  std::vector<bool> seen(k);
  for (int64_t n = 0; n < size_of(which); ++n) {
    const int64_t c = which.data()[n];
    require(0 <= c && c < k && !seen[c], "a cluster to compute is out of range or named twice");
    seen[c] = true;
  }
  nb::gil_scoped_release release;
  std::vector<std::vector<double>> sums(std::max<int64_t>(1, n_threads));
  parallel_for(size_of(which), n_threads, [&](int64_t n, int64_t thread) {
    const int64_t c = which.data()[n];
    sums[thread].resize(n_features);
    const Mean found = kmeans_kernels().mean(slice(rows, start[c], start[c + 1]), sums[thread].data(),
                                             table.data(), stride, c);
    mass.data()[c] = found.weight;
    norm.data()[c] = found.norm;
    drift.data()[c] = found.drift;
  });
}

}  // namespace
}  // namespace steepest

using namespace steepest;

void bind_kmeans(nb::module_& module) {
  module.attr("kmeans_lanes") = kLanes;
  nb::class_<Centres>(module, "KMeansCentres", "Centres scale[c] * table[:, c] with their squared lengths.")
      .def("__init__", &make_centres, "table"_a.noconvert(), "scale"_a.noconvert(), "norm"_a.noconvert(),
           "k"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>());
  module.def("kmeans_nearest", &nearest, "rows"_a, "centres"_a, "label"_a.noconvert(),
             "best"_a.noconvert().none(), "bounds"_a.noconvert().none(), "n_threads"_a);
  module.def("kmeans_distances", &distances, "rows"_a, "centres"_a, "out"_a.noconvert(), "n_threads"_a);
  module.def("kmeans_add", &add, "rows"_a, "label"_a, "table"_a.noconvert(), "count"_a.noconvert(),
             "square"_a.noconvert(), "n_threads"_a);
  module.def("kmeans_means", &means, "rows"_a, "starts"_a, "which"_a, "table"_a.noconvert(),
             "mass"_a.noconvert(), "norm"_a.noconvert(), "drift"_a.noconvert(), "n_threads"_a);
}
