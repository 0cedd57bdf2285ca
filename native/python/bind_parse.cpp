// SPDX-License-Identifier: Apache-2.0
// Python names of the parsers of line formats. They take buffers and give arrays, both without a copy.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "parse/libsvm.h"
#include "parse/vw.h"
#include "python/arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

// The bytes of any object with the buffer protocol, held as long as this lives.
class Bytes {
 public:
  explicit Bytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() { PyBuffer_Release(&view_); }
  Text text() const { return {static_cast<const char*>(view_.buf), static_cast<int64_t>(view_.len)}; }

 private:
  Py_buffer view_;
};

template <typename Options, typename Rows>
void parse(nb::sequence buffers, const Options& options, Rows& rows,
           void (*parse_texts)(const std::vector<Text>&, const Options&, Rows&)) {
  std::deque<Bytes> held;
  std::vector<Text> texts;
  for (nb::handle buffer : buffers) texts.push_back(held.emplace_back(buffer).text());
  nb::gil_scoped_release release;
  parse_texts(texts, options, rows);
}

template <typename T>
nb::object to_numpy(PooledArray<T>& array, int64_t n) {
  return nb::cast(numpy_array(array.release(), {static_cast<size_t>(n)},
                              [](void* memory) noexcept { BlockPool::common().give(memory); }));
}

// (indptr, indices, values, y or None, the optional column or None)
template <typename T>
nb::tuple arrays_of(ParsedRows& rows, const LineOptions& options, OptionalColumn<T>& column) {
  return nb::make_tuple(to_numpy(rows.indptr, rows.n_rows + 1), to_numpy(rows.indices, rows.n_entries),
                        to_numpy(rows.values, rows.n_entries),
                        options.with_labels ? to_numpy(rows.y, rows.n_rows) : nb::none(),
                        column.is_used ? to_numpy(column.values, rows.n_rows) : nb::none());
}

// (rows of each buffer, bad lines of each buffer, the first ones)
nb::tuple lines_of(const ParsedRows& rows) {
  nb::list bad_lines;
  for (const BadLine& bad : rows.bad)
    bad_lines.append(nb::make_tuple(bad.text, bad.line, bad.token, bad.token_length, bad.fault));
  return nb::make_tuple(rows.text_rows, rows.text_bad, bad_lines);
}

nb::tuple libsvm(nb::sequence buffers, bool zero_based, bool with_labels, bool skip_bad, int64_t n_features) {
  const LibsvmOptions options = {
      {with_labels, skip_bad}, zero_based, std::clamp<int64_t>(n_features, 0, INT32_MAX)};
  LibsvmRows rows;
  parse(buffers, options, rows, parse_libsvm);
  return nb::tuple(arrays_of(rows, options, rows.groups) + nb::make_tuple(rows.n_features) + lines_of(rows));
}

nb::tuple vw(nb::sequence buffers, int n_bits, bool is_signed, bool with_labels, bool skip_bad, uint64_t seed,
             std::vector<int64_t> log_from, std::vector<std::pair<std::string, std::string>> crosses) {
  if (n_bits < 1 || n_bits > 30) throw nb::value_error("n_bits must be a whole number from 1 to 30");
  const VwOptions options = {{with_labels, skip_bad}, n_bits, is_signed, seed, std::move(crosses),
                             std::move(log_from)};
  VwRows rows;
  parse(buffers, options, rows, parse_vw);
  return nb::tuple(arrays_of(rows, options, rows.weights) + lines_of(rows) +
                   nb::make_tuple(std::move(rows.names)));
}

}  // namespace
}  // namespace steepest

void bind_parse(nb::module_& module) {
  module.def(
      "parse_libsvm", &steepest::libsvm, "buffers"_a, "zero_based"_a, "with_labels"_a, "skip_bad"_a,
      "n_features"_a = INT32_MAX,
      "Buffers of libsvm lines as (indptr, indices, values, y or None, qid or None, n_features seen, "
      "rows of each buffer, bad lines of each buffer, the first three of each as [(buffer, line offset, "
      "token offset, token length, fault)]). Without skip_bad reading ends at the first bad line.");
  module.def(
      "parse_vw", &steepest::vw, "buffers"_a, "n_bits"_a, "signed"_a, "with_labels"_a, "skip_bad"_a, "seed"_a,
      "log_from"_a = std::vector<int64_t>(), "crosses"_a = std::vector<std::pair<std::string, std::string>>(),
      "Buffers of Vowpal Wabbit lines as (indptr, indices, values, y or None, importances or None if "
      "no line has one, rows of each buffer, bad lines of each buffer, the first three of each as "
      "[(buffer, line offset, token offset, token length, fault)], the names of features). Without "
      "skip_bad reading ends at the first bad line. `log_from` holds for each buffer the number of its "
      "first row, or -1 if no names are requested; `crosses` holds pairs of namespaces.");
}
