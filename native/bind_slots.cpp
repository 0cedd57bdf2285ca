// SPDX-License-Identifier: Apache-2.0
// Rows whose features are numbered by slots: a table of many outputs then has a row for each feature that was
// seen, one behind the other, and not for each that could be.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>

#include "compiler.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
nb::ndarray<nb::numpy, T> given_away(std::unique_ptr<T[]> data, size_t size) {
  T* const raw = data.release();
  return nb::ndarray<nb::numpy, T>(raw, {size},
                                   nb::capsule(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); }));
}

struct Placed {
  std::unique_ptr<int64_t[]> indptr;
  std::unique_ptr<int32_t[]> indices;
  std::unique_ptr<float[]> values;
  int64_t n_rows = 0;  // before the first one with an index out of range
  int64_t n_slots = 0;
};

// number[j] is the slot of feature j plus one, or 0. With `owners` a feature without a slot takes the next
// one; without, it is left out, unless its value is not finite, which the scores must show.
Placed place(const int64_t* indptr, const int32_t* indices, const float* values, const int64_t* order,
             int64_t n_visits, int32_t* number, int64_t n_features, int32_t* owners, int64_t n_slots) {
  int64_t n_entries = 0;
  for (int64_t q = 0; q < n_visits; ++q) {
    const int64_t row = order ? order[q] : q;
    n_entries += indptr[row + 1] - indptr[row];
  }
  Placed out;
  out.indptr.reset(new int64_t[n_visits + 1]);
  out.indices.reset(new int32_t[n_entries + 1]);
  out.values.reset(new float[n_entries + 1]);
  // Whether the indices of a row are in range; their numbers, which may stand anywhere, are fetched on the
  // way.
  const auto look_at = [&](int64_t q) {
    const int64_t row = order ? order[q] : q;
    for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) {
      if (static_cast<uint32_t>(indices[e]) >= static_cast<uint64_t>(n_features)) return false;
      PREFETCH(number + indices[e]);
    }
    return true;
  };
  int64_t filled = 0;
  out.indptr[0] = 0;
  bool fits = n_visits > 0 && look_at(0);
  for (int64_t q = 0; q < n_visits && fits; ++q) {
    fits = q + 1 == n_visits || look_at(q + 1);
    const int64_t row = order ? order[q] : q;
    for (int64_t e = indptr[row]; e < indptr[row + 1]; ++e) {
      int32_t& slot = number[indices[e]];
      if (slot == 0 && owners) {
        owners[n_slots] = indices[e];
        slot = static_cast<int32_t>(++n_slots);
      }
      out.indices[filled] = slot ? slot - 1 : 0;
      out.values[filled] = values[e];
      filled += slot != 0 || !std::isfinite(values[e]);
    }
    out.indptr[q + 1] = filled;
    out.n_rows = q + 1;
  }
  out.n_slots = n_slots;
  return out;
}

nb::tuple place_features(In<int64_t> indptr, In<int32_t> indices, In<float> values,
                         std::optional<In<int64_t>> order, Out<int32_t> number,
                         std::optional<Out<int32_t>> owners, int64_t n_slots) {
  const int64_t n_rows = static_cast<int64_t>(indptr.size()) - 1;
  const int64_t n_visits = order ? static_cast<int64_t>(order->size()) : n_rows;
  const int64_t n_entries = static_cast<int64_t>(indices.size());
  if (n_rows < 0 || values.size() != indices.size()) throw nb::value_error("these are no sparse rows");
  if (owners && owners->size() < number.size()) throw nb::value_error("owners is too short");
  for (int64_t q = 0; q < n_visits; ++q) {
    const int64_t row = order ? order->data()[q] : q;
    if (row < 0 || row >= n_rows || indptr.data()[row] < 0 || indptr.data()[row + 1] < indptr.data()[row] ||
        indptr.data()[row + 1] > n_entries)
      throw nb::value_error("a row is out of range");
  }
  Placed out;
  {
    nb::gil_scoped_release release;
    out =
        place(indptr.data(), indices.data(), values.data(), order ? order->data() : nullptr, n_visits,
              number.data(), static_cast<int64_t>(number.size()), owners ? owners->data() : nullptr, n_slots);
  }
  const size_t filled = static_cast<size_t>(out.indptr[out.n_rows]);
  return nb::make_tuple(given_away(std::move(out.indptr), static_cast<size_t>(out.n_rows) + 1),
                        given_away(std::move(out.indices), filled), given_away(std::move(out.values), filled),
                        out.n_slots);
}

// Numbers the different columns from 0 on as they come; returns how many there are. Room for them is asked of
// the number of indices, not of what an index may be.
int64_t number_distinct(const int32_t* indices, int64_t n, int32_t* numbers) {
  int shift = 60;
  while (int64_t{1} << (64 - shift) < 2 * n) --shift;
  const size_t mask = (size_t{1} << (64 - shift)) - 1;
  const std::unique_ptr<int32_t[]> taken(new int32_t[mask + 1]());  // number plus one
  const std::unique_ptr<int32_t[]> owners(new int32_t[n + 1]);
  int32_t n_distinct = 0;
  for (int64_t k = 0; k < n; ++k) {
    size_t place = static_cast<uint32_t>(indices[k]) * uint64_t{0x9E3779B97F4A7C15} >> shift;
    while (taken[place] && owners[taken[place] - 1] != indices[k]) place = (place + 1) & mask;
    if (!taken[place]) {
      owners[n_distinct] = indices[k];
      taken[place] = ++n_distinct;
    }
    numbers[k] = taken[place] - 1;
  }
  return n_distinct;
}

nb::tuple number_columns(In<int32_t> indices) {
  const int64_t n = static_cast<int64_t>(indices.size());
  if (n >= INT32_MAX) throw nb::value_error("these are too many indices to number at once");
  std::unique_ptr<int32_t[]> numbers(new int32_t[n + 1]);
  int64_t n_distinct = 0;
  {
    nb::gil_scoped_release release;
    n_distinct = number_distinct(indices.data(), n, numbers.get());
  }
  return nb::make_tuple(given_away(std::move(numbers), static_cast<size_t>(n)), n_distinct);
}

}  // namespace

void bind_slots(nb::module_& module) {
  module.def("number_columns", &number_columns, "indices"_a.noconvert());
  module.def("place_features", &place_features, "indptr"_a, "indices"_a, "values"_a, "order"_a.none(),
             "number"_a.noconvert(), "owners"_a.noconvert().none(), "n_slots"_a);
}
