// SPDX-License-Identifier: Apache-2.0
// Python names for the factorization kernels. But for pieces without locks, results never depend on how many
// threads there are: blocks that share a row or column are learned in the order given, and everything else is
// computed row by row. Sizes are checked here; numbers of rows are checked by the kernels. Structs of Python
// hold pointers into arrays, which `keep_alive` keeps; arrays are taken as they are, since a converted copy
// would not be kept.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <limits>

#include "core/threads.h"
#include "factors/factor_blocks.h"
#include "python/arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

template <typename AnyTable>
FactorTables tables_of(const AnyTable& users, const AnyTable& items) {
  const int64_t length = columns_in(users);
  require(length > kTail && length % 8 == 0, "a row must hold factors by eights and a tail of eight");
  require(users.shape(1) == items.shape(1), "users and items differ in the number of factors");
  return {const_cast<float*>(users.data()), const_cast<float*>(items.data()), rows_in(users), rows_in(items),
          length - kTail};
}

void init(Table<float> table, int64_t first, int64_t rank, uint64_t seed, float scale) {
  const FactorTables t = tables_of(table, table);
  require(0 <= first && first <= t.n_users && 0 < rank && rank <= t.padded,
          "the rows to fill do not fit the table");
  nb::gil_scoped_release release;
  start_factors(t.users, first, t.n_users, t.padded + kTail, rank, seed, scale);
}

// ---------------------------------------------------------------------------------------------------- blocks

Entries entries_of(const In<int32_t>& users, const In<int32_t>& items, const In<float>& values,
                   const std::optional<In<float>>& weights) {
  const int64_t n = size_of(users);
  require(size_of(items) == n && size_of(values) == n, "the entries differ in length");
  return {users.data(), items.data(), values.data(), data_of(weights, n, "the entries differ in length"), n};
}

// A side of the matrix: the row of each code, and the first row of each stripe.
using Side = std::pair<In<int32_t>, In<int64_t>>;

using Packed = std::tuple<NumpyArray<int32_t>, NumpyArray<int32_t>, NumpyArray<float>,
                          std::optional<NumpyArray<float>>, NumpyArray<int64_t>>;

Packed pack(In<int32_t> users, In<int32_t> items, In<float> values, std::optional<In<float>> weights,
            Side user_stripes, Side item_stripes, uint64_t seed, int64_t before) {
  const Entries entries = entries_of(users, items, values, weights);
  const auto stripes = [](const Side& side) -> Stripes {
    return {side.first.data(), side.second.data(), size_of(side.first), size_of(side.second) - 1};
  };
  const Stripes by_user = stripes(user_stripes), by_item = stripes(item_stripes);
  const int64_t n = entries.n, n_offsets = by_user.d * by_user.d + 1;
  require(by_user.d >= 1 && by_item.d == by_user.d, "the bounds do not fit");
  std::unique_ptr<int32_t[]> out_users(new int32_t[n]), out_items(new int32_t[n]);
  std::unique_ptr<float[]> out_values(new float[n]), out_weights(weights ? new float[n] : nullptr);
  std::unique_ptr<int64_t[]> offsets(new int64_t[n_offsets]);
  {
    nb::gil_scoped_release release;
    pack_blocks(entries, by_user, by_item, seed, before,
                {out_users.get(), out_items.get(), out_values.get(), out_weights.get(), offsets.get()});
  }
  std::optional<NumpyArray<float>> packed_weights;
  if (weights) packed_weights = numpy_array(std::move(out_weights), n);
  return {numpy_array(std::move(out_users), n), numpy_array(std::move(out_items), n),
          numpy_array(std::move(out_values), n), packed_weights, numpy_array(std::move(offsets), n_offsets)};
}

void make_blocks(FactorBlocks* self, In<int32_t> users, In<int32_t> items, In<float> values,
                 std::optional<In<float>> weights, In<int64_t> offsets, In<int64_t> user_bounds,
                 In<int64_t> item_bounds) {
  const Entries entries = entries_of(users, items, values, weights);
  const int64_t d = size_of(user_bounds) - 1, most = std::numeric_limits<int32_t>::max();
  require(d >= 1, "the bounds of the stripes do not fit");
  for (const In<int64_t>& bounds : {user_bounds, item_bounds})
    check_starts(bounds, d, most, "the bounds of the stripes do not fit");
  check_starts(offsets, d * d, entries.n, "the offsets are not those of d x d blocks of the entries");
  *self = {entries, offsets.data(), user_bounds.data(), item_bounds.data(), d};
}

ItemLists lists_of(const In<int64_t>& indptr, const In<int32_t>& items, int64_t n) {
  check_starts(indptr, n, size_of(items), "indptr does not fit the lists of items");
  return {indptr.data(), items.data()};
}

using Liked = std::optional<std::tuple<In<int64_t>, In<int32_t>, uint64_t>>;

// Learns the blocks of a schedule, those that share a stripe in its order, whatever the number of threads.
// Or, if a piece has a size, pieces of the only block, each by whichever thread is free: threads share the
// tables without locks (Niu et al. 2011), so that results of several threads differ from run to run. Losses
// come by the place in the schedule. Returns the worst status.
int32_t learn(const FactorBlocks& blocks, In<int32_t> schedule, Table<float> users, Table<float> items,
              const FactorChoices& choices, Out<double> losses, int64_t n_threads, Liked liked,
              int64_t piece) {
  const FactorTables tables = tables_of(users, items);
  require(choices.rank > 0 && choices.rank <= tables.padded, "the rank does not fit the tables");
  require(!choices.block_steps || !choices.proximal(), "steps of a block allow no l1 and no floor at zero");
  require(blocks.user_bounds[blocks.d] <= tables.n_users && blocks.item_bounds[blocks.d] <= tables.n_items,
          "the bounds of the stripes do not fit");
  require(piece >= 0 && (piece == 0 || blocks.d == 1), "threads without locks need the entries in one block");
  require(piece == 0 || !choices.block_steps, "threads without locks take steps at every visit");
  const int64_t n_parts = piece ? blocks.pieces_of(piece) : blocks.d * blocks.d;
  check_range(schedule, 0, n_parts, "the schedule names a block that is not there");
  require(losses.size() == schedule.size(), "losses needs one place per block");
  ItemLists lists = {};
  if (liked) lists = lists_of(std::get<0>(*liked), std::get<1>(*liked), tables.n_users);
  std::atomic<int32_t> status{kFine};
  const auto learn_part = [&](int64_t at) {
    const int32_t number = schedule.data()[at];
    FactorBlock block = piece ? blocks.piece(number * piece, piece) : blocks.block(number);
    if (liked) {
      block.liked = &lists;
      block.seed = splitmix64(std::get<2>(*liked) ^ splitmix64(static_cast<uint64_t>(number)));
    }
    const FactorOutcome outcome = factor_kernels().learn(block, tables, choices);
    losses.data()[at] = outcome.loss_sum;
    if (outcome.status != kFine) status = outcome.status;
  };
  const int64_t threads = std::max<int64_t>(n_threads, 1), workers = std::min(threads, blocks.d);
  nb::gil_scoped_release release;
  if (piece) {
    parallel_for(size_of(schedule), threads, [&](int64_t at, int64_t) {
      if (status == kFine) learn_part(at);
    });
    return status;
  }
  Turns turns(schedule.data(), size_of(schedule), blocks.d);
  parallel_for(workers, workers, [&](int64_t) {
    for (int64_t at = turns.take(); at >= 0; at = turns.take()) {
      learn_part(at);
      turns.done(at, status != kFine);
    }
  });
  return status;
}

// ----------------------------------------------------------------------------------------------- alternating

// Parts of `size` items, taken by whichever thread is free; work(first, last, thread) returns the first item
// that it could not do, or last. Returns the first item of all that was not done, or n.
template <typename Work>
int64_t in_pieces(int64_t n, int64_t size, int64_t n_threads, const Work& work) {
  std::atomic<int64_t> bad{n};
  parallel_for((n + size - 1) / size, n_threads, [&](int64_t part, int64_t thread) {
    const int64_t last = std::min(n, (part + 1) * size), done = work(part * size, last, thread);
    if (done < last) bad = done;
  });
  return bad;
}

int64_t score_pairs(In<int32_t> users, In<int32_t> items, Table<const float> user_table,
                    Table<const float> item_table, float mean, Out<float> out, int64_t n_threads) {
  const int64_t n = size_of(users);
  require(size_of(items) == n && size_of(out) == n, "users, items and scores differ in length");
  const FactorTables tables = tables_of(user_table, item_table);
  nb::gil_scoped_release release;
  return in_pieces(n, 1 << 14, n_threads, [&](int64_t first, int64_t last, int64_t) {
    const Entries part = {users.data() + first, items.data() + first, nullptr, nullptr, last - first};
    return first + factor_kernels().pairs(part, tables, mean, out.data() + first);
  });
}

void make_side(FactorSide* self, In<int64_t> indptr, In<int32_t> indices, In<float> values,
               std::optional<In<float>> weights, Table<const float> other, Table<float> solved) {
  const int64_t n = rows_in(solved), padded = columns_in(other);
  const int64_t n_other = rows_in(other), n_entries = size_of(indices);
  const float* const w = data_of(weights, n_entries, "indices and weights differ in length");
  require(size_of(values) == n_entries, "indices and values differ in length");
  check_starts(indptr, n, n_entries, "indptr does not fit the rows and entries");
  require(padded > 0 && padded % 8 == 0 && solved.shape(1) == other.shape(1),
          "the factors do not fit each other");
  *self = {indptr.data(), indices.data(), values.data(), w, other.data(), n_other, padded, solved.data(), n};
}

constexpr int64_t kRowsAtOnce = 64;

int64_t solve_als(const FactorSide& side, In<float> ridge, std::optional<In<float>> gram,
                  const AlsChoices& choices, int64_t n_threads) {
  require(0 < choices.rank && choices.rank <= side.padded, "the rank does not fit the factors");
  require(-1 <= choices.bias_at && choices.bias_at < choices.rank, "the bias is not one of the unknowns");
  require(size_of(ridge) == side.n, "ridge needs one number per row");
  require(gram || !choices.zeros, "where zeros count, the gram must be given");
  const AlsTask task = {side, choices, ridge.data(),
                        data_of(gram, side.padded * side.padded, "gram does not fit the factors")};
  nb::gil_scoped_release release;
  std::vector<std::vector<float>> scratch(std::max<int64_t>(n_threads, 1));
  return in_pieces(side.n, kRowsAtOnce, n_threads, [&](int64_t first, int64_t last, int64_t thread) {
    scratch[thread].resize(side.padded * (side.padded + 4));
    return factor_kernels().als(task, first, last, scratch[thread].data());
  });
}

// The losses are summed part by part in the order of the rows, whoever computes them.
std::pair<int64_t, double> solve_kl(const FactorSide& side, In<float> sums, int steps, bool with_loss,
                                    int64_t n_threads) {
  require(size_of(sums) == side.padded, "the sums do not fit the factors");
  const KlTask task = {side, sums.data(), steps};
  nb::gil_scoped_release release;
  std::vector<std::vector<float>> scratch(std::max<int64_t>(n_threads, 1));
  std::vector<double> losses(side.n / kRowsAtOnce + 1);
  const int64_t bad =
      in_pieces(side.n, kRowsAtOnce, n_threads, [&](int64_t first, int64_t last, int64_t thread) {
        scratch[thread].resize(side.padded);
        return factor_kernels().kl(task, first, last, scratch[thread].data(),
                                   with_loss ? &losses[first / kRowsAtOnce] : nullptr);
      });
  double loss = 0;
  for (const double part : losses) loss += part;
  return {bad, loss};
}

// X' X, summed over parts of fixed size in their order.
void sum_squares(Table<const float> rows, Out<float> out, int64_t n_threads) {
  const int64_t n = rows_in(rows), padded = columns_in(rows);
  require(padded % 8 == 0 && size_of(out) == padded * padded, "the squares do not fit");
  constexpr int64_t kPart = 4096;
  nb::gil_scoped_release release;
  std::vector<std::vector<float>> parts((n + kPart - 1) / kPart);
  in_pieces(n, kPart, n_threads, [&](int64_t first, int64_t last, int64_t) {
    parts[first / kPart].resize(padded * padded);
    factor_kernels().gram(rows.data(), first, last, padded, parts[first / kPart].data());
    return last;
  });
  for (int64_t i = 0; i < padded; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      double total = 0;
      for (const std::vector<float>& part : parts) total += part[i * padded + j];
      out.data()[i * padded + j] = out.data()[j * padded + i] = static_cast<float>(total);
    }
}

// ------------------------------------------------------------------------------------------------------- top

void best_items(Table<const float> users, Table<const float> items, In<float> bias,
                std::optional<std::pair<In<int64_t>, In<int32_t>>> excluded, Table<float> scores,
                Out<int32_t> best, int64_t n_threads) {
  const int64_t n_users = rows_in(users), padded = columns_in(users);
  const int64_t k = columns_in(scores), n_items = rows_in(items);
  require(items.shape(1) == users.shape(1) && padded > 0 && padded % 8 == 0,
          "users and items differ in the number of factors");
  require(size_of(bias) == n_items, "bias needs one number per item");
  require(k > 0 && scores.shape(0) == users.shape(0) && best.size() == scores.size(),
          "scores and best do not fit the users");
  require(n_items < std::numeric_limits<int32_t>::max(), "there are too many items");
  ItemLists lists = {};
  if (excluded) lists = lists_of(excluded->first, excluded->second, n_users);
  nb::gil_scoped_release release;
  const int64_t n_padded = (n_items + 15) / 16 * 16;
  std::vector<float> panels(n_padded * padded), padded_bias(n_padded);
  std::copy_n(bias.data(), n_items, padded_bias.data());
  for (int64_t i = 0; i < n_items; ++i)
    for (int64_t f = 0; f < padded; ++f)
      panels[(i / 16 * padded + f) * 16 + i % 16] = items.data()[i * padded + f];
  const TopTask task = {users.data(), panels.data(), padded_bias.data(), lists,      k,
                        n_items,      padded,        scores.data(),      best.data()};
  in_pieces(n_users, 256, n_threads, [&](int64_t first, int64_t last, int64_t) {
    factor_kernels().top(task, first, last);
    return last;
  });
}

}  // namespace
}  // namespace steepest

using namespace steepest;

void bind_factors(nb::module_& module) {
  nb::class_<FactorChoices>(module, "FactorChoices")
      .def(nb::init<int32_t, float, float, float, float, float, int32_t, bool, bool, bool, bool>(),
           nb::kw_only(), "loss"_a, "mean"_a, "eta"_a, "l2"_a, "l2_bias"_a, "l1"_a, "rank"_a, "adaptive"_a,
           "block_steps"_a, "biases"_a, "nonnegative"_a);
  nb::class_<AlsChoices>(module, "AlsChoices")
      .def(nb::init<int32_t, int32_t, int32_t, float, bool, bool>(), nb::kw_only(), "rank"_a,
           "cg_steps"_a = 0, "bias_at"_a = -1, "bias_ridge"_a = 0.0f, "nonnegative"_a = false,
           "zeros"_a = false);
  nb::class_<FactorBlocks>(module, "FactorBlocks")
      .def("__init__", &make_blocks, "users"_a.noconvert(), "items"_a.noconvert(), "values"_a.noconvert(),
           "weights"_a.noconvert().none(), "offsets"_a.noconvert(), "user_bounds"_a.noconvert(),
           "item_bounds"_a.noconvert(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
           nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(), nb::keep_alive<1, 6>(), nb::keep_alive<1, 7>(),
           nb::keep_alive<1, 8>());
  nb::class_<FactorSide>(module, "FactorSide")
      .def("__init__", &make_side, "indptr"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert(),
           "weights"_a.noconvert().none(), "other"_a.noconvert(), "solved"_a.noconvert(),
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(),
           nb::keep_alive<1, 6>(), nb::keep_alive<1, 7>());
  module.def("factor_init", &init, "table"_a.noconvert(), "first"_a, "rank"_a, "seed"_a, "scale"_a);
  module.def("factor_pack", &pack, "users"_a, "items"_a, "values"_a, "weights"_a.none(), "user_stripes"_a,
             "item_stripes"_a, "seed"_a, "before"_a = 0);
  module.def("factor_learn", &learn, "blocks"_a, "schedule"_a, "users"_a.noconvert(), "items"_a.noconvert(),
             "choices"_a, "losses"_a.noconvert(), "n_threads"_a, "liked"_a.none() = nb::none(),
             "piece"_a = 0);
  module.def("factor_pairs", &score_pairs, "users"_a, "items"_a, "user_table"_a, "item_table"_a, "mean"_a,
             "scores"_a.noconvert(), "n_threads"_a);
  module.def("factor_als", &solve_als, "side"_a, "ridge"_a, "gram"_a.none(), "choices"_a, "n_threads"_a);
  module.def("factor_kl", &solve_kl, "side"_a, "sums"_a, "steps"_a, "with_loss"_a, "n_threads"_a);
  module.def("factor_gram", &sum_squares, "rows"_a, "gram"_a.noconvert(), "n_threads"_a);
  module.def("factor_top", &best_items, "users"_a, "items"_a, "bias"_a, "excluded"_a.none(),
             "scores"_a.noconvert(), "best"_a.noconvert(), "n_threads"_a);
}
