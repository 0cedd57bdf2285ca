// SPDX-License-Identifier: Apache-2.0
// The Python name of the libsvm parser. The arrays it returns own the parser's memory; nothing is copied.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bind_lines.h"
#include "libsvm.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

nb::tuple parse(nb::sequence buffers, bool zero_based, bool with_labels, bool skip_bad, int64_t n_features) {
  std::deque<Bytes> held;
  const std::vector<Text> texts = texts_of(buffers, held);
  const LibsvmOptions options = {zero_based, with_labels, skip_bad,
                                 std::clamp<int64_t>(n_features, 0, INT32_MAX)};
  LibsvmRows rows;
  {
    nb::gil_scoped_release release;
    parse_libsvm(texts, options, rows);
  }
  return nb::make_tuple(to_numpy(rows.indptr, rows.n_rows + 1), to_numpy(rows.indices, rows.n_entries),
                        to_numpy(rows.values, rows.n_entries),
                        with_labels ? to_numpy(rows.y, rows.n_rows) : nb::none(),
                        rows.has_groups ? to_numpy(rows.groups, rows.n_rows) : nb::none(), rows.n_features,
                        rows.text_rows, rows.text_bad, to_tuples(rows.bad));
}

}  // namespace
}  // namespace steepest

void bind_libsvm(nb::module_& module) {
  module.def(
      "parse_libsvm", &steepest::parse, "buffers"_a, "zero_based"_a, "with_labels"_a, "skip_bad"_a,
      "n_features"_a = INT32_MAX,
      "Buffers of libsvm lines as (indptr, indices, values, y or None, qid or None, n_features seen, rows of "
      "each buffer, bad lines of each buffer, the first three of each as [(buffer, line offset, token "
      "offset, "
      "token length, fault)]). Without skip_bad reading ends at the first bad line.");
}
