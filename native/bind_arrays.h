// SPDX-License-Identifier: Apache-2.0
// What the bindings share: arrays that come from Python, and one sentence for those that do not fit.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>

namespace steepest {

template <typename T>
using In = nanobind::ndarray<const T, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using Out = nanobind::ndarray<T, nanobind::c_contig, nanobind::device::cpu>;
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

// 0 for float32, 1 for float64.
template <typename AnyTable>
int float_type(const AnyTable& table) {
  if (table.dtype() == nanobind::dtype<float>()) return 0;
  require(table.dtype() == nanobind::dtype<double>(), "weights must be float32 or float64");
  return 1;
}

}  // namespace steepest
