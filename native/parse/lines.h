// SPDX-License-Identifier: Apache-2.0
// What the parsers of line formats share: texts that come in, arrays that go out, the loop over lines,
// values, and lines that are bad. Every line ends in '\n' (the last one is copied if it does not), so that a
// format reads without a test for the end.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "parse/decimal.h"

namespace steepest {

// Memory that parsed chunks have given back is used again: new pages from the system took a quarter of the
// time of parsing. A block knows its size, which is in front of it.
class BlockPool {
 public:
  static BlockPool& common() {
    static BlockPool* const pool =
        new BlockPool;  // never destroyed: arrays may outlive whatever ends at exit
    return *pool;
  }

  void* take(size_t size) {
    size = (size + kHead + kGrain - 1) / kGrain * kGrain;
    char* block = size < kLeast ? nullptr : find(size);
    if (!block) {
      block = static_cast<char*>(std::malloc(size));
      if (!block) throw std::bad_alloc();
      std::memcpy(block, &size, sizeof size);
    }
    return block + kHead;
  }

  void give(void* memory) noexcept {
    if (!memory) return;
    char* const block = static_cast<char*>(memory) - kHead;
    const size_t size = size_of(block);
    if (size >= kLeast) {
      const std::lock_guard<std::mutex> guard(lock_);
      if (n_ < kMostBlocks && n_bytes_ + size <= kMostBytes) {
        blocks_[n_++] = block;
        n_bytes_ += size;
        return;
      }
    }
    std::free(block);
  }

 private:
  static constexpr size_t kHead = 64, kGrain = 256, kLeast = 1 << 17, kMostBytes = 32 << 20;
  static constexpr int kMostBlocks = 32;

  static size_t size_of(const char* block) {
    size_t size;
    std::memcpy(&size, block, sizeof size);
    return size;
  }

  // A block that is large enough, and no more than twice as large.
  char* find(size_t size) {
    const std::lock_guard<std::mutex> guard(lock_);
    for (int k = n_ - 1; k >= 0; --k) {
      const size_t found = size_of(blocks_[k]);
      if (found < size || found > 2 * size) continue;
      char* const block = blocks_[k];
      blocks_[k] = blocks_[--n_];
      n_bytes_ -= found;
      return block;
    }
    return nullptr;
  }

  std::mutex lock_;
  char* blocks_[kMostBlocks];
  int n_ = 0;
  size_t n_bytes_ = 0;
};

// Memory for plain numbers that can be given away.
template <typename T>
class PooledArray {
 public:
  PooledArray() = default;
  PooledArray(const PooledArray&) = delete;
  PooledArray& operator=(const PooledArray&) = delete;
  ~PooledArray() { BlockPool::common().give(data_); }

  void make(int64_t n) {
    BlockPool::common().give(std::exchange(data_, nullptr));
    data_ = static_cast<T*>(BlockPool::common().take(static_cast<size_t>(n > 0 ? n : 1) * sizeof(T)));
  }
  // Moves the first `used` numbers to a place with room for n.
  void grow(int64_t used, int64_t n) {
    PooledArray larger;
    larger.make(n);
    std::copy_n(data_, used, larger.data_);
    std::swap(data_, larger.data_);
  }
  T* data() const { return data_; }
  T* release() { return std::exchange(data_, nullptr); }  // the caller gives it back to the pool

 private:
  T* data_ = nullptr;
};

// A column that most texts lack: made for the first row that has a value, filled with `absent` before it.
template <typename T>
struct OptionalColumn {
  T absent;
  bool is_used = false;
  PooledArray<T> values = {};

  void set(int64_t row, T value, bool is_present, int64_t max_rows) {
    if (is_present && !is_used) {
      values.make(max_rows);
      for (int64_t i = 0; i < row; ++i) values.data()[i] = absent;
      is_used = true;
    }
    if (is_used) values.data()[row] = value;
  }
};

struct Text {
  const char* data;
  int64_t size;
};

// Offsets count from the start of the text; the token is the piece that is wrong.
struct BadLine {
  int64_t text = 0;
  int64_t line = 0;
  int64_t token = 0;
  int64_t token_length = 0;
  const char* fault = "";
};

struct LineOptions {
  bool with_labels = true;  // false: a line may lack its label, and labels are read but not kept
  bool skip_bad = false;    // false: reading stops at the first bad line
};

// The rows of all texts, one text after the other, as CSR arrays in the order of the lines.
struct ParsedRows {
  int64_t n_rows = 0;
  int64_t n_entries = 0;
  PooledArray<int64_t> indptr;
  PooledArray<int32_t> indices;
  PooledArray<float> values;
  PooledArray<double> y;
  std::vector<int64_t> text_rows;  // rows of each text
  std::vector<int64_t> text_bad;   // bad lines of each text
  std::vector<BadLine> bad;        // the first ones of each text
};

constexpr int64_t kBadLinesKept = 3;  // of each text

// How many bytes pass a test, counted in 32 lanes of bytes, which a compiler turns into vector code.
template <typename Test>
int64_t count_bytes(const Text& text, Test test) {
  constexpr int kLanes = 32, kFull = 255;
  const char* data = text.data;
  int64_t total = 0, i = 0;
  while (text.size - i >= kLanes) {
    uint8_t lanes[kLanes] = {};
    for (int step = 0; step < kFull && text.size - i >= kLanes; ++step, i += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += test(data[i + lane]);
    for (int lane = 0; lane < kLanes; ++lane) total += lanes[lane];
  }
  for (; i < text.size; ++i) total += test(data[i]);
  return total;
}

// A Format has ends_token(c), read_line(p), which leaves p at the line's '\n' or says false after fail(), and
// wrong_token_end().
template <typename Format, typename Options, typename Rows>
class LineReader {
 public:
  LineReader(const Options& options, Rows& rows) : options_(options), rows_(rows) {}

  // Each entry must have a byte of its own that passes the test `marks_entry`; each row but a text's last has
  // a newline. So the arrays never grow, unless a format adds entries of its own.
  template <typename Test>
  void read_all(const std::vector<Text>& texts, Test marks_entry) {
    for (const Text& text : texts) {
      max_entries_ += count_bytes(text, marks_entry);
      max_rows_ += count_bytes(text, [](char c) { return c == '\n'; }) + 1;
    }
    rows_.indices.make(max_entries_);
    rows_.values.make(max_entries_);
    rows_.indptr.make(max_rows_ + 1);
    rows_.y.make(max_rows_);
    rows_.indptr.data()[0] = 0;
    for (const Text& text : texts)
      if (!read(text)) return;
  }

 protected:
  bool fail(const char* fault, const char* token) {
    fault_ = fault;
    token_ = token;
    return false;
  }

  const char* line_end(const char* p) const {
    return static_cast<const char*>(std::memchr(p, '\n', static_cast<size_t>(end_ - p)));
  }

  // Whether the token spells nan, inf or infinity.
  static bool spells_not_finite(const char* p) {
    p = behind_not_finite(p);
    return p && Format::ends_token(*p);
  }

  // Moves p behind a value, which ends before `end`.
  inline bool read_value(const char*& p, const char* end, float& value, const char* not_a_number,
                         const char* not_finite) {
    const char* const start = p;
    if (is_digit(p[0]) && Format::ends_token(p[1])) {  // counts and one-hot codes
      value = static_cast<float>(*p++ - '0');
      return true;
    }
    Decimal x;
    if (!scan_decimal(p, end, x) || !Format::ends_token(*p))
      return fail(spells_not_finite(start) ? not_finite : not_a_number, start);
    if (is_exact(x)) {
      value = static_cast<float>(exact_double(x));  // at most 2^53 * 10^22, which a float can hold
      return true;
    }
    value = rounded_float(x, start, p);
    return std::fabs(value) <= FLT_MAX || fail(not_finite, start);
  }

  // Rows and entries count only once the whole line is good.
  void add_row(double label, int64_t n_entries) {
    rows_.y.data()[rows_.n_rows++] = label;
    rows_.n_entries = rows_.indptr.data()[rows_.n_rows] = n_entries;
  }

  const Options& options_;
  Rows& rows_;
  int64_t max_rows_ = 0, max_entries_ = 0;
  int64_t first_row_ = 0;  // of this text
  const char* end_ = nullptr;
  const char* fault_ = "";
  const char* token_ = nullptr;

 private:
  // False: there was a bad line and none may be skipped.
  bool read(const Text& text) {
    rows_.text_rows.push_back(0);
    rows_.text_bad.push_back(0);
    first_row_ = rows_.n_rows;
    int64_t whole = text.size;
    while (whole > 0 && text.data[whole - 1] != '\n') --whole;
    bool good = read_lines(text.data, text.data + whole, 0);
    if (good && whole < text.size) {
      std::vector<char> last(text.data + whole, text.data + text.size);
      last.push_back('\n');
      good = read_lines(last.data(), last.data() + last.size(), whole);
    }
    rows_.text_rows.back() = rows_.n_rows - first_row_;
    return good;
  }

  // Lines that end in '\n' and lie `offset` bytes behind the start of the text.
  bool read_lines(const char* begin, const char* end, int64_t offset) {
    end_ = end;
    for (const char* p = begin; p < end; ++p) {
      const char* line = p;
      if (static_cast<Format*>(this)->read_line(p)) continue;
      note(begin, line, offset);
      if (!options_.skip_bad) return false;
      p = line_end(line);
    }
    return true;
  }

  void note(const char* begin, const char* line, int64_t offset) {
    if (std::memchr(line, '\0', static_cast<size_t>(line_end(line) - line))) fault_ = "binary";
    if (++rows_.text_bad.back() > kBadLinesKept) return;
    const char* const stop = static_cast<Format*>(this)->wrong_token_end();
    rows_.bad.push_back({static_cast<int64_t>(rows_.text_bad.size()) - 1, line - begin + offset,
                         token_ - begin + offset, stop - token_, fault_});
  }
};

}  // namespace steepest
