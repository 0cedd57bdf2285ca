// SPDX-License-Identifier: Apache-2.0
// Work that is cut into parts, each for a thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace steepest {

// Runs work(0), ..., work(n - 1), each in a thread of its own.
template <typename Work>
void run_parts(int64_t n, Work work) {
  std::vector<std::thread> others;
  for (int64_t part = 1; part < n; ++part) {
    try {
      others.emplace_back(work, part);
    } catch (const std::system_error&) {  // no more threads to be had
      work(part);
    }
  }
  work(0);
  for (std::thread& other : others) other.join();
}

// How many threads are worth their start: each has at least so many rows.
inline int64_t parts_for(int64_t n_rows, int n_threads, int64_t least_rows) {
  return std::max<int64_t>(1, std::min<int64_t>(n_threads, n_rows / least_rows));
}

}  // namespace steepest
