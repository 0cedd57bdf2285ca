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

using Elements = nb::ndarray<nb::ro, nb::ndim<1>, nb::device::cpu>;  // with any step between them
using InElements = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
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

template <typename Array>
void check_mask(const Array& mask, int64_t n) {
  require(size_of(mask) == mask_size(n), "the mask has another size");
}

int64_t mark(Elements elements, Out<uint8_t> mask, int64_t n_threads) {
  const int64_t n = size_of(elements);
  check_mask(mask, n);
  nb::gil_scoped_release release;
  by_step(elements, [&](auto found, auto) { mark_nonzeros(found, n, mask.data(), n_threads); });
  return MaskParts(mask.data(), mask_size(n), n_threads).total();
}

void pick(Elements elements, In<uint8_t> mask, OutElements values, int64_t n_threads) {
  const int64_t n = size_of(elements);
  check_mask(mask, n);
  require(values.itemsize() == elements.itemsize(), "values and elements differ in type");
  nb::gil_scoped_release release;
  const MaskParts parts(mask.data(), mask_size(n), n_threads);
  require(parts.total() == size_of(values), "the mask does not fit the values");
  require(n % 8 == 0 || mask.data()[n / 8] >> n % 8 == 0, "the mask has bits beyond the last element");
  by_step(elements, [&](auto found, auto zero) {
    pick_nonzeros(found, mask.data(), parts, static_cast<decltype(zero)*>(values.data()));
  });
}

void places(In<uint8_t> mask, OutElements places, int64_t n_threads) {
  require(places.itemsize() == 4 || places.itemsize() == 8, "places must have 4 or 8 bytes");
  nb::gil_scoped_release release;
  const MaskParts parts(mask.data(), size_of(mask), n_threads);
  require(parts.total() == size_of(places), "the mask does not fit the places");
  if (places.itemsize() == 4) return list_places(mask.data(), parts, static_cast<int32_t*>(places.data()));
  list_places(mask.data(), parts, static_cast<int64_t*>(places.data()));
}

// Whether the mask fits the values; elements are written only if it does.
bool spread(In<uint8_t> mask, InElements values, OutElements elements, int64_t n_threads) {
  const int64_t n = size_of(elements);
  check_mask(mask, n);
  require(values.itemsize() == elements.itemsize(), "values and elements differ in type");
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
  module.def("list_places", &places, "mask"_a.noconvert(), "places"_a.noconvert(), "n_threads"_a = 1);
  module.def("spread_nonzeros", &spread, "mask"_a.noconvert(), "values"_a.noconvert(),
             "elements"_a.noconvert(), "n_threads"_a = 1);
}
