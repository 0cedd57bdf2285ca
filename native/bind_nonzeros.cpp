// SPDX-License-Identifier: Apache-2.0
// Python names for arrays that are mostly zero.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "bind_arrays.h"
#include "nonzeros.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

using Elements = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutElements = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Calls work with a pointer of the type that has as many bytes as an element.
template <typename Work>
void by_width(size_t width, Work work) {
  if (width == 1) return work(uint8_t{});
  if (width == 2) return work(uint16_t{});
  if (width == 4) return work(uint32_t{});
  require(width == 8, "elements must have 1, 2, 4 or 8 bytes");
  work(uint64_t{});
}

template <typename Array>
void check_mask(const Array& mask, int64_t n) {
  require(size_of(mask) == mask_size(n), "the mask has another size");
}

void check_width(const Elements& values, size_t width) {
  require(values.itemsize() == width, "values and elements differ in type");
}

int64_t mark(Elements elements, Out<uint8_t> mask, int64_t n_threads) {
  const int64_t n = size_of(elements);
  check_mask(mask, n);
  int64_t total = 0;
  nb::gil_scoped_release release;
  by_width(elements.itemsize(), [&](auto zero) {
    mark_nonzeros(static_cast<const decltype(zero)*>(elements.data()), n, mask.data(), n_threads);
    total = MaskParts(mask.data(), mask_size(n), n_threads).total();
  });
  return total;
}

void pick(Elements elements, In<uint8_t> mask, OutElements values, int64_t n_threads) {
  const int64_t n = size_of(elements);
  check_mask(mask, n);
  require(values.itemsize() == elements.itemsize(), "values and elements differ in type");
  nb::gil_scoped_release release;
  const MaskParts parts(mask.data(), mask_size(n), n_threads);
  require(parts.total() == size_of(values), "the mask does not fit the values");
  require(n % 8 == 0 || mask.data()[n / 8] >> n % 8 == 0, "the mask has bits beyond the last element");
  by_width(elements.itemsize(), [&](auto zero) {
    using T = decltype(zero);
    pick_nonzeros(static_cast<const T*>(elements.data()), mask.data(), parts, static_cast<T*>(values.data()));
  });
}

// Whether the mask fits the values; elements are written only if it does.
bool spread(In<uint8_t> mask, Elements values, OutElements elements, int64_t n_threads) {
  const int64_t n = size_of(elements);
  check_mask(mask, n);
  check_width(values, elements.itemsize());
  nb::gil_scoped_release release;
  const MaskParts parts(mask.data(), mask_size(n), n_threads);
  if (parts.total() != size_of(values)) return false;
  if (n % 8 != 0 && mask.data()[n / 8] >> n % 8 != 0) return false;
  by_width(elements.itemsize(), [&](auto zero) {
    using T = decltype(zero);
    spread_nonzeros(static_cast<const T*>(values.data()), mask.data(), parts,
                    static_cast<T*>(elements.data()), n);
  });
  return true;
}

}  // namespace
}  // namespace steepest

using namespace steepest;

void bind_nonzeros(nb::module_& module) {
  module.def("mark_nonzeros", &mark, "elements"_a.noconvert(), "mask"_a.noconvert(), "n_threads"_a = 1);
  module.def("pick_nonzeros", &pick, "elements"_a.noconvert(), "mask"_a.noconvert(), "values"_a.noconvert(),
             "n_threads"_a = 1);
  module.def("spread_nonzeros", &spread, "mask"_a.noconvert(), "values"_a.noconvert(),
             "elements"_a.noconvert(), "n_threads"_a = 1);
}
