// SPDX-License-Identifier: Apache-2.0
// Python names for the embedding kernels. Scoring splits rows among threads, with the same bits for any
// number of them; learning does so only on request (Hogwild), and then threads overwrite each other's work
// now and then.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "bind_rows.h"
#include "embedding_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

constexpr int64_t kLeastRows = 64;  // fewer are not worth a thread

template <typename AnyTable, typename AnyHead>
Embedding embedding_of(const AnyTable& table, const AnyHead& head, int64_t n_outputs) {
  require(table.ndim() == 2 && head.ndim() == 2 && table.shape(0) > 0, "table and head need two dimensions");
  const int64_t stride = static_cast<int64_t>(table.shape(1));
  require(stride > 0 && stride % kVector == 0 && static_cast<int64_t>(head.shape(1)) == stride,
          "table and head need the same width, a multiple of 8");
  require(0 <= n_outputs && n_outputs <= static_cast<int64_t>(head.shape(0)), "the head has fewer rows");
  Embedding model = {};
  model.table = const_cast<float*>(table.data());
  model.head = const_cast<float*>(head.data());
  model.n_features = static_cast<int64_t>(table.shape(0)) - 1;
  model.n_outputs = n_outputs;
  model.stride = stride;
  return model;
}

void set_weight(Rows& rows, const std::optional<In<double>>& weight, int64_t n_rows) {
  if (!weight) return;
  require(size_of(*weight) == n_rows, "weight does not fit the rows");
  rows.weight = weight->data();
  for (int64_t q = 0; q < rows.n; ++q) {
    const double w = rows.weight[rows.order ? rows.order[q] : q];
    require(w >= 0 && std::isfinite(w), "a weight must be finite and not negative");
  }
}

Targets targets_of(const std::optional<In<int64_t>>& start, const In<int32_t>& target, int64_t n_rows,
                   int64_t n_labels) {
  const int64_t n = size_of(target);
  require(start ? size_of(*start) == n_rows + 1 : n == n_rows, "targets do not fit the rows");
  if (start) {
    const int64_t* const s = start->data();
    require(s[0] >= 0 && s[n_rows] <= n, "targets do not fit the rows");
    for (int64_t i = 0; i < n_rows; ++i) require(s[i] <= s[i + 1], "target starts must not decrease");
  }
  const int32_t least = start ? 0 : -1;  // -1: a row without a label
  for (int64_t e = 0; e < n; ++e)
    require(least <= target.data()[e] && target.data()[e] < n_labels, "a target is out of range");
  return {start ? start->data() : nullptr, target.data()};
}

// Inner nodes are n_nodes, labels one more: anything that would lead outside is refused.
Tree tree_of(const In<int64_t>& start, const In<int32_t>& node, const In<float>& side,
             const In<int32_t>& children, const In<int32_t>& top_down, int64_t n_outputs) {
  Tree tree = {};
  tree.n_nodes = size_of(top_down);
  if (tree.n_nodes == 0) return tree;
  require(tree.n_nodes == n_outputs && size_of(children) == 2 * tree.n_nodes,
          "the tree does not fit the head");
  require(size_of(start) == tree.n_nodes + 2 && size_of(node) == size_of(side),
          "the tree has no way to a label");
  for (int64_t l = 0; l <= tree.n_nodes; ++l)
    require(0 <= start.data()[l] && start.data()[l] <= start.data()[l + 1] &&
                start.data()[l + 1] <= size_of(node),
            "the tree has no way to a label");
  for (int64_t e = 0; e < size_of(node); ++e)
    require(0 <= node.data()[e] && node.data()[e] < tree.n_nodes, "a node of the tree is out of range");
  for (int64_t n = 0; n < tree.n_nodes; ++n)
    require(0 <= top_down.data()[n] && top_down.data()[n] < tree.n_nodes,
            "a node of the tree is out of range");
  for (int64_t n = 0; n < 2 * tree.n_nodes; ++n)
    require(-1 - tree.n_nodes <= children.data()[n] && children.data()[n] < tree.n_nodes,
            "a child in the tree is out of range");
  tree.start = start.data();
  tree.node = node.data();
  tree.side = side.data();
  tree.children = children.data();
  tree.top_down = top_down.data();
  return tree;
}

nb::tuple told(const EmbeddingOutcome& done) {
  return nb::make_tuple(done.rows_done, done.status, done.loss_sum, done.weight_sum, done.n_fresh);
}

nb::tuple learn(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<double>> weight,
                std::optional<In<int64_t>> order, std::optional<In<int64_t>> target_start,
                In<int32_t> targets, Out<float> table, Out<float> head, int64_t n_outputs,
                In<int64_t> way_start, In<int32_t> way_node, In<float> way_side, In<int32_t> children,
                In<int32_t> top_down, In<int32_t> sample, int loss, double eta0, double total, double half,
                int negatives, uint64_t seed, double t, Out<int32_t> fresh, int n_threads, int64_t n_replicas,
                int64_t rows_each) {
  const Embedding model = embedding_of(table, head, n_outputs);
  Rows rows = visited_rows(indptr, indices, values, order);
  const int64_t n_rows = size_of(indptr) - 1;
  set_weight(rows, weight, n_rows);
  const Tree tree = tree_of(way_start, way_node, way_side, children, top_down, n_outputs);
  require(kSoftmaxLoss <= loss && loss <= kHierarchical, "the loss is unknown");
  const int64_t n_labels = loss == kHierarchical ? tree.n_nodes + 1 : n_outputs;
  require(loss == kHierarchical || n_outputs > 0, "there is no output to learn");
  require(loss != kHierarchical || tree.n_nodes > 0, "a tree needs two labels");
  const Targets known = targets_of(target_start, targets, rows.n, n_labels);
  for (int64_t e = 0; e < size_of(sample); ++e)
    require(0 <= sample.data()[e] && sample.data()[e] < n_labels, "a label to draw is out of range");
  const EmbeddingRule rule = {loss, eta0, total, half, negatives, seed, sample.data(), size_of(sample)};
  if (n_replicas > 1) {
    require(rows_each > 0 && rows.n % (n_replicas * rows_each) == 0, "the rows do not fill whole rounds");
    require(size_of(fresh) >= entries_of(rows, 0, rows.n), "fresh is too small");
    nb::gil_scoped_release release;
    const EmbeddingOutcome done = learn_embedding_replicas(rows, known, model, tree, rule, t, n_replicas,
                                                           rows_each, n_threads, fresh.data());
    nb::gil_scoped_acquire acquire;
    return told(done);
  }
  const int64_t parts = parts_for(rows.n, n_threads, kLeastRows);
  require(size_of(fresh) >= entries_of(rows, 0, rows.n) + parts, "fresh is too small");
  std::vector<EmbeddingOutcome> done(parts);
  std::vector<int64_t> room(parts);
  {
    nb::gil_scoped_release release;
    const int64_t n_scratch = embedding_scratch(n_outputs, model.stride);
    std::vector<float> scratch(parts * n_scratch);
    for (int64_t p = 1; p < parts; ++p)
      room[p] = room[p - 1] + 1 + entries_of(rows, rows.n * (p - 1) / parts, rows.n * p / parts);
    run_parts(parts, [&](int64_t p) {
      const int64_t first = rows.n * p / parts, last = rows.n * (p + 1) / parts;
      const EmbeddingPart mine = part_of(rows, known, first, last);
      // Parts run side by side, so their steps fall as if rows were dealt out in turn.
      done[p] = embedding_kernels().learn(mine.rows, mine.targets, model, tree, rule,
                                          t + static_cast<double>(p), static_cast<double>(parts),
                                          scratch.data() + p * n_scratch, fresh.data() + room[p]);
    });
  }
  EmbeddingOutcome all = {rows.n, kFine, 0, 0, 0};
  for (int64_t p = 0; p < parts; ++p) {
    if (done[p].status != kFine && all.status == kFine) {
      all.status = done[p].status;
      all.rows_done = rows.n * p / parts + done[p].rows_done;
    }
    all.loss_sum += done[p].loss_sum;
    all.weight_sum += done[p].weight_sum;
    std::copy_n(fresh.data() + room[p], done[p].n_fresh, fresh.data() + all.n_fresh);
    all.n_fresh += done[p].n_fresh;
  }
  return told(all);
}

// Runs `score(part, first row, scratch)` over parts of the rows; returns the rows done.
template <typename Score>
int64_t over_parts(const Rows& rows, int64_t n_scratch, int n_threads, Score score) {
  const int64_t parts = parts_for(rows.n, n_threads, kLeastRows);
  std::vector<int64_t> stopped(parts);
  nb::gil_scoped_release release;
  std::vector<float> scratch(parts * n_scratch);
  run_parts(parts, [&](int64_t p) {
    const int64_t first = rows.n * p / parts, last = rows.n * (p + 1) / parts;
    const int64_t done = score(part_of(rows, {}, first, last).rows, first, scratch.data() + p * n_scratch);
    stopped[p] = done == last - first ? rows.n : first + done;
  });
  return *std::min_element(stopped.begin(), stopped.end());
}

int64_t scores(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
               In<float> table, In<float> head, int64_t n_outputs, In<int64_t> way_start,
               In<int32_t> way_node, In<float> way_side, In<int32_t> children, In<int32_t> top_down,
               Out<float> out, int n_threads) {
  const Embedding model = embedding_of(table, head, n_outputs);
  const Rows rows = visited_rows(indptr, indices, values, order);
  const Tree tree = tree_of(way_start, way_node, way_side, children, top_down, n_outputs);
  const int64_t n_out = tree.n_nodes ? tree.n_nodes + 1 : n_outputs;
  require(size_of(out) == rows.n * n_out, "out has another size");
  return over_parts(rows, embedding_scratch(n_outputs, model.stride), n_threads,
                    [&](const Rows& part, int64_t first, float* scratch) {
                      return embedding_kernels().scores(part, model, tree, out.data() + first * n_out,
                                                        scratch);
                    });
}

int64_t hidden(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<int64_t>> order,
               In<float> table, Out<float> out, int n_threads) {
  const Embedding model = embedding_of(table, table, 0);
  const Rows rows = visited_rows(indptr, indices, values, order);
  require(size_of(out) == rows.n * model.stride, "out has another size");
  return over_parts(rows, 0, n_threads, [&](const Rows& part, int64_t first, float*) {
    return embedding_kernels().hidden(part, model, out.data() + first * model.stride);
  });
}

}  // namespace
}  // namespace steepest

using namespace steepest;

void bind_embedding(nb::module_& module) {
  module.def("embedding_learn", &learn, "indptr"_a, "indices"_a, "values"_a, "weight"_a.none(),
             "order"_a.none(), "target_start"_a.none(), "targets"_a, "table"_a.noconvert(),
             "head"_a.noconvert(), "n_outputs"_a, "way_start"_a, "way_node"_a, "way_side"_a, "children"_a,
             "top_down"_a, "sample"_a, "loss"_a, "eta0"_a, "total"_a, "half"_a, "negatives"_a, "seed"_a,
             "t"_a, "fresh"_a.noconvert(), "n_threads"_a, "n_replicas"_a = 1, "rows_each"_a = 0);
  module.def("embedding_scores", &scores, "indptr"_a, "indices"_a, "values"_a, "order"_a.none(), "table"_a,
             "head"_a, "n_outputs"_a, "way_start"_a, "way_node"_a, "way_side"_a, "children"_a, "top_down"_a,
             "out"_a.noconvert(), "n_threads"_a);
  module.def("embedding_hidden", &hidden, "indptr"_a, "indices"_a, "values"_a, "order"_a.none(), "table"_a,
             "out"_a.noconvert(), "n_threads"_a);
}
