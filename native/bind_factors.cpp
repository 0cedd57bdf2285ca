// SPDX-License-Identifier: Apache-2.0
// Python names for the factorization kernels, and the threads that run them. Results never depend on how many
// threads there are: blocks that share a row or column are learned in the order given, and everything else is
// computed row by row. Sizes are checked here; numbers of rows are checked by the kernels.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "bind_arrays.h"
#include "factor_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

using Rows = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ConstRows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// work(thread) in n_threads threads, this one among them.
void run_threads(int n_threads, const std::function<void(int)>& work) {
  std::vector<std::thread> others;
  for (int thread = 1; thread < n_threads; ++thread) {
    try {
      others.emplace_back(work, thread);
    } catch (const std::system_error&) {  // no more threads to be had: the others do it all
      break;
    }
  }
  work(0);
  for (std::thread& other : others) other.join();
}

// Parts of a fixed size, taken by whichever thread is free; work(thread, first, last).
void run_parts(int64_t n, int64_t part, int n_threads,
               const std::function<void(int, int64_t, int64_t)>& work) {
  std::atomic<int64_t> next{0};
  const int64_t n_parts = (n + part - 1) / part;
  run_threads(static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(n_threads, n_parts))), [&](int thread) {
    for (int64_t p = next++; p < n_parts; p = next++) work(thread, p * part, std::min(n, (p + 1) * part));
  });
}

uint64_t mixed(uint64_t z) {  // splitmix64
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

template <typename Shown>
Table table_of(const Shown& rows, float* data) {
  const int64_t length = static_cast<int64_t>(rows.shape(1));
  require(length > kTail && length % 8 == 0, "a row must hold factors by eights and a tail of eight");
  return {data, static_cast<int64_t>(rows.shape(0)), length - kTail};
}
Table table_of(const Rows& rows) { return table_of(rows, rows.data()); }
Table table_of(const ConstRows& rows) { return table_of(rows, const_cast<float*>(rows.data())); }

// Small numbers that depend on the seed, the row and the column only: nearly normal, with deviation `scale`.
void init(Rows table, int64_t first, int64_t rank, uint64_t seed, float scale) {
  const Table t = table_of(table);
  require(0 <= first && first <= t.n && 0 < rank && rank <= t.padded,
          "the rows to fill do not fit the table");
  const float unit = scale * 1.7320508f / 65536.0f;  // the sum of four uniform numbers has variance 4 / 12
  nb::gil_scoped_release release;
  for (int64_t i = first; i < t.n; ++i)
    for (int64_t j = 0; j < rank; ++j) {
      const uint64_t z = mixed(seed ^ mixed(static_cast<uint64_t>(i * rank + j)));
      const int64_t total = static_cast<int64_t>(z & 0xffff) + static_cast<int64_t>(z >> 16 & 0xffff) +
                            static_cast<int64_t>(z >> 32 & 0xffff) + static_cast<int64_t>(z >> 48);
      t.rows[i * (t.padded + kTail) + j] = unit * static_cast<float>(total - 131070);
    }
}

// ---------------------------------------------------------------------------------------------------- blocks

int32_t stripe_of(const int64_t* bounds, int64_t d, int64_t row) {
  return static_cast<int32_t>(std::upper_bound(bounds + 1, bounds + d, row) - (bounds + 1));
}

// Sorts entries into d x d blocks by new row numbers and shuffles each block, once. A part of all entries is
// shuffled as it would be among all, if `before` says how many come before it in the order of the blocks.
void pack(In<int32_t> users, In<int32_t> items, In<float> values, std::optional<In<float>> weights,
          In<int32_t> user_places, In<int32_t> item_places, In<int64_t> user_bounds, In<int64_t> item_bounds,
          uint64_t seed, Out<int32_t> out_users, Out<int32_t> out_items, Out<float> out_values,
          std::optional<Out<float>> out_weights, Out<int64_t> offsets, int64_t before) {
  const size_t n = users.size(), d = user_bounds.size() - 1;
  require(items.size() == n && values.size() == n && out_users.size() == n && out_items.size() == n &&
              out_values.size() == n && (!weights || weights->size() == n) &&
              weights.has_value() == out_weights.has_value() && (!out_weights || out_weights->size() == n),
          "the entries differ in length");
  require(user_bounds.size() >= 2 && item_bounds.size() == user_bounds.size() && offsets.size() == d * d + 1,
          "the bounds do not fit");
  nb::gil_scoped_release release;
  const size_t n_users = user_places.size(), n_items = item_places.size();
  std::vector<int32_t> user_stripe(n_users), item_stripe(n_items);
  for (size_t u = 0; u < n_users; ++u)
    user_stripe[u] = stripe_of(user_bounds.data(), static_cast<int64_t>(d), user_places.data()[u]);
  for (size_t i = 0; i < n_items; ++i)
    item_stripe[i] = stripe_of(item_bounds.data(), static_cast<int64_t>(d), item_places.data()[i]);
  std::vector<int64_t> next(d * d + 1);
  const auto block_of = [&](size_t t) {
    const uint32_t u = static_cast<uint32_t>(users.data()[t]), i = static_cast<uint32_t>(items.data()[t]);
    require(u < n_users && i < n_items, "an entry names a row that is not there");
    return static_cast<size_t>(user_stripe[u]) * d + static_cast<size_t>(item_stripe[i]);
  };
  for (size_t t = 0; t < n; ++t) ++next[block_of(t) + 1];
  for (size_t b = 0; b < d * d; ++b) next[b + 1] += next[b];
  std::copy(next.begin(), next.end(), offsets.data());
  for (size_t t = 0; t < n; ++t) {
    const int64_t to = next[block_of(t)]++;
    out_users.data()[to] = user_places.data()[users.data()[t]];
    out_items.data()[to] = item_places.data()[items.data()[t]];
    out_values.data()[to] = values.data()[t];
    if (weights) out_weights->data()[to] = weights->data()[t];
  }
  for (size_t b = 0; b < d * d; ++b) {
    const int64_t first = offsets.data()[b];
    for (int64_t m = offsets.data()[b + 1] - first - 1; m > 0; --m) {
      const uint64_t random = mixed(seed ^ mixed(static_cast<uint64_t>(before + first + m))) >> 32;
      const int64_t other = static_cast<int64_t>(random * static_cast<uint64_t>(m + 1) >> 32);
      std::swap(out_users.data()[first + m], out_users.data()[first + other]);
      std::swap(out_items.data()[first + m], out_items.data()[first + other]);
      std::swap(out_values.data()[first + m], out_values.data()[first + other]);
      if (weights) std::swap(out_weights->data()[first + m], out_weights->data()[first + other]);
    }
  }
}

// Who may run when: a block waits for those before it in the schedule that share a stripe with it.
class Turns {
 public:
  Turns(const int32_t* schedule, int64_t n, int64_t d)
      : blocks_(schedule, schedule + n),
        taken_(n),
        user_turn_(n),
        item_turn_(n),
        d_(d),
        user_done_(d),
        item_done_(d) {
    std::vector<int32_t> users(d), items(d);
    for (int64_t at = 0; at < n; ++at) {
      user_turn_[at] = users[blocks_[at] / d]++;
      item_turn_[at] = items[blocks_[at] % d]++;
    }
  }

  // The place in the schedule of a block that may run now, or -1 when all are taken or someone is in trouble.
  int64_t take() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      if (stopped_) return -1;
      while (first_ < taken_.size() && taken_[first_]) ++first_;
      if (first_ == taken_.size()) return -1;
      for (size_t at = first_; at < taken_.size(); ++at)
        if (!taken_[at] && user_turn_[at] == user_done_[blocks_[at] / d_] &&
            item_turn_[at] == item_done_[blocks_[at] % d_]) {
          taken_[at] = 1;
          return static_cast<int64_t>(at);
        }
      changed_.wait(lock);
    }
  }

  void done(int64_t at, bool stop) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++user_done_[blocks_[at] / d_];
    ++item_done_[blocks_[at] % d_];
    stopped_ = stopped_ || stop;
    changed_.notify_all();
  }

 private:
  std::vector<int32_t> blocks_;
  std::vector<uint8_t> taken_;
  std::vector<int32_t> user_turn_, item_turn_;
  int64_t d_;
  std::vector<int32_t> user_done_, item_done_;
  size_t first_ = 0;
  bool stopped_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct Blocks {
  Entries entries;
  const int64_t* offsets;
  int64_t d;
  const int32_t* schedule;
  int64_t n_blocks;

  Entries block(int32_t b) const {
    Entries part = entries;
    part.users += offsets[b];
    part.items += offsets[b];
    part.values += offsets[b];
    if (part.weights) part.weights += offsets[b];
    part.n = offsets[b + 1] - offsets[b];
    return part;
  }
};

Blocks blocks_of(const In<int32_t>& users, const In<int32_t>& items, const In<float>& values,
                 const std::optional<In<float>>& weights, const In<int64_t>& offsets,
                 const In<int32_t>& schedule) {
  const size_t n = users.size();
  require(items.size() == n && values.size() == n && (!weights || weights->size() == n),
          "the entries differ in length");
  int64_t d = 0;
  while ((d + 1) * (d + 1) + 1 <= static_cast<int64_t>(offsets.size())) ++d;
  require(d >= 1 && d * d + 1 == static_cast<int64_t>(offsets.size()),
          "the offsets are not those of d x d blocks");
  for (int64_t b = 0; b < d * d; ++b)
    require(offsets.data()[b] <= offsets.data()[b + 1], "the offsets decrease");
  require(offsets.data()[0] >= 0 && offsets.data()[d * d] <= static_cast<int64_t>(n),
          "the offsets leave the entries");
  for (size_t at = 0; at < schedule.size(); ++at)
    require(0 <= schedule.data()[at] && schedule.data()[at] < d * d,
            "the schedule names a block that is not there");
  const Entries entries = {users.data(), items.data(), values.data(), weights ? weights->data() : nullptr,
                           static_cast<int64_t>(n)};
  return {entries, offsets.data(), d, schedule.data(), static_cast<int64_t>(schedule.size())};
}

// Learns all blocks; (loss of each block by its place in the schedule, worst status).
int32_t learn_blocks(const Blocks& blocks, Out<double>& losses, int n_threads,
                     const std::function<FactorOutcome(int32_t block, const Entries&)>& learn) {
  require(static_cast<int64_t>(losses.size()) == blocks.n_blocks, "losses needs one place a block");
  std::atomic<int32_t> status{kAllFine};
  nb::gil_scoped_release release;
  Turns turns(blocks.schedule, blocks.n_blocks, blocks.d);
  const auto work = [&](int) {
    for (int64_t at = turns.take(); at >= 0; at = turns.take()) {
      const int32_t block = blocks.schedule[at];
      const FactorOutcome outcome = learn(block, blocks.block(block));
      losses.data()[at] = outcome.loss_sum;
      if (outcome.status != kAllFine) status = outcome.status;
      turns.done(at, outcome.status != kAllFine);
    }
  };
  run_threads(static_cast<int>(std::min<int64_t>(std::max(n_threads, 1), blocks.d)), work);
  return status;
}

void check_pair(const Table& users, const Table& items, const FactorChoices& choices) {
  require(users.padded == items.padded, "users and items differ in the number of factors");
  require(choices.rank > 0 && choices.rank <= users.padded, "the rank does not fit the tables");
}

int32_t learn_sgd(In<int32_t> users, In<int32_t> items, In<float> values, std::optional<In<float>> weights,
                  In<int64_t> offsets, In<int32_t> schedule, Rows user_rows, Rows item_rows,
                  const FactorChoices& choices, Out<double> losses, int n_threads) {
  const Table user_table = table_of(user_rows), item_table = table_of(item_rows);
  check_pair(user_table, item_table, choices);
  const Blocks blocks = blocks_of(users, items, values, weights, offsets, schedule);
  return learn_blocks(blocks, losses, n_threads, [&](int32_t, const Entries& entries) {
    return factor_kernels().sgd(entries, user_table, item_table, choices);
  });
}

void check_bounds(const In<int64_t>& bounds, int64_t d, int64_t n_rows) {
  require(static_cast<int64_t>(bounds.size()) == d + 1 && bounds.data()[0] >= 0 && bounds.data()[d] <= n_rows,
          "the bounds of the stripes do not fit");
  for (int64_t s = 0; s < d; ++s)
    require(bounds.data()[s] <= bounds.data()[s + 1], "the bounds of the stripes decrease");
}

// The same with steps that stay during a block; the bounds tell which rows a block has.
int32_t learn_in_blocks(In<int32_t> users, In<int32_t> items, In<float> values,
                        std::optional<In<float>> weights, In<int64_t> offsets, In<int32_t> schedule,
                        In<int64_t> user_bounds, In<int64_t> item_bounds, Rows user_rows, Rows item_rows,
                        const FactorChoices& choices, Out<double> losses, int n_threads) {
  const Table user_table = table_of(user_rows), item_table = table_of(item_rows);
  check_pair(user_table, item_table, choices);
  require(!(choices.l1 > 0) && !choices.nonnegative, "steps that stay know no l1 and no floor at zero");
  const Blocks blocks = blocks_of(users, items, values, weights, offsets, schedule);
  check_bounds(user_bounds, blocks.d, user_table.n);
  check_bounds(item_bounds, blocks.d, item_table.n);
  return learn_blocks(blocks, losses, n_threads, [&](int32_t block, const Entries& entries) {
    const int64_t *user = user_bounds.data() + block / blocks.d,
                  *item = item_bounds.data() + block % blocks.d;
    return factor_kernels().block(entries, {user[0], user[1], item[0], item[1]}, user_table, item_table,
                                  choices);
  });
}

void check_csr(const In<int64_t>& indptr, size_t n_rows, size_t n_entries) {
  require(indptr.size() == n_rows + 1, "indptr does not fit the rows");
  require(indptr.data()[0] >= 0 && indptr.data()[n_rows] <= static_cast<int64_t>(n_entries),
          "indptr leaves the entries");
  for (size_t i = 0; i < n_rows; ++i)
    require(indptr.data()[i] <= indptr.data()[i + 1], "indptr must not decrease");
}

int32_t learn_bpr(In<int32_t> users, In<int32_t> items, In<float> values, std::optional<In<float>> weights,
                  In<int64_t> offsets, In<int32_t> schedule, In<int64_t> item_bounds,
                  In<int64_t> liked_indptr, In<int32_t> liked_indices, uint64_t seed, Rows user_rows,
                  Rows item_rows, const FactorChoices& choices, Out<double> losses, int n_threads) {
  const Table user_table = table_of(user_rows), item_table = table_of(item_rows);
  check_pair(user_table, item_table, choices);
  const Blocks blocks = blocks_of(users, items, values, weights, offsets, schedule);
  check_csr(liked_indptr, static_cast<size_t>(user_table.n), liked_indices.size());
  check_bounds(item_bounds, blocks.d, item_table.n);
  return learn_blocks(blocks, losses, n_threads, [&](int32_t block, const Entries& entries) {
    const int64_t stripe = block % blocks.d;
    const Liked liked = {liked_indptr.data(), liked_indices.data(), item_bounds.data()[stripe],
                         item_bounds.data()[stripe + 1], mixed(seed ^ mixed(static_cast<uint64_t>(block)))};
    return factor_kernels().bpr(entries, liked, user_table, item_table, choices);
  });
}

int64_t score_pairs(In<int32_t> users, In<int32_t> items, ConstRows user_rows, ConstRows item_rows,
                    float mean, Out<float> out, int n_threads) {
  const size_t n = users.size();
  require(items.size() == n && out.size() == n, "users, items and scores differ in length");
  const Table user_table = table_of(user_rows), item_table = table_of(item_rows);
  require(user_table.padded == item_table.padded, "users and items differ in the number of factors");
  std::atomic<int64_t> bad{static_cast<int64_t>(n)};
  nb::gil_scoped_release release;
  run_parts(static_cast<int64_t>(n), 1 << 14, n_threads, [&](int, int64_t first, int64_t last) {
    const Entries part = {users.data() + first, items.data() + first, nullptr, nullptr, last - first};
    const int64_t done = factor_kernels().pairs(part, user_table, item_table, mean, out.data() + first);
    if (done < last - first) bad = first + done;
  });
  return bad;
}

// ----------------------------------------------------------------------------------------------- alternating

struct Side {
  Known known;
  int64_t n_rows;
};

Side side_of(const In<int64_t>& indptr, const In<int32_t>& indices, const In<float>& values,
             const std::optional<In<float>>& weights, const Rows& solved) {
  const size_t n_rows = solved.shape(0);
  require(values.size() == indices.size() && (!weights || weights->size() == indices.size()),
          "indices and values differ in length");
  check_csr(indptr, n_rows, indices.size());
  return {{indptr.data(), indices.data(), values.data(), weights ? weights->data() : nullptr, 0, 0},
          static_cast<int64_t>(n_rows)};
}

int64_t solve_als(In<int64_t> indptr, In<int32_t> indices, In<float> values, std::optional<In<float>> weights,
                  ConstRows other, std::optional<In<float>> gram, In<float> ridge, int rank, int cg_steps,
                  int bias_at, float bias_ridge, bool implicit, bool nonnegative, Rows solved,
                  int n_threads) {
  const Side side = side_of(indptr, indices, values, weights, solved);
  const int64_t padded = static_cast<int64_t>(other.shape(1));
  require(padded % 8 == 0 && solved.shape(1) == other.shape(1) && 0 < rank && rank <= padded,
          "the factors do not fit each other");
  require(static_cast<int64_t>(ridge.size()) == side.n_rows, "ridge needs one number a row");
  require(implicit == gram.has_value() && (!gram || static_cast<int64_t>(gram->size()) == padded * padded),
          "implicit feedback needs the other side's squares");
  require(-1 <= bias_at && bias_at < rank, "the bias is none of the unknowns");
  const AlsChoices choices = {rank, cg_steps, bias_at, bias_ridge, implicit, nonnegative};
  std::atomic<int64_t> bad{side.n_rows};
  nb::gil_scoped_release release;
  std::vector<std::vector<float>> scratch(std::max(n_threads, 1));
  run_parts(side.n_rows, 64, n_threads, [&](int thread, int64_t first, int64_t last) {
    scratch[thread].resize(static_cast<size_t>(padded * (padded + 4)));
    Known part = side.known;
    part.first = first;
    part.last = last;
    const int64_t done = factor_kernels().als(part, other.data(), static_cast<int64_t>(other.shape(0)),
                                              padded, gram ? gram->data() : nullptr, ridge.data(), choices,
                                              solved.data(), scratch[thread].data());
    if (done < last) bad = done;
  });
  return bad;
}

// The losses are summed part by part in the order of the rows, whoever computes them.
nb::tuple solve_kl(In<int64_t> indptr, In<int32_t> indices, In<float> values, ConstRows other, In<float> sums,
                   int steps, bool with_loss, Rows solved, int n_threads) {
  const Side side = side_of(indptr, indices, values, std::nullopt, solved);
  const int64_t padded = static_cast<int64_t>(other.shape(1));
  require(padded % 8 == 0 && solved.shape(1) == other.shape(1) && static_cast<int64_t>(sums.size()) == padded,
          "the factors do not fit each other");
  std::atomic<int64_t> bad{side.n_rows};
  double loss = 0;
  {
    nb::gil_scoped_release release;
    std::vector<std::vector<float>> scratch(std::max(n_threads, 1));
    std::vector<double> losses(static_cast<size_t>(side.n_rows / 64 + 1));
    run_parts(side.n_rows, 64, n_threads, [&](int thread, int64_t first, int64_t last) {
      scratch[thread].resize(static_cast<size_t>(padded));
      Known part = side.known;
      part.first = first;
      part.last = last;
      const int64_t done = factor_kernels().kl(
          part, other.data(), static_cast<int64_t>(other.shape(0)), padded, sums.data(), steps, solved.data(),
          scratch[thread].data(), with_loss ? &losses[static_cast<size_t>(first / 64)] : nullptr);
      if (done < last) bad = done;
    });
    for (const double part : losses) loss += part;
  }
  return nb::make_tuple(static_cast<int64_t>(bad), loss);
}

// X' X, summed over parts of fixed size in their order.
void sum_squares(ConstRows rows, Out<float> out, int n_threads) {
  const int64_t padded = static_cast<int64_t>(rows.shape(1)), n = static_cast<int64_t>(rows.shape(0));
  require(padded % 8 == 0 && static_cast<int64_t>(out.size()) == padded * padded, "the squares do not fit");
  constexpr int64_t kPart = 4096;
  nb::gil_scoped_release release;
  std::vector<std::vector<float>> parts(static_cast<size_t>((n + kPart - 1) / kPart));
  run_parts(n, kPart, n_threads, [&](int, int64_t first, int64_t last) {
    std::vector<float>& part = parts[static_cast<size_t>(first / kPart)];
    part.resize(static_cast<size_t>(padded * padded));
    factor_kernels().gram(rows.data(), first, last, padded, padded, part.data());
  });
  std::vector<double> total(static_cast<size_t>(padded * padded));
  for (const std::vector<float>& part : parts)
    for (size_t m = 0; m < total.size(); ++m) total[m] += part[m];
  for (int64_t i = 0; i < padded; ++i)
    for (int64_t j = 0; j <= i; ++j)
      out.data()[i * padded + j] = out.data()[j * padded + i] = static_cast<float>(total[i * padded + j]);
}

// ------------------------------------------------------------------------------------------------------- top

std::vector<float> panels_of(const ConstRows& items) {
  const size_t n = items.shape(0), padded = items.shape(1);
  std::vector<float> panels((n + 15) / 16 * 16 * padded);
  for (size_t i = 0; i < n; ++i)
    for (size_t f = 0; f < padded; ++f)
      panels[(i / 16 * padded + f) * 16 + i % 16] = items.data()[i * padded + f];
  return panels;
}

// Scores (best first) and numbers of each user's k best items; places that stay empty have the score
// -infinity.
void best_items(ConstRows users, ConstRows items, In<float> bias, std::optional<In<int64_t>> excluded_indptr,
                In<int32_t> excluded, Rows scores, Out<int32_t> best, int n_threads) {
  const int64_t n_users = static_cast<int64_t>(users.shape(0)), padded = static_cast<int64_t>(users.shape(1));
  const int64_t k = static_cast<int64_t>(scores.shape(1)), n_items = static_cast<int64_t>(items.shape(0));
  require(items.shape(1) == users.shape(1) && padded % 8 == 0,
          "users and items differ in the number of factors");
  require(static_cast<int64_t>(bias.size()) == n_items, "bias needs one number an item");
  require(k > 0 && static_cast<int64_t>(scores.shape(0)) == n_users &&
              static_cast<int64_t>(best.size()) == n_users * k,
          "scores and best do not fit the users");
  require(n_items < std::numeric_limits<int32_t>::max(), "there are too many items");
  if (excluded_indptr) check_csr(*excluded_indptr, static_cast<size_t>(n_users), excluded.size());
  nb::gil_scoped_release release;
  const std::vector<float> panels = panels_of(items);
  std::vector<float> padded_bias(bias.data(), bias.data() + n_items);
  padded_bias.resize(static_cast<size_t>((n_items + 15) / 16 * 16));
  const TopChoices choices = {k, n_items, padded};
  run_parts(n_users, 256, n_threads, [&](int, int64_t first, int64_t last) {
    factor_kernels().top(users.data() + first * padded, last - first, panels.data(), padded_bias.data(),
                         excluded_indptr ? excluded_indptr->data() + first : nullptr, excluded.data(),
                         choices, scores.data() + first * k, best.data() + first * k);
  });
}

}  // namespace
}  // namespace steepest

using namespace steepest;

void bind_factors(nb::module_& module) {
  nb::class_<FactorChoices>(module, "FactorChoices")
      .def(
          "__init__",
          [](FactorChoices* self, int loss, float mean, float eta, float l2, float l2_bias, float l1,
             int rank, bool adaptive, bool biases, bool nonnegative) {
            *self = FactorChoices{loss, mean, eta, l2, l2_bias, l1, rank, adaptive, biases, nonnegative};
          },
          nb::kw_only(), "loss"_a, "mean"_a, "eta"_a, "l2"_a, "l2_bias"_a, "l1"_a, "rank"_a, "adaptive"_a,
          "biases"_a, "nonnegative"_a);
  module.def("factor_init", &init, "table"_a.noconvert(), "first"_a, "rank"_a, "seed"_a, "scale"_a);
  module.def("factor_pack", &pack, "users"_a, "items"_a, "values"_a, "weights"_a.none(), "user_places"_a,
             "item_places"_a, "user_bounds"_a, "item_bounds"_a, "seed"_a, "out_users"_a.noconvert(),
             "out_items"_a.noconvert(), "out_values"_a.noconvert(), "out_weights"_a.noconvert().none(),
             "offsets"_a.noconvert(), "before"_a = 0);
  module.def("factor_sgd", &learn_sgd, "users"_a, "items"_a, "values"_a, "weights"_a.none(), "offsets"_a,
             "schedule"_a, "user_table"_a.noconvert(), "item_table"_a.noconvert(), "choices"_a,
             "losses"_a.noconvert(), "n_threads"_a);
  module.def("factor_sgd_blocks", &learn_in_blocks, "users"_a, "items"_a, "values"_a, "weights"_a.none(),
             "offsets"_a, "schedule"_a, "user_bounds"_a, "item_bounds"_a, "user_table"_a.noconvert(),
             "item_table"_a.noconvert(), "choices"_a, "losses"_a.noconvert(), "n_threads"_a);
  module.def("factor_bpr", &learn_bpr, "users"_a, "items"_a, "values"_a, "weights"_a.none(), "offsets"_a,
             "schedule"_a, "item_bounds"_a, "liked_indptr"_a, "liked_indices"_a, "seed"_a,
             "user_table"_a.noconvert(), "item_table"_a.noconvert(), "choices"_a, "losses"_a.noconvert(),
             "n_threads"_a);
  module.def("factor_pairs", &score_pairs, "users"_a, "items"_a, "user_table"_a, "item_table"_a, "mean"_a,
             "scores"_a.noconvert(), "n_threads"_a);
  module.def("factor_als", &solve_als, "indptr"_a, "indices"_a, "values"_a, "weights"_a.none(), "other"_a,
             "gram"_a.none(), "ridge"_a, "rank"_a, "cg_steps"_a, "bias_at"_a, "bias_ridge"_a, "implicit"_a,
             "nonnegative"_a, "solved"_a.noconvert(), "n_threads"_a);
  module.def("factor_kl", &solve_kl, "indptr"_a, "indices"_a, "values"_a, "other"_a, "sums"_a, "steps"_a,
             "with_loss"_a, "solved"_a.noconvert(), "n_threads"_a);
  module.def("factor_gram", &sum_squares, "rows"_a, "gram"_a.noconvert(), "n_threads"_a);
  module.def("factor_top", &best_items, "users"_a, "items"_a, "bias"_a, "excluded_indptr"_a.none(),
             "excluded"_a, "scores"_a.noconvert(), "best"_a.noconvert(), "n_threads"_a);
}
