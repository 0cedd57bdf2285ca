// SPDX-License-Identifier: Apache-2.0
#include "text/text.h"

#include <algorithm>

#include "core/threads.h"
#include "text/row_hasher.h"

namespace steepest {
namespace {

constexpr int64_t kBytesPerThread = 1 << 16;  // below that a thread costs more than it brings
constexpr int64_t kLoggedPerWave = 1 << 17;   // bytes of text per thread; keeps the log of names in cache
constexpr size_t kMostIdle = 16;              // hashers that a recipe keeps
constexpr size_t kMostIdleBytes = 1 << 20;    // of each: one that has read a huge text goes

// Bytes up to each row, by which work is divided.
std::vector<int64_t> row_starts(const HashTask& task) {
  std::vector<int64_t> starts(static_cast<size_t>(task.n_rows) + 1);
  for (const Field& field : task.fields)
    for (int64_t i = 0; i < task.n_rows; ++i) starts[i + 1] += field.size(i) + 8;
  for (int64_t i = 0; i < task.n_rows; ++i) starts[i + 1] += starts[i] + 16;
  return starts;
}

bool is_logged(const HashTask& task, int64_t row) {
  return task.book && NameBook::samples(task.book->rows() + row);
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

// Rows of one part: those that it hashed in a wave.
struct Segment {
  size_t part, first, last;
};

HashedRows join(const RowHashers& parts, const std::vector<Segment>& segments, int64_t n_rows) {
  HashedRows all;
  all.indptr.reserve(static_cast<size_t>(n_rows) + 1);
  for (const Segment& segment : segments) {
    const std::vector<int64_t>& indptr = parts[segment.part]->rows().indptr;
    const int64_t shift = all.indptr.back() - indptr[segment.first];
    for (size_t i = segment.first; i < segment.last; ++i) all.indptr.push_back(indptr[i + 1] + shift);
  }
  all.reserve(all.size());
  const int64_t n_parts = static_cast<int64_t>(parts.size());
  parallel_for(n_parts, n_parts, [&](int64_t part) {
    const HashedRows& rows = parts[part]->rows();
    size_t row = 0;  // in which the segment begins
    for (const Segment& segment : segments) {
      if (static_cast<int64_t>(segment.part) == part) {
        const int64_t first = rows.indptr[segment.first], last = rows.indptr[segment.last];
        const int64_t place = all.indptr[row];
        std::copy(rows.indices.data() + first, rows.indices.data() + last, all.indices.data() + place);
        std::copy(rows.values.data() + first, rows.values.data() + last, all.values.data() + place);
      }
      row += segment.last - segment.first;
    }
  });
  return all;
}

// A guess at the entries of so many bytes. What is too much is never touched and given back in the end.
size_t likely_entries(const HashOptions& options, int64_t bytes) {
  const auto lengths = [](const Grams& grams) { return grams.second - grams.first + 1; };
  const int64_t words = bytes / 5 * lengths(options.ngrams);
  const int64_t characters = options.char_ngrams.second ? bytes * lengths(options.char_ngrams) : 0;
  return static_cast<size_t>(std::min((words + characters) * options.copies, 4 * bytes));
}

}  // namespace

Recipe::Recipe(const HashOptions& options, const std::vector<Column>& columns, Crosses crosses,
               const std::vector<std::string>& stop_words, std::shared_ptr<const WordFilter> filter)
    : options(options), crosses(std::move(crosses)), filter(std::move(filter)) {
  for (int32_t k = 0; k < static_cast<int32_t>(columns.size()); ++k) {
    const bool crossed = std::any_of(this->crosses.begin(), this->crosses.end(),
                                     [&](const auto& pair) { return pair.first == k || pair.second == k; });
    readers.emplace_back(columns[k], options.seed, stop_words, crossed);
  }
  idle_.reserve(kMostIdle);
}

Recipe::~Recipe() = default;

// Nobody waits for the lock: hashers are made or dropped instead. So a process forked at a bad moment, in
// which the lock stays closed, can go on.
RowHashers Recipe::borrow(int64_t n) const {
  RowHashers hashers;
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  for (; lock && n > 0 && !idle_.empty(); --n) {
    hashers.push_back(std::move(idle_.back()));
    idle_.pop_back();
  }
  for (; n > 0; --n) hashers.push_back(std::make_unique<RowHasher>(*this));
  return hashers;
}

void Recipe::give_back(RowHashers hashers) const {
  for (auto& hasher : hashers) {
    hasher->forget_rows();
    if (hasher->n_bytes() > kMostIdleBytes) continue;
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (lock && idle_.size() < kMostIdle) idle_.push_back(std::move(hasher));
  }
}

HashedRows hash_rows(const HashTask& task, int n_threads) {
  const std::vector<int64_t> starts = row_starts(task);
  // Other blocks come into a row after its words were weighed, and rare words leave it, so then rows cannot
  // wait until all are there.
  const bool waits = task.recipe.is_one_text() && task.recipe.options.min_rows <= 1;
  if (task.count_documents && task.document_counts && !waits) n_threads = 1;
  const int64_t n_parts = parts_for(starts.back(), n_threads, kBytesPerThread);
  const Plan plan(task, n_parts);
  RowHashers parts = task.recipe.borrow(n_parts);
  const size_t likely = likely_entries(task.recipe.options, starts.back() / n_parts);
  for (const auto& part : parts) part->begin(plan, likely);
  std::vector<NameLog> logs(parts.size());
  std::vector<Segment> segments;
  for (int64_t first = 0, last; first < task.n_rows; first = last) {
    last = wave_end(task, starts, first, kLoggedPerWave * n_parts);
    std::vector<int64_t> bounds;
    for (int64_t part = 0; part <= n_parts; ++part) {
      const int64_t byte = starts[first] + (starts[last] - starts[first]) * part / n_parts;
      bounds.push_back(std::lower_bound(starts.begin(), starts.end(), byte) - starts.begin());
    }
    for (size_t part = 0; part < parts.size(); ++part) {
      const size_t done = parts[part]->rows().indptr.size() - 1;
      segments.push_back({part, done, done + static_cast<size_t>(bounds[part + 1] - bounds[part])});
    }
    parallel_for(n_parts, n_parts, [&](int64_t part) {
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
  HashedRows all = n_parts == 1 ? std::move(parts[0]->rows()) : join(parts, segments, task.n_rows);
  task.recipe.give_back(std::move(parts));
  if (n_parts > 1 && plan.counts_and_weighs())
    for (int64_t i = 0; i < task.n_rows; ++i)
      count_and_weigh(plan, i, all.indices.data() + all.indptr[i], all.values.data() + all.indptr[i],
                      static_cast<size_t>(all.indptr[i + 1] - all.indptr[i]));
  return all;
}

void count_words(const HashTask& task, WordCounts& counts) {
  RowHashers hashers = task.recipe.borrow(1);
  for (int64_t row = 0; row < task.n_rows; ++row)
    for (size_t k = 0; k < task.fields.size(); ++k)
      for (uint64_t hash : hashers[0]->different_words(task.fields[k], k, row)) counts.add(hash);
  counts.n_rows += task.n_rows;
  task.recipe.give_back(std::move(hashers));
}

}  // namespace steepest
