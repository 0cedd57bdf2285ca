// SPDX-License-Identifier: Apache-2.0
// The best items of many users: a blocked product whose scores meet a threshold before anything else.
// Compiled once per instruction set, so no standard templates.
#pragma once
#include "core/simd.h"
#include "factors/factor_table.h"

namespace steepest {
namespace STEEPEST_ISA {

// Whether a list holds an item.
static bool contains(const ItemLists& lists, int64_t list, int32_t item) {
  if (!lists.indptr) return false;
  int64_t low = lists.indptr[list], high = lists.indptr[list + 1];
  const int64_t end = high;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (lists.items[middle] < item)
      low = middle + 1;
    else
      high = middle;
  }
  return low < end && lists.items[low] == item;
}

// A heap of the k best so far with the worst on top; among equals the item that comes first is better.
struct Heap {
  float* scores;
  int32_t* items;
  int64_t k;

  static ALWAYS_INLINE bool worse(float a, int32_t item_a, float b, int32_t item_b) {
    return a < b || (a == b && item_a > item_b);
  }

  // Puts one on top of the first n, and down to its place.
  void put(float score, int32_t item, int64_t n) {
    int64_t at = 0;
    for (int64_t child = 1; child < n; child = 2 * at + 1) {
      if (child + 1 < n && worse(scores[child + 1], items[child + 1], scores[child], items[child])) ++child;
      if (!worse(scores[child], items[child], score, item)) break;
      scores[at] = scores[child];
      items[at] = items[child];
      at = child;
    }
    scores[at] = score;
    items[at] = item;
  }

  void sort() {
    for (int64_t n = k - 1; n > 0; --n) {
      const float score = scores[n];
      const int32_t item = items[n];
      scores[n] = scores[0];
      items[n] = items[0];
      put(score, item, n);
    }
  }
};

constexpr int kUsersAtOnce = 4;
constexpr int64_t kPanelFloats = 1 << 15;  // panels that stay in the second-level cache for all users

// The scores of n users (at most four) from `first` on for the sixteen items of a panel, offered to their
// heaps.
static ALWAYS_INLINE void meet_panel(const TopTask& task, int64_t first, int n, int64_t panel) {
  const float* const values = task.panels + panel * task.padded * 16;
  const float* users[kUsersAtOnce];  // a short group repeats its last user
  Float8 low[kUsersAtOnce], high[kUsersAtOnce];
  for (int m = 0; m < kUsersAtOnce; ++m) {
    users[m] = task.users + (first + (m < n ? m : n - 1)) * task.padded;
    low[m] = load(task.bias + panel * 16);
    high[m] = load(task.bias + panel * 16 + 8);
  }
  for (int64_t f = 0; f < task.padded; ++f) {
    const Float8 left = load(values + f * 16), right = load(values + f * 16 + 8);
    for (int m = 0; m < kUsersAtOnce; ++m) {
      const Float8 x = all(users[m][f]);
      low[m] = fma(x, left, low[m]);
      high[m] = fma(x, right, high[m]);
    }
  }
  for (int m = 0; m < n; ++m) {
    Heap heap = {task.scores + (first + m) * task.k, task.best + (first + m) * task.k, task.k};
    const Float8 floor = all(heap.scores[0]);
    int hits = above(low[m], floor) | above(high[m], floor) << 8;
    if (!hits) continue;
    float scores[16];
    store(scores, low[m]);
    store(scores + 8, high[m]);
    for (int lane = 0; hits; ++lane, hits >>= 1) {
      const int32_t item = static_cast<int32_t>(panel * 16 + lane);
      if ((hits & 1) && item < task.n_items &&
          heap.worse(heap.scores[0], heap.items[0], scores[lane], item) &&
          !contains(task.excluded, first + m, item))
        heap.put(scores[lane], item, heap.k);
    }
  }
}

static void top(const TopTask& task, int64_t first_user, int64_t last_user) {
  const int64_t n_panels = (task.n_items + 15) / 16;
  const int64_t at_once = kPanelFloats / (task.padded * 16) > 0 ? kPanelFloats / (task.padded * 16) : 1;
  for (int64_t m = first_user * task.k; m < last_user * task.k; ++m) {
    task.scores[m] = -INFINITY;
    task.best[m] = 0x7fffffff;
  }
  for (int64_t start = 0; start < n_panels; start += at_once) {
    const int64_t stop = start + at_once < n_panels ? start + at_once : n_panels;
    for (int64_t first = first_user; first < last_user; first += kUsersAtOnce) {
      const int64_t left = last_user - first;
      for (int64_t panel = start; panel < stop; ++panel)
        meet_panel(task, first, static_cast<int>(left < kUsersAtOnce ? left : kUsersAtOnce), panel);
    }
  }
  for (int64_t m = first_user; m < last_user; ++m)
    Heap{task.scores + m * task.k, task.best + m * task.k, task.k}.sort();
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
