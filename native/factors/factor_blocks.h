// SPDX-License-Identifier: Apache-2.0
// The known entries of a matrix in d x d blocks: how they are sorted into them, and who may learn which block
// when. Blocks that share a row or column are learned in the order given, whatever the number of threads.
#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "factors/factor_table.h"

namespace steepest {

// One side of a matrix: the row of each code, and the first row of each stripe and the end.
struct Stripes {
  const int32_t* places;
  const int64_t* bounds;
  int64_t n_codes, d;

  std::vector<int32_t> of_codes() const {
    std::vector<int32_t> stripes(n_codes);
    for (int64_t code = 0; code < n_codes; ++code)
      stripes[code] =
          static_cast<int32_t>(std::upper_bound(bounds + 1, bounds + d, places[code]) - (bounds + 1));
    return stripes;
  }
};

struct PackedEntries {
  int32_t *users, *items;
  float *values, *weights;  // weights: null if the entries have none
  int64_t* offsets;         // d x d + 1

  void swap(int64_t a, int64_t b) const {
    std::swap(users[a], users[b]);
    std::swap(items[a], items[b]);
    std::swap(values[a], values[b]);
    if (weights) std::swap(weights[a], weights[b]);
  }
};

// Sorts entries into blocks by new row numbers and shuffles each block, once. A part of all entries is
// shuffled as it would be among all, if `before` says how many come before it in the order of the blocks.
inline void pack_blocks(const Entries& entries, const Stripes& users, const Stripes& items, uint64_t seed,
                        int64_t before, const PackedEntries& out) {
  const int64_t d = users.d;
  const std::vector<int32_t> user_stripe = users.of_codes(), item_stripe = items.of_codes();
  const auto block_of = [&](int64_t t) {
    const uint32_t u = static_cast<uint32_t>(entries.users[t]), i = static_cast<uint32_t>(entries.items[t]);
    if (u >= user_stripe.size() || i >= item_stripe.size())
      throw std::invalid_argument("an entry names a row that is not there");
    return user_stripe[u] * d + item_stripe[i];
  };
  std::vector<int64_t> next(d * d + 1);
  for (int64_t t = 0; t < entries.n; ++t) ++next[block_of(t) + 1];
  for (int64_t b = 0; b < d * d; ++b) next[b + 1] += next[b];
  std::copy(next.begin(), next.end(), out.offsets);
  for (int64_t t = 0; t < entries.n; ++t) {
    const int64_t to = next[block_of(t)]++;
    out.users[to] = users.places[entries.users[t]];
    out.items[to] = items.places[entries.items[t]];
    out.values[to] = entries.values[t];
    if (out.weights) out.weights[to] = entries.weights[t];
  }
  for (int64_t b = 0; b < d * d; ++b) {
    const int64_t first = out.offsets[b];
    for (int64_t m = out.offsets[b + 1] - first - 1; m > 0; --m) {
      const uint64_t random = splitmix64(seed ^ splitmix64(static_cast<uint64_t>(before + first + m))) >> 32;
      out.swap(first + m, first + static_cast<int64_t>(random * static_cast<uint64_t>(m + 1) >> 32));
    }
  }
}

// Small numbers that depend on the seed, the row and the column only: nearly normal, with deviation `scale`.
inline void start_factors(float* rows, int64_t first, int64_t last, int64_t length, int64_t rank,
                          uint64_t seed, float scale) {
  const float unit = scale * 1.7320508f / 65536.0f;  // the sum of four uniform numbers has variance 4 / 12
  for (int64_t i = first; i < last; ++i)
    for (int64_t j = 0; j < rank; ++j) {
      const uint64_t z = splitmix64(seed ^ splitmix64(static_cast<uint64_t>(i * rank + j)));
      const int64_t total = static_cast<int64_t>(z & 0xffff) + static_cast<int64_t>(z >> 16 & 0xffff) +
                            static_cast<int64_t>(z >> 32 & 0xffff) + static_cast<int64_t>(z >> 48);
      rows[i * length + j] = unit * static_cast<float>(total - 131070);
    }
}

// Entries sorted by block, where each block begins, and the first row of each stripe.
struct FactorBlocks {
  Entries entries;
  const int64_t *offsets, *user_bounds, *item_bounds;
  int64_t d;

  FactorBlock block(int32_t number) const { return part(number, offsets[number], offsets[number + 1]); }
  int64_t pieces_of(int64_t size) const { return entries.n > 0 ? (entries.n - 1) / size + 1 : 0; }
  // Of the only block, `size` entries or those that are left.
  FactorBlock piece(int64_t first, int64_t size) const {
    return part(0, first, std::min(entries.n, first + size));
  }

 private:
  FactorBlock part(int32_t number, int64_t first, int64_t last) const {
    const int64_t *user = user_bounds + number / d, *item = item_bounds + number % d;
    const Entries own = {entries.users + first, entries.items + first, entries.values + first,
                         entries.weights ? entries.weights + first : nullptr, last - first};
    return {own, user[0], user[1], item[0], item[1], nullptr, 0};
  }
};

// Who may run when: a block waits for those before it in the schedule that share a stripe with it.
class Turns {
 public:
  Turns(const int32_t* schedule, int64_t n, int64_t d) : blocks_(n), d_(d), user_done_(d), item_done_(d) {
    std::vector<int32_t> users(d), items(d);
    for (int64_t at = 0; at < n; ++at)
      blocks_[at] = {schedule[at], users[schedule[at] / d]++, items[schedule[at] % d]++, false};
  }

  // The place in the schedule of a block that may run now, or -1 when all are taken or learning has stopped.
  int64_t take() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;; changed_.wait(lock)) {
      while (first_ < blocks_.size() && blocks_[first_].taken) ++first_;
      if (stopped_ || first_ == blocks_.size()) return -1;
      for (size_t at = first_; at < blocks_.size(); ++at) {
        Turn& turn = blocks_[at];
        if (turn.taken || turn.user_turn != user_done_[turn.block / d_] ||
            turn.item_turn != item_done_[turn.block % d_])
          continue;
        turn.taken = true;
        return static_cast<int64_t>(at);
      }
    }
  }

  void done(int64_t at, bool stop) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++user_done_[blocks_[at].block / d_];
    ++item_done_[blocks_[at].block % d_];
    stopped_ = stopped_ || stop;
    changed_.notify_all();
  }

 private:
  struct Turn {
    int32_t block, user_turn, item_turn;
    bool taken;
  };
  std::vector<Turn> blocks_;
  int64_t d_;
  std::vector<int32_t> user_done_, item_done_;
  size_t first_ = 0;
  bool stopped_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace steepest
