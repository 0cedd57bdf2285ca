// SPDX-License-Identifier: Apache-2.0
// Texts of Python as the kernels see them, and arrays that are handed to Python without a copy.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bind_arrays.h"
#include "text.h"

namespace nb = nanobind;

namespace steepest {

template <typename T>
using List = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using OutList = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Result = nb::ndarray<nb::numpy, T>;

template <typename T>
Result<T> hand_over(T* data, std::initializer_list<size_t> shape) {
  nb::capsule owner(data, [](void* memory) noexcept { free(memory); });
  return Result<T>(data, shape, owner);
}

template <typename T>
T* new_array(size_t n) {
  T* const data = static_cast<T*>(malloc(std::max<size_t>(n, 1) * sizeof(T)));
  if (!data) throw std::bad_alloc();
  return data;
}

template <typename T>
Result<T> copied(const std::vector<T>& from) {
  T* const data = new_array<T>(from.size());
  std::copy(from.begin(), from.end(), data);
  return hand_over(data, {from.size()});
}

// The objects that own the bytes while a kernel reads them without the interpreter's lock.
using Owners = std::vector<nb::object>;

inline Span span_of_str(PyObject* item, Owners& owners) {
  Py_ssize_t size;
  if (const char* data = PyUnicode_AsUTF8AndSize(item, &size))
    return {reinterpret_cast<const uint8_t*>(data), size};
  // Lone surrogates cannot be written as UTF-8; written all the same, they are invalid and separate words.
  PyErr_Clear();
  PyObject* const encoded = PyUnicode_AsEncodedString(item, "utf-8", "surrogatepass");
  if (!encoded) throw nb::python_error();
  owners.push_back(nb::steal(encoded));
  char* bytes;
  if (PyBytes_AsStringAndSize(encoded, &bytes, &size)) throw nb::python_error();
  return {reinterpret_cast<const uint8_t*>(bytes), size};
}

inline bool is_missing(PyObject* item) {
  if (item == Py_None) return true;
  return PyFloat_Check(item) && PyFloat_AsDouble(item) != PyFloat_AsDouble(item);
}

inline Span span_of(PyObject* item, size_t row, Owners& owners) {
  if (PyUnicode_Check(item)) return span_of_str(item, owners);
  if (PyBytes_Check(item)) {
    char* bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(item, &bytes, &size)) throw nb::python_error();
    return {reinterpret_cast<const uint8_t*>(bytes), size};
  }
  if (is_missing(item)) return {nullptr, 0};
  throw nb::type_error(("row " + std::to_string(row) + " is no text").c_str());
}

inline std::vector<Span> spans_of_list(nb::list list, Owners& owners) {
  // A tuple of our own: another thread may change the list while its strings are read.
  nb::object items = nb::steal(PySequence_Tuple(list.ptr()));
  if (!items.is_valid()) throw nb::python_error();
  owners.push_back(items);
  const size_t n = static_cast<size_t>(PyTuple_Size(items.ptr()));
  std::vector<Span> spans(n);
  for (size_t i = 0; i < n; ++i)
    spans[i] = span_of(PyTuple_GetItem(items.ptr(), static_cast<Py_ssize_t>(i)), i, owners);
  return spans;
}

template <typename Offset>
Texts texts_in_buffers(List<uint8_t> data, const List<Offset>& offsets,
                       const std::optional<List<uint8_t>>& valid) {
  require(offsets.size() > 0, "offsets must hold one number more than there are texts");
  const size_t n = offsets.size() - 1;
  require(!valid || valid->size() == n, "valid must hold one flag a text");
  const Offset* const at = offsets.data();
  require(at[0] >= 0 && static_cast<uint64_t>(at[n]) <= data.size(), "offsets reach beyond the data");
  bool ordered = true;  // told in the end, so that the loop can take several at once
  for (size_t i = 0; i < n; ++i) ordered &= at[i] <= at[i + 1];
  require(ordered, "offsets must not decrease");
  // A pointer that is not null even where there are no bytes: an empty text is not a missing one.
  static const uint8_t nothing = 0;
  Texts texts;
  texts.bytes = data.size() ? data.data() : &nothing;
  texts.valid = valid ? valid->data() : nullptr;
  texts.n = static_cast<int64_t>(n);
  return texts;
}

inline Texts texts_in_parts(nb::tuple parts) {
  require(parts.size() == 3, "texts must be a list, or (data, offsets, valid)");
  const auto data = nb::cast<List<uint8_t>>(parts[0], false);
  const auto valid = nb::cast<std::optional<List<uint8_t>>>(parts[2], false);
  List<int32_t> narrow;
  if (nb::try_cast(parts[1], narrow, false)) {
    Texts texts = texts_in_buffers(data, narrow, valid);
    texts.narrow = narrow.data();
    return texts;
  }
  const auto wide = nb::cast<List<int64_t>>(parts[1], false);
  Texts texts = texts_in_buffers(data, wide, valid);
  texts.wide = wide.data();
  return texts;
}

// What they are read from stays alive with the owners.
inline Texts texts_of(nb::object values, Owners& owners) {
  Texts texts;
  if (nb::isinstance<nb::list>(values)) {
    texts.spans = spans_of_list(nb::cast<nb::list>(values), owners);
    texts.n = static_cast<int64_t>(texts.spans.size());
  } else {
    owners.push_back(values);
    texts = texts_in_parts(nb::cast<nb::tuple>(values));
  }
  for (int64_t i = 0; i < texts.n; ++i)
    if (texts.at(i).size > kLongestDocument)
      throw std::invalid_argument("row " + std::to_string(i) + " is longer than 1 GiB; split it");
  return texts;
}

}  // namespace steepest
