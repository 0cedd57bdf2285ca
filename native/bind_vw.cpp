// SPDX-License-Identifier: Apache-2.0
// The Python name of the Vowpal Wabbit parser. The arrays it returns own the parser's memory; nothing is
// copied.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "bind_lines.h"
#include "vw.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

nb::tuple parse(nb::sequence buffers, int n_bits, bool is_signed, bool with_labels, bool skip_bad,
                uint64_t seed, std::vector<int64_t> log_from) {
  if (n_bits < 1 || n_bits > 30) throw nb::value_error("n_bits must be a whole number from 1 to 30");
  std::deque<Bytes> held;
  const std::vector<Text> texts = texts_of(buffers, held);
  const VwOptions options = {n_bits, is_signed, with_labels, skip_bad, seed, std::move(log_from)};
  VwRows rows;
  {
    nb::gil_scoped_release release;
    parse_vw(texts, options, rows);
  }
  return nb::make_tuple(to_numpy(rows.indptr, rows.n_rows + 1), to_numpy(rows.indices, rows.n_entries),
                        to_numpy(rows.values, rows.n_entries),
                        with_labels ? to_numpy(rows.y, rows.n_rows) : nb::none(),
                        rows.has_weights ? to_numpy(rows.weights, rows.n_rows) : nb::none(), rows.text_rows,
                        rows.text_bad, to_tuples(rows.bad), nb::cast(std::move(rows.names)));
}

}  // namespace
}  // namespace steepest

void bind_vw(nb::module_& module) {
  module.def(
      "parse_vw", &steepest::parse, "buffers"_a, "n_bits"_a, "signed"_a, "with_labels"_a, "skip_bad"_a,
      "seed"_a, "log_from"_a = std::vector<int64_t>(),
      "Buffers of Vowpal Wabbit lines as (indptr, indices, values, y or None, importances or None if no "
      "line has one, rows of each buffer, bad lines of each buffer, the first three of each as [(buffer, "
      "line offset, token offset, token length, fault)], the names of features). Without skip_bad reading "
      "ends "
      "at the first bad line. `log_from` holds for each buffer the number of its first row, or -1 if no "
      "names "
      "are wanted.");
}
