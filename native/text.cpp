// SPDX-License-Identifier: Apache-2.0
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "row_hasher.h"

namespace steepest {
namespace {

constexpr int64_t kBytesPerThread = 1 << 16;  // below that a thread costs more than it brings
constexpr int64_t kLoggedPerWave = 1 << 17;   // bytes of text a thread; keeps the log of names in cache

// Bytes up to each row, by which work is divided.
std::vector<int64_t> row_starts(const HashTask& task) {
  std::vector<int64_t> starts(static_cast<size_t>(task.n_rows) + 1);
  for (const Field& field : task.fields)
    for (int64_t i = 0; i < task.n_rows; ++i)
      starts[i + 1] += field.kind == kNumber ? 8 : field.texts.at(i).size + 8;
  for (int64_t i = 0; i < task.n_rows; ++i) starts[i + 1] += starts[i] + 16;
  return starts;
}

bool has_numbers(const HashTask& task) {
  return std::any_of(task.fields.begin(), task.fields.end(),
                     [](const Field& f) { return f.kind == kNumber; });
}

int64_t row_at(const std::vector<int64_t>& starts, int64_t byte) {
  return std::lower_bound(starts.begin(), starts.end(), byte) - starts.begin();
}

bool is_logged(const HashTask& task, int64_t row) {
  return task.book && NameBook::wants(task.book->rows() + row);
}

// Rows are hashed in waves; after each, the names that it brought go to the book. Without a book there is one
// wave.
int64_t wave_end(const HashTask& task, const std::vector<int64_t>& starts, int64_t first,
                 int64_t most_logged) {
  if (!task.book) return task.n_rows;
  int64_t row = first;
  for (int64_t logged = 0; row < task.n_rows && logged < most_logged; ++row)
    if (is_logged(task, row)) logged += starts[row + 1] - starts[row];
  return row;
}

// Runs f(0), ..., f(n-1) at the same time; the first failure is thrown when all have ended.
template <typename F>
void run_parts(size_t n, const F& f) {
  std::vector<std::exception_ptr> failures(n);
  auto guarded = [&](size_t part) {
    try {
      f(part);
    } catch (...) {
      failures[part] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  others.reserve(n);
  for (size_t part = 1; part < n; ++part) {
    try {
      others.emplace_back(guarded, part);
    } catch (const std::system_error&) {
      guarded(part);  // no more threads to be had
    }
  }
  guarded(0);
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

// Rows of one part between two moments.
struct Segment {
  size_t part, first_row, last_row;
};

HashedRows join(std::vector<Recipe::Borrowed>& parts, const std::vector<Segment>& segments, int64_t n_rows) {
  HashedRows all;
  all.ends.reserve(static_cast<size_t>(n_rows));
  std::vector<size_t> places;
  for (const Segment& segment : segments) {
    const std::vector<int64_t>& ends = parts[segment.part]->rows().ends;
    const int64_t first = segment.first_row ? ends[segment.first_row - 1] : 0;
    places.push_back(all.size);
    for (size_t i = segment.first_row; i < segment.last_row; ++i)
      all.ends.push_back(static_cast<int64_t>(places.back()) + ends[i] - first);
    if (segment.last_row > segment.first_row) all.size = static_cast<size_t>(all.ends.back());
  }
  int32_t* const indices = all.indices.reserve(all.size);
  float* const values = all.values.reserve(all.size);
  run_parts(parts.size(), [&](size_t part) {
    HashedRows& rows = parts[part]->rows();
    for (size_t k = 0; k < segments.size(); ++k) {
      const Segment& segment = segments[k];
      if (segment.part != part || segment.last_row == segment.first_row) continue;
      const int64_t first = segment.first_row ? rows.ends[segment.first_row - 1] : 0;
      const int64_t last = rows.ends[segment.last_row - 1];
      std::copy(rows.indices.data() + first, rows.indices.data() + last, indices + places[k]);
      std::copy(rows.values.data() + first, rows.values.data() + last, values + places[k]);
    }
  });
  return all;
}

// Asks the system to back a large array with large pages: the first touch of fresh memory costs a fault a
// page.
void use_large_pages(void* data, size_t size) {
#if defined(__linux__)
  constexpr uintptr_t kPage = 1 << 21;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + kPage - 1) & ~(kPage - 1);
  const uintptr_t last = (reinterpret_cast<uintptr_t>(data) + size) & ~(kPage - 1);
  if (first < last)
    madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // a wish: it may fail
#else
  (void)data, (void)size;
#endif
}

// A guess at the entries of so many bytes. What is too much is never touched and given back in the end.
size_t likely_entries(const HashTask& task, int64_t bytes) {
  const HashOptions& options = task.options;
  const int64_t words = bytes / 5 * (options.word_high - options.word_low + 1);
  const int64_t characters =
      options.character_high ? bytes * (options.character_high - options.character_low + 1) : 0;
  return static_cast<size_t>(std::min((words + characters) * options.copies, 4 * bytes));
}

}  // namespace

template <typename T>
Buffer<T>& Buffer<T>::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(room_, other.room_);
  return *this;
}

template <typename T>
Buffer<T>::~Buffer() {
  free(data_);
}

template <typename T>
T* Buffer<T>::reserve(size_t n) {
  if (n > room_ || !data_) {
    const size_t room = data_ ? n + n / 2 : std::max<size_t>(n, 64);
    void* const data = realloc(data_, room * sizeof(T));
    if (!data) throw std::bad_alloc();
    if (!data_) use_large_pages(data, room * sizeof(T));
    data_ = static_cast<T*>(data);
    room_ = room;
  }
  return data_;
}

template <typename T>
T* Buffer<T>::release(size_t n) {
  reserve(n);
  // Giving back the unused end can only fail by leaving everything as it is.
  void* const data = realloc(data_, std::max<size_t>(n, 1) * sizeof(T));
  T* const result = data ? static_cast<T*>(data) : data_;
  data_ = nullptr;
  room_ = 0;
  return result;
}

template class Buffer<int32_t>;
template class Buffer<float>;

uint64_t field_key(const std::string& name, uint64_t seed) {
  const uint64_t key = key_of_seed(seed);
  return name.empty() ? key : hash_string(name, key);
}

HashedRows hash_rows(const HashTask& task, int n_threads) {
  const std::vector<int64_t> starts = row_starts(task);
  // Numbers come into a row after its words were weighed, so then rows cannot wait until all are there.
  if (task.count_documents && task.document_counts && has_numbers(task)) n_threads = 1;
  const int64_t n_parts = std::max<int64_t>(1, std::min<int64_t>(n_threads, starts.back() / kBytesPerThread));
  const Plan plan(task, n_parts);
  std::vector<Recipe::Borrowed> parts;
  const size_t likely = likely_entries(task, starts.back() / n_parts);
  for (int64_t part = 0; part < n_parts; ++part) {
    parts.push_back(task.recipe.borrow());
    parts.back()->begin(plan, likely);
  }
  std::vector<NameLog> logs(parts.size());
  std::vector<Segment> segments;
  for (int64_t first = 0, last; first < task.n_rows; first = last) {
    last = wave_end(task, starts, first, kLoggedPerWave * n_parts);
    std::vector<int64_t> bounds;
    for (int64_t part = 0; part <= n_parts; ++part)
      bounds.push_back(row_at(starts, starts[first] + (starts[last] - starts[first]) * part / n_parts));
    for (size_t part = 0; part < parts.size(); ++part) {
      const size_t done = parts[part]->rows().ends.size();
      segments.push_back({part, done, done + static_cast<size_t>(bounds[part + 1] - bounds[part])});
    }
    run_parts(parts.size(), [&](size_t part) {
      for (int64_t i = bounds[part]; i < bounds[part + 1]; ++i)
        parts[part]->add_row(i, is_logged(task, i) ? &logs[part] : nullptr);
    });
    for (NameLog& log : logs)
      if (task.book) task.book->read(log);
  }
  if (task.book) {
    for (const auto& part : parts) task.book->touch(part->touched());
    task.book->set_rows(task.book->rows() + task.n_rows);
  }
  if (n_parts == 1) return std::move(parts[0]->rows());
  HashedRows all = join(parts, segments, task.n_rows);
  if (plan.counts_and_weighs())
    for (int64_t i = 0, first = 0; i < task.n_rows; first = all.ends[i++])
      count_and_weigh(plan, i, all.indices.data() + first, all.values.data() + first,
                      static_cast<size_t>(all.ends[i] - first));
  return all;
}

}  // namespace steepest
