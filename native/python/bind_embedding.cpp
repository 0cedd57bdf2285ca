// SPDX-License-Identifier: Apache-2.0
// Python names for the embedding kernels. Scoring splits rows among threads, and results are bit-identical
// for any number of them; learning does so only on request (Hogwild, or replicas).
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include "core/threads.h"
#include "embedding/embedding_table.h"
#include "python/rows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

constexpr int64_t kLeastRows = 64;  // fewer are not worth a thread

template <typename AnyTable>
Embedding embedding_of(const AnyTable& table, const AnyTable& head, const LabelTree& tree) {
  require(table.ndim() == 2 && head.ndim() == 2 && table.shape(0) > 0, "table and head need two dimensions");
  const int64_t stride = columns_in(table), n_outputs = rows_in(head);
  require(stride > 0 && stride % kVector == 0 && head.shape(1) == table.shape(1),
          "table and head need the same width, a multiple of 8");
  require(tree.n_nodes == 0 || tree.n_nodes == n_outputs, "the tree does not fit the head");
  return {const_cast<float*>(table.data()),
          const_cast<float*>(head.data()),
          rows_in(table) - 1,
          n_outputs,
          stride,
          tree};
}

// Inner nodes are n_nodes, labels one more: anything that would lead outside is refused.
void make_tree(LabelTree* self, In<int64_t> start, In<int32_t> node, In<float> side, In<int32_t> children,
               In<int32_t> top_down) {
  const int64_t n = size_of(top_down);
  require(n == 0 || size_of(children) == 2 * n, "the tree has no children");
  if (n > 0) {
    require(size_of(node) == size_of(side), "the tree has no way to a label");
    check_starts(start, n + 1, size_of(node), "the tree has no way to a label");
    check_range(node, 0, n, "a node of the tree is out of range");
    check_range(top_down, 0, n, "a node of the tree is out of range");
    check_range(children, -1 - n, n, "a child in the tree is out of range");
  }
  new (self) LabelTree{start.data(), node.data(), side.data(), children.data(), top_down.data(), n};
}

// Labels in visiting order: all of them one after the other and where each row's start, or one per row.
LabelLists targets_of(const std::optional<In<int64_t>>& start, const In<int32_t>& label, int64_t n_rows,
                      int64_t n_labels) {
  if (start)
    check_starts(*start, n_rows, size_of(label), "targets do not fit the rows");
  else
    require(size_of(label) == n_rows, "targets do not fit the rows");
  check_range(label, start ? 0 : -1, n_labels, "a target is out of range");  // -1: a row without a label
  return {start ? start->data() : nullptr, label.data()};
}

using Learned = std::tuple<int64_t, int32_t, double, double, nb::ndarray<nb::numpy, int32_t>>;

// (rows done, what became of the next one, sums of losses and weights, features learned for the first time)
Learned learn(const RowArrays& arrays, std::pair<std::optional<In<int64_t>>, In<int32_t>> targets,
              Out<float> table, Out<float> head, const LabelTree& tree, const EmbeddingChoices& choices,
              double t, int64_t n_threads) {
  const Embedding model = embedding_of(table, head, tree);
  const Rows rows = arrays.view(model.n_features);
  require((choices.loss == kHierarchical) == (tree.n_nodes > 0),
          "a tree belongs to its loss, and to no other");
  require(model.n_outputs > 0, "there is no output to learn");
  const LabelLists labels = targets_of(targets.first, targets.second, rows.n, model.n_labels());
  for (int64_t e = 0; e < choices.n_sample; ++e)
    require(choices.sample[e] < model.n_labels(), "a label to draw is out of range");
  require(choices.n_replicas == 1 || rows.n % (choices.n_replicas * choices.rows_each) == 0,
          "the rows do not fill whole rounds");
  const int64_t room = entries_in(rows) + std::max<int64_t>(n_threads, 1);
  std::unique_ptr<int32_t[]> fresh(new int32_t[room]), learned;
  EmbeddingOutcome done;
  {
    nb::gil_scoped_release release;
    done = learn_embedding({rows, labels, model, choices, t, 1.0}, n_threads, fresh.get());
    learned.reset(new int32_t[done.n_fresh]);
    std::copy_n(fresh.get(), done.n_fresh, learned.get());
  }
  return {done.rows_done, done.status, done.loss_sum, done.weight_sum,
          numpy_array(std::move(learned), done.n_fresh)};
}

int64_t scores(const RowArrays& arrays, In<float> table, In<float> head, const LabelTree& tree,
               Out<float> out, int64_t n_threads) {
  const Embedding model = embedding_of(table, head, tree);
  const Rows rows = arrays.view(model.n_features);
  require(size_of(out) == rows.n * model.n_labels(), "out has another size");
  nb::gil_scoped_release release;
  return over_rows(rows, n_threads, kLeastRows, [&](const Rows& part, int64_t first) {
    std::vector<float> scratch(model.n_scratch());
    return embedding_kernels().scores(part, model, out.data() + first * model.n_labels(), scratch.data());
  });
}

int64_t hidden(const RowArrays& arrays, In<float> table, Out<float> out, int64_t n_threads) {
  const Embedding model = embedding_of(table, table, {});
  const Rows rows = arrays.view(model.n_features);
  require(size_of(out) == rows.n * model.stride, "out has another size");
  nb::gil_scoped_release release;
  return over_rows(rows, n_threads, kLeastRows, [&](const Rows& part, int64_t first) {
    return embedding_kernels().hidden(part, model, out.data() + first * model.stride);
  });
}

}  // namespace
}  // namespace steepest

using namespace steepest;

// Arrays of these structs are kept alive, as they are.
void bind_embedding(nb::module_& module) {
  nb::class_<LabelTree>(module, "EmbeddingTree", "A binary tree whose leaves are labels.")
      .def("__init__", &make_tree, "start"_a.noconvert(), "node"_a.noconvert(), "side"_a.noconvert(),
           "children"_a.noconvert(), "top_down"_a.noconvert(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
           nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(), nb::keep_alive<1, 6>());
  nb::class_<EmbeddingChoices>(module, "EmbeddingChoices",
                               "What stays the same while embeddings are learned.")
      .def(
          "__init__",
          [](EmbeddingChoices* self, int loss, double eta0, double total, double half, int negatives,
             uint64_t seed, In<int32_t> sample, int64_t n_replicas, int64_t rows_each) {
            require(kSoftmaxLoss <= loss && loss <= kHierarchical, "the loss is unknown");
            require(n_replicas >= 1 && (n_replicas == 1 || rows_each > 0), "a replica needs rows");
            check_range(sample, 0, int64_t{1} << 31, "a label to draw is out of range");
            *self = {loss, eta0,          total,           half,       negatives,
                     seed, sample.data(), size_of(sample), n_replicas, rows_each};
          },
          nb::kw_only(), "loss"_a, "eta0"_a, "total"_a, "half"_a, "negatives"_a, "seed"_a,
          "sample"_a.noconvert(), "n_replicas"_a = 1, "rows_each"_a = 0, nb::keep_alive<1, 8>());
  module.def("embedding_learn", &learn, "rows"_a, "targets"_a, "table"_a.noconvert(), "head"_a.noconvert(),
             "tree"_a, "choices"_a, "t"_a, "n_threads"_a);
  module.def("embedding_scores", &scores, "rows"_a, "table"_a, "head"_a, "tree"_a, "out"_a.noconvert(),
             "n_threads"_a);
  module.def("embedding_hidden", &hidden, "rows"_a, "table"_a, "out"_a.noconvert(), "n_threads"_a);
}
