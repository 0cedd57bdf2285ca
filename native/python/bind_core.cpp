// SPDX-License-Identifier: Apache-2.0
// Python names for sparse rows, what they are made of, and arrays that are mostly zero.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>

#include <csignal>
#include <limits>
#include <tuple>
#include <variant>

#ifndef _WIN32
#include <unistd.h>
#endif

#include "core/convert.h"
#include "core/nonzeros.h"
#include "python/rows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

// -------------------------------------------------------------------------------------------------------
// rows

// (indptr, indices, values)
using Arrays = std::tuple<NumpyArray<int64_t>, NumpyArray<int32_t>, NumpyArray<float>>;

Arrays arrays_of(OwnedRows rows) {
  const int64_t n_entries = rows.indptr[rows.n];
  return {numpy_array(std::move(rows.indptr), rows.n + 1), numpy_array(std::move(rows.indices), n_entries),
          numpy_array(std::move(rows.values), n_entries)};
}

// Calls work without the GIL.
template <typename Work>
auto released(const Work& work) {
  nb::gil_scoped_release release;
  return work();
}

Arrays place(const RowArrays& block, const In<int32_t>& slots, bool keep) {
  const Rows rows = block.view(size_of(slots));
  return arrays_of(released([&] { return place_features(rows, slots.data(), keep); }));
}

std::pair<NumpyArray<int32_t>, int64_t> number_by_slots(const In<int32_t>& indices, const Out<int32_t>& slots,
                                                        const Out<int32_t>& owners, int64_t n_slots) {
  const int64_t n = size_of(indices);
  require(
      n_slots >= 0 && n_slots <= size_of(owners) && size_of(owners) >= std::min(size_of(slots), n_slots + n),
      "owners is too short");
  std::unique_ptr<int32_t[]> placed(new int32_t[n + 1]);
  released([&] {
    number_features(indices.data(), n, slots.data(), size_of(slots), owners.data(), size_of(owners), n_slots,
                    placed.get());
    return 0;
  });
  return {numpy_array(std::move(placed), n), n_slots};
}

std::pair<NumpyArray<int32_t>, int64_t> number(const In<int32_t>& indices) {
  const int64_t n = size_of(indices);
  require(n < std::numeric_limits<int32_t>::max(), "these are too many indices to number at once");
  std::unique_ptr<int32_t[]> numbers(new int32_t[n + 1]);
  const int64_t n_distinct = released([&] { return number_columns(indices.data(), n, numbers.get()); });
  return {numpy_array(std::move(numbers), n), n_distinct};
}

// The arrays, or the number of the first row that holds NaN, infinity or more than float32 can.
template <typename T>
std::variant<int64_t, Arrays> from_dense(const Table<const T>& matrix) {
  int64_t bad = -1;
  OwnedRows rows =
      released([&] { return sparse_rows(matrix.data(), rows_in(matrix), columns_in(matrix), bad); });
  if (bad >= 0) return bad;
  return arrays_of(std::move(rows));
}

Arrays columns_of(const RowArrays& block, int64_t n_features) {
  const Rows rows = block.view(n_features);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  require(0 <= n_features && n_features <= kMost && rows.n <= kMost,
          "there are more than 2 billion rows or features");
  return arrays_of(released([&] {
    for (int64_t q = 0; q < rows.n; ++q)
      require(indices_fit(row_in_turn(rows, q), n_features), "a column index is out of range");
    return transpose(rows);
  }));
}

// ------------------------------------------------------------------------------------------ arrays of zeros

using Elements = nb::ndarray<nb::ro, nb::ndim<1>, nb::device::cpu>;  // with any step between them
using InElements = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutElements = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Calls work with a zero of the type that has as many bytes as an element.
template <typename Work>
void by_width(size_t width, Work work) {
  if (width == 1) return work(uint8_t{});
  if (width == 2) return work(uint16_t{});
  if (width == 4) return work(uint32_t{});
  require(width == 8, "elements must have 1, 2, 4 or 8 bytes");
  work(uint64_t{});
}

// Calls work with the elements as such a type, side by side or not.
template <typename Work>
void by_step(const Elements& elements, Work work) {
  by_width(elements.itemsize(), [&](auto zero) {
    using T = decltype(zero);
    const T* const first = static_cast<const T*>(elements.data());
    if (elements.shape(0) < 2 || elements.stride(0) == 1) return work(Dense<T>{first}, zero);
    work(Spaced<T>{first, elements.stride(0)}, zero);
  });
}

// The mask of n elements.
template <typename Mask>
auto* mask_of(const Mask& mask, int64_t n) {
  require(size_of(mask) == mask_size(n), "the mask has another size");
  return mask.data();
}

bool has_bits_beyond(const uint8_t* mask, int64_t n) { return n % 8 != 0 && mask[n / 8] >> n % 8 != 0; }

int64_t mark(const Elements& elements, const Out<uint8_t>& mask, int64_t n_threads) {
  const int64_t n = size_of(elements);
  uint8_t* const bits = mask_of(mask, n);
  nb::gil_scoped_release release;
  by_step(elements, [&](auto found, auto) { mark_nonzeros(found, n, bits, n_threads); });
  return MaskParts(bits, mask_size(n), n_threads).total();
}

void pick(const Elements& elements, const In<uint8_t>& mask, const OutElements& values, int64_t n_threads) {
  const int64_t n = size_of(elements);
  const uint8_t* const bits = mask_of(mask, n);
  require(values.itemsize() == elements.itemsize(), "values and elements differ in type");
  nb::gil_scoped_release release;
  const MaskParts parts(bits, mask_size(n), n_threads);
  require(parts.total() == size_of(values), "the mask does not fit the values");
  require(!has_bits_beyond(bits, n), "the mask has bits beyond the last element");
  by_step(elements, [&](auto found, auto zero) {
    pick_nonzeros(found, bits, parts, static_cast<decltype(zero)*>(values.data()));
  });
}

void places(const In<uint8_t>& mask, const OutElements& places, int64_t n_threads) {
  require(places.itemsize() == 4 || places.itemsize() == 8, "places must have 4 or 8 bytes");
  nb::gil_scoped_release release;
  const MaskParts parts(mask.data(), size_of(mask), n_threads);
  require(parts.total() == size_of(places), "the mask does not fit the places");
  if (places.itemsize() == 4) return list_places(mask.data(), parts, static_cast<int32_t*>(places.data()));
  list_places(mask.data(), parts, static_cast<int64_t*>(places.data()));
}

// Whether the mask fits the values; elements are written only if it does.
bool spread(const In<uint8_t>& mask, const InElements& values, const OutElements& elements,
            int64_t n_threads) {
  const int64_t n = size_of(elements);
  const uint8_t* const bits = mask_of(mask, n);
  require(values.itemsize() == elements.itemsize(), "values and elements differ in type");
  nb::gil_scoped_release release;
  const MaskParts parts(bits, mask_size(n), n_threads);
  if (parts.total() != size_of(values) || has_bits_beyond(bits, n)) return false;
  by_width(elements.itemsize(), [&](auto zero) {
    using T = decltype(zero);
    spread_nonzeros(static_cast<const T*>(values.data()), bits, parts, static_cast<T*>(elements.data()), n);
  });
  return true;
}

// -------------------------------------------------------------------------------------------------------
// mapped files

#ifdef SIGBUS
void say_and_end(int) {
  static const char said[] =
      "steepest: a file that is mapped into memory cannot be read any more (bus error); do not overwrite or "
      "shorten files while they are read, replace them by renaming\n";
  if (write(STDERR_FILENO, said, sizeof said - 1) < 0) _exit(1);  // nobody listens
  _exit(1);
}
#endif

// For the shell: a page of a mapped file that has gone ends the process with a sentence and status 1.
void end_on_lost_pages() {
#ifdef SIGBUS
  std::signal(SIGBUS, say_and_end);
#endif
}

}  // namespace
}  // namespace steepest

using namespace steepest;

void bind_core(nb::module_& module) {
  module.def("end_on_lost_pages", &end_on_lost_pages);
  nb::class_<RowArrays>(module, "Rows", "Sparse rows, checked once: a CSR block and the order of its visits.")
      .def(nb::init<In<int64_t>, In<int32_t>, In<float>, std::optional<In<double>>, std::optional<In<double>>,
                    std::optional<In<int64_t>>, std::optional<In<double>>>(),
           "indptr"_a, "indices"_a, "values"_a, "y"_a = nb::none(), "weight"_a = nb::none(),
           "order"_a = nb::none(), "time"_a = nb::none())
      .def_prop_ro("n_rows", &RowArrays::n_rows, "Rows of the block.")
      .def_prop_ro("n_visits", &RowArrays::n_visits, "Rows to visit, in their order.");
  module.def("place_features", &place, "rows"_a, "slots"_a.noconvert(), "keep"_a = false);
  module.def("number_features", &number_by_slots, "indices"_a.noconvert(), "slots"_a.noconvert(),
             "owners"_a.noconvert(), "n_slots"_a);
  module.def("number_columns", &number, "indices"_a.noconvert());
  module.def("sparse_rows", &from_dense<float>, "matrix"_a.noconvert());
  module.def("sparse_rows", &from_dense<double>, "matrix"_a.noconvert());
  module.def("transpose", &columns_of, "rows"_a, "n_features"_a);
  module.def("mark_nonzeros", &mark, "elements"_a.noconvert(), "mask"_a.noconvert(), "n_threads"_a = 1);
  module.def("pick_nonzeros", &pick, "elements"_a.noconvert(), "mask"_a.noconvert(), "values"_a.noconvert(),
             "n_threads"_a = 1);
  module.def("list_places", &places, "mask"_a.noconvert(), "places"_a.noconvert(), "n_threads"_a = 1);
  module.def("spread_nonzeros", &spread, "mask"_a.noconvert(), "values"_a.noconvert(),
             "elements"_a.noconvert(), "n_threads"_a = 1);
}
