// SPDX-License-Identifier: Apache-2.0
// Threads that stay: work of some ten microseconds, a mini-batch's, would not pay for new ones.
#pragma once
#include <cstdint>

namespace steepest {

using CrewWork = void (*)(void* context, int64_t part);

// Calls work(context, part) for every part below n_parts, part 0 on this thread, and returns when all are
// done. What a part computes must not depend on where or when it runs: if threads are not to be had, or
// another caller has them, the parts run here one after the other.
void run_crew(int64_t n_parts, CrewWork work, void* context);

template <typename Work>
void in_parts(int64_t n_parts, Work work) {
  if (n_parts <= 1) return work(0);
  run_crew(n_parts, [](void* context, int64_t part) { (*static_cast<Work*>(context))(part); }, &work);
}

// The first item of a part, cut at multiples of `unit`.
inline int64_t part_start(int64_t n, int64_t n_parts, int64_t part, int64_t unit) {
  const int64_t units = (n + unit - 1) / unit, start = units * part / n_parts * unit;
  return start < n ? start : n;
}

}  // namespace steepest
