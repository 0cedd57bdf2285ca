// SPDX-License-Identifier: Apache-2.0
// A dense matrix as sparse rows: two passes, one that counts and one that fills.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <typename T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename T>
nb::ndarray<nb::numpy, T> given_away(std::unique_ptr<T[]> data, size_t size) {
  T* const raw = data.release();
  return nb::ndarray<nb::numpy, T>(raw, {size},
                                   nb::capsule(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); }));
}

// The number of values that are not zero, or -1 if one is no finite float32.
template <typename T>
int64_t count(const T* row, size_t n) {
  int64_t filled = 0;
  bool finite = true;
  for (size_t j = 0; j < n; ++j) {
    const float x = static_cast<float>(row[j]);
    filled += x != 0;
    finite &= x - x == 0;
  }
  return finite ? filled : -1;
}

// One entry more than needed is written at the end of a row, and overwritten by the next: no branch.
template <typename T>
int64_t fill(const T* row, size_t n, int32_t* indices, float* values) {
  int64_t filled = 0;
  for (size_t j = 0; j < n; ++j) {
    const float x = static_cast<float>(row[j]);
    indices[filled] = static_cast<int32_t>(j);
    values[filled] = x;
    filled += x != 0;
  }
  return filled;
}

// (indptr, indices, values), or the number of the first row that holds NaN, infinity or more than float32
// can.
template <typename T>
nb::object sparse_rows(Matrix<T> matrix) {
  const size_t n_rows = matrix.shape(0), n_columns = matrix.shape(1);
  std::unique_ptr<int64_t[]> indptr(new int64_t[n_rows + 1]);
  std::unique_ptr<int32_t[]> indices;
  std::unique_ptr<float[]> values;
  int64_t bad = -1;
  {
    nb::gil_scoped_release release;
    indptr[0] = 0;
    for (size_t i = 0; i < n_rows && bad < 0; ++i) {
      const int64_t filled = count(matrix.data() + i * n_columns, n_columns);
      if (filled < 0) bad = static_cast<int64_t>(i);
      indptr[i + 1] = indptr[i] + filled;
    }
    if (bad < 0) {
      indices.reset(new int32_t[indptr[n_rows] + 1]);
      values.reset(new float[indptr[n_rows] + 1]);
      for (size_t i = 0; i < n_rows; ++i)
        fill(matrix.data() + i * n_columns, n_columns, indices.get() + indptr[i], values.get() + indptr[i]);
    }
  }
  if (bad >= 0) return nb::int_(bad);
  const size_t n_entries = static_cast<size_t>(indptr[n_rows]);
  return nb::make_tuple(given_away(std::move(indptr), n_rows + 1), given_away(std::move(indices), n_entries),
                        given_away(std::move(values), n_entries));
}

}  // namespace

void bind_dense(nb::module_& module) {
  module.def("sparse_rows", &sparse_rows<float>, "matrix"_a.noconvert());
  module.def("sparse_rows", &sparse_rows<double>, "matrix"_a.noconvert());
}
