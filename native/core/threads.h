// SPDX-License-Identifier: Apache-2.0
// The one thread pool. Its threads stay, and wait some ten microseconds for the next work before they sleep,
// since a piece of a mini-batch would not pay for new threads. Several callers may use it at once: each has
// threads of its own while it works. What a part computes must not depend on where or when it runs, so bits
// depend on how work is cut, never on threads.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/rows.h"

namespace steepest {

// Calls work(part) for every part below n_parts on at most n_threads threads, this one among them; whoever is
// free takes the next part. Returns when all are done. The failure of the first part that threw is thrown
// again here.
void parallel_for(int64_t n_parts, int64_t n_threads, const std::function<void(int64_t part)>& work);
// The same, and which of the threads calls, 0 .. n_threads - 1: for scratch that parts share.
void parallel_for(int64_t n_parts, int64_t n_threads,
                  const std::function<void(int64_t part, int64_t thread)>& work);

// Threads wait here for each other, by turns of the processor: what lies between lasts less than a
// millisecond.
class Barrier {
 public:
  explicit Barrier(int64_t n) : n_(n) {}
  void wait();
  int64_t size() const { return n_; }

 private:
  const int64_t n_;
  std::atomic<int64_t> arrived_{0}, round_{0};
};

// Calls work(thread, barrier) on n threads that run at the same time, or on as many as there are: the
// barrier's size. A thread has the same number in the next call, so what it used is still in its cache. Work
// must not throw.
void run_together(int64_t n_threads, const std::function<void(int64_t thread, Barrier& barrier)>& work);

// How many parts are worth a thread: each has at least so many items.
inline int64_t parts_for(int64_t n_items, int64_t n_threads, int64_t least_items) {
  return std::max<int64_t>(1, std::min(n_threads, n_items / least_items));
}

// The first item of a part, cut at multiples of `unit`.
inline int64_t part_start(int64_t n, int64_t n_parts, int64_t part, int64_t unit) {
  const int64_t units = (n + unit - 1) / unit, start = units * part / n_parts * unit;
  return start < n ? start : n;
}

// Cuts rows into parts, one per thread. `work(rows of the part, first visit, part)` returns how many of its
// rows it has done; returns the first visit that is not done, or rows.n.
template <typename Work>
int64_t parallel_rows(const Rows& rows, int64_t n_parts, const Work& work) {
  if (n_parts <= 1) return work(rows, 0, 0);
  std::vector<int64_t> stopped(n_parts);
  parallel_for(n_parts, n_parts, [&](int64_t part) {
    const int64_t first = rows.n * part / n_parts, last = rows.n * (part + 1) / n_parts;
    const int64_t done = work(slice(rows, first, last), first, part);
    stopped[part] = done == last - first ? rows.n : first + done;
  });
  return *std::min_element(stopped.begin(), stopped.end());
}

// The same with parts of at least so many rows, where work(rows of the part, first visit) needs no number.
template <typename Work>
int64_t over_rows(const Rows& rows, int64_t n_threads, int64_t least_rows, const Work& work) {
  return parallel_rows(rows, parts_for(rows.n, n_threads, least_rows),
                       [&](const Rows& part, int64_t first, int64_t) { return work(part, first); });
}

}  // namespace steepest
