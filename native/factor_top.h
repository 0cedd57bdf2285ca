// SPDX-License-Identifier: Apache-2.0
// The best items of many users: a blocked product whose scores meet a threshold before anything else.
// Compiled once per instruction set, so no standard templates.
#pragma once
#include "factor_rows.h"

namespace steepest {
namespace STEEPEST_ISA {

// A heap of the k best so far with the worst on top; among equals the item that comes first is better.
static ALWAYS_INLINE bool worse(float a, int32_t item_a, float b, int32_t item_b) {
  return a < b || (a == b && item_a > item_b);
}

static void sift_down(float* scores, int32_t* items, int64_t at, int64_t n, float score, int32_t item) {
  for (;;) {
    int64_t child = 2 * at + 1;
    if (child >= n) break;
    if (child + 1 < n && worse(scores[child + 1], items[child + 1], scores[child], items[child])) ++child;
    if (!worse(scores[child], items[child], score, item)) break;
    scores[at] = scores[child];
    items[at] = items[child];
    at = child;
  }
  scores[at] = score;
  items[at] = item;
}

static bool contains(const int32_t* items, int64_t n, int32_t item) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (items[middle] < item)
      low = middle + 1;
    else
      high = middle;
  }
  return low < n && items[low] == item;
}

static void offer(float* scores, int32_t* items, int64_t k, float score, int32_t item,
                  const int32_t* excluded, int64_t n_excluded) {
  if (!worse(scores[0], items[0], score, item) || contains(excluded, n_excluded, item)) return;
  sift_down(scores, items, 0, k, score, item);
}

static void sort_best(float* scores, int32_t* items, int64_t k) {
  for (int64_t n = k - 1; n > 0; --n) {
    const float score = scores[n];
    const int32_t item = items[n];
    scores[n] = scores[0];
    items[n] = items[0];
    sift_down(scores, items, 0, n, score, item);
  }
}

constexpr int kUsersAtOnce = 4;
constexpr int64_t kPanelFloats = int64_t{1}
                                 << 15;  // panels that stay in the second-level cache for all users

// The scores of four users for sixteen items, offered to the users' heaps.
static ALWAYS_INLINE void meet_panel(const float* const* users, int n_users, const float* panel,
                                     const float* bias, int64_t first_item, const TopChoices& c,
                                     const int64_t* excluded_indptr, const int32_t* excluded, float* scores,
                                     int32_t* best) {
  Eight low[kUsersAtOnce], high[kUsersAtOnce];
  for (int m = 0; m < kUsersAtOnce; ++m) {
    low[m] = load(bias);
    high[m] = load(bias + 8);
  }
  for (int64_t f = 0; f < c.padded; ++f) {
    const Eight left = load(panel + f * 16), right = load(panel + f * 16 + 8);
    for (int m = 0; m < kUsersAtOnce; ++m) {
      const Eight x = all(users[m][f]);
      low[m] = fma(x, left, low[m]);
      high[m] = fma(x, right, high[m]);
    }
  }
  for (int m = 0; m < n_users; ++m) {
    float* heap = scores + m * c.k;
    const Eight floor = all(heap[0]);
    int hits = above(low[m], floor) | above(high[m], floor) << 8;
    if (!hits) continue;
    float values[16];
    store(values, low[m]);
    store(values + 8, high[m]);
    const int64_t begin = excluded_indptr ? excluded_indptr[m] : 0,
                  end = excluded_indptr ? excluded_indptr[m + 1] : 0;
    for (int64_t item = first_item; hits; ++item, hits >>= 1)
      if ((hits & 1) && item < c.n_items)
        offer(heap, best + m * c.k, c.k, values[item - first_item], static_cast<int32_t>(item),
              excluded + begin, end - begin);
  }
}

// Panels: sixteen items beside each other, factor by factor; the last panel is filled up with zeros.
static void top(const float* users, int64_t n_users, const float* panels, const float* bias,
                const int64_t* excluded_indptr, const int32_t* excluded, const TopChoices& c, float* scores,
                int32_t* best) {
  const int64_t n_panels = (c.n_items + 15) / 16;
  const int64_t at_once = kPanelFloats / (c.padded * 16) > 0 ? kPanelFloats / (c.padded * 16) : 1;
  for (int64_t m = 0; m < n_users * c.k; ++m) {
    scores[m] = -INFINITY;
    best[m] = 0x7fffffff;
  }
  for (int64_t start = 0; start < n_panels; start += at_once) {
    const int64_t stop = start + at_once < n_panels ? start + at_once : n_panels;
    for (int64_t first = 0; first < n_users; first += kUsersAtOnce) {
      const int n = static_cast<int>(n_users - first < kUsersAtOnce ? n_users - first : kUsersAtOnce);
      const float* four[kUsersAtOnce];  // a short group repeats its last user
      for (int m = 0; m < kUsersAtOnce; ++m) four[m] = users + (first + (m < n ? m : n - 1)) * c.padded;
      for (int64_t panel = start; panel < stop; ++panel)
        meet_panel(four, n, panels + panel * c.padded * 16, bias + panel * 16, panel * 16, c,
                   excluded_indptr ? excluded_indptr + first : nullptr, excluded, scores + first * c.k,
                   best + first * c.k);
    }
  }
  for (int64_t m = 0; m < n_users; ++m) sort_best(scores + m * c.k, best + m * c.k, c.k);
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
