// SPDX-License-Identifier: Apache-2.0
// What the bindings share: arrays that come from Python, one sentence for those that do not fit, and arrays
// that go to Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>

namespace steepest {

template <typename T>
using In = nanobind::ndarray<const T, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using Out = nanobind::ndarray<T, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using List = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using Table = nanobind::ndarray<T, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
// float32 or float64
using FloatTable = nanobind::ndarray<nanobind::c_contig, nanobind::device::cpu>;
using ConstFloatTable = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;

inline void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

template <typename AnyArray>
int64_t size_of(const AnyArray& array) {
  return static_cast<int64_t>(array.size());
}

template <typename AnyArray>
int64_t rows_in(const AnyArray& table) {
  return static_cast<int64_t>(table.shape(0));
}

template <typename AnyArray>
int64_t columns_in(const AnyArray& table) {
  return static_cast<int64_t>(table.shape(1));
}

// Numbers of an array, all of them or the first n, that must lie in first .. last - 1.
template <typename AnyArray>
void check_range(const AnyArray& numbers, int64_t first, int64_t last, const char* message, int64_t n = -1) {
  for (int64_t k = 0; k < (n < 0 ? size_of(numbers) : n); ++k)
    require(first <= numbers.data()[k] && numbers.data()[k] < last, message);
}

// Where each of n lists starts among n_entries, and the end of the last.
inline void check_starts(const In<int64_t>& starts, int64_t n, int64_t n_entries, const char* message) {
  const int64_t* const s = starts.data();
  require(n >= 0 && size_of(starts) == n + 1 && s[0] >= 0 && s[n] <= n_entries, message);
  require(std::is_sorted(s, s + n + 1), message);
}

// The data of an array that must have this size; null if there is none.
template <typename Array>
auto data_of(const std::optional<Array>& array, int64_t size, const char* message) {
  require(!array || size_of(*array) == size, message);
  return array ? array->data() : nullptr;
}

// 0 for float32, 1 for float64.
template <typename AnyTable>
int float_type(const AnyTable& table) {
  if (table.dtype() == nanobind::dtype<float>()) return 0;
  require(table.dtype() == nanobind::dtype<double>(), "weights must be float32 or float64");
  return 1;
}

template <typename T>
using NumpyArray = nanobind::ndarray<nanobind::numpy, T>;

// A NumPy array that owns the data, to be freed as given.
template <typename T>
NumpyArray<T> numpy_array(T* data, std::initializer_list<size_t> shape, void (*free)(void*) noexcept) {
  return NumpyArray<T>(data, shape, nanobind::capsule(data, free));
}
template <typename T>
NumpyArray<T> numpy_array(std::unique_ptr<T[]> data, int64_t size) {
  return numpy_array(data.release(), {static_cast<size_t>(size)},
                     [](void* memory) noexcept { delete[] static_cast<T*>(memory); });
}

}  // namespace steepest
