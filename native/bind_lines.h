// SPDX-License-Identifier: Apache-2.0
// How parsers of line formats take buffers from Python and give arrays back, both without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <deque>
#include <vector>

#include "lines.h"

namespace steepest {

// The bytes of any object with the buffer protocol, held as long as this lives.
class Bytes {
 public:
  explicit Bytes(nanobind::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nanobind::python_error();
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() { PyBuffer_Release(&view_); }
  const char* data() const { return static_cast<const char*>(view_.buf); }
  int64_t size() const { return static_cast<int64_t>(view_.len); }

 private:
  Py_buffer view_;
};

template <typename T>
nanobind::object to_numpy(Room<T>& array, int64_t n) {
  T* data = array.release();
  nanobind::capsule owner(data, [](void* memory) noexcept { Shelf::common().give(memory); });
  return nanobind::cast(
      nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>(data, {static_cast<size_t>(n)}, owner));
}

// The texts of a sequence of buffers, which live as long as `held`.
inline std::vector<Text> texts_of(nanobind::sequence buffers, std::deque<Bytes>& held) {
  std::vector<Text> texts;
  for (nanobind::handle buffer : buffers) {
    held.emplace_back(buffer);
    texts.push_back({held.back().data(), held.back().size()});
  }
  return texts;
}

inline nanobind::list to_tuples(const std::vector<BadLine>& bad_lines) {
  nanobind::list tuples;
  for (const BadLine& bad : bad_lines)
    tuples.append(nanobind::make_tuple(bad.text, bad.line, bad.token, bad.token_length, bad.fault));
  return tuples;
}

}  // namespace steepest
