// SPDX-License-Identifier: Apache-2.0
// One row after the other to its hashed features: what is known of the columns before, and a row's way
// through them.
#pragma once
#include <math.h>
#include <stdint.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hash.h"
#include "row_sum.h"
#include "text.h"

namespace steepest {

constexpr char kMissing[] = "<missing>";

uint64_t hash_string(const std::string& text, uint64_t key);

// Which words to leave out, by hash.
class StopWords {
 public:
  StopWords(const std::vector<std::string>& words, uint64_t key) {
    for (const std::string& word : words) hashes_.push_back(hash_string(word, key));
    std::sort(hashes_.begin(), hashes_.end());
    // One bit of a small filter answers for almost every word that is not a stop word.
    filter_.resize(hashes_.empty() ? 0 : 1024);
    for (uint64_t hash : hashes_) filter_[hash >> 48 & 1023] |= uint64_t{1} << (hash >> 58);
  }
  bool empty() const { return hashes_.empty(); }
  bool contain(uint64_t hash) const {
    return (filter_[hash >> 48 & 1023] >> (hash >> 58) & 1) &&
           std::binary_search(hashes_.begin(), hashes_.end(), hash);
  }

 private:
  std::vector<uint64_t> hashes_, filter_;
};

// What is known about a column before the first row.
struct ColumnReader {
  ColumnReader(const Column& column, uint64_t seed, const std::vector<std::string>& stop_words, bool crossed)
      : column(column),
        crossed(crossed),
        label(column.name.empty() ? "" : column.name + "="),
        seed_key(key_of_seed(seed)),
        key(field_key(column.name, seed)),
        missing(hash_string(label + kMissing, seed_key)),
        number(hash_string(column.name, seed_key)),
        stop_words(column.kind == kText ? stop_words : std::vector<std::string>(), key) {}

  Column column;
  bool crossed;
  std::string label;         // stands before values
  uint64_t seed_key, key;    // of values, and of words
  uint64_t missing, number;  // the hashes of these features
  StopWords stop_words;
};

class RowHasher;

// How rows are hashed: all that does not depend on them. It is made once, since for a single short text that
// takes longer than the text; the hashers in it are used again and again, each by one thread at a time.
class Recipe {
 public:
  struct Return {
    const Recipe* recipe;
    void operator()(RowHasher* hasher) const;
  };
  typedef std::unique_ptr<RowHasher, Return> Borrowed;

  Recipe(const HashOptions& options, const std::vector<Column>& columns, Crosses crosses,
         const std::vector<std::string>& stop_words);
  ~Recipe();

  // A hasher for one thread, which comes back by itself.
  Borrowed borrow() const;

  const HashOptions options;
  const Crosses crosses;
  std::vector<ColumnReader> readers;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<RowHasher>> idle_;
};

// log(1 + count) of small counts, made once: a thousand logarithms cost more than a text of twenty words.
const std::vector<double>& small_logs();

struct Plan {
  Plan(const HashTask& task, int64_t n_parts)
      : task(task), n_parts(n_parts), logs(small_logs()), log_rows(1 + log1p(task.n_documents)) {}

  double inverse_frequency(uint32_t count) const { return log_rows - log_count(count); }
  double log_count(uint32_t count) const { return count < logs.size() ? logs[count] : log1p(count); }
  // Each row is counted and then weighted by what was counted so far, which takes rows one after the other.
  bool counts_and_weighs() const { return task.count_documents && task.document_counts; }

  const HashTask& task;
  int64_t n_parts;
  const std::vector<double>& logs;  // log(1 + count)
  double log_rows;                  // 1 + log(1 + rows)
};

// Counts the words of a row, then weighs them by the rows up to and with this one.
void count_and_weigh(const Plan& plan, int64_t row, const int32_t* index, float* x, size_t n);

// The features of one column in one row. They all have the same value: 1, or the number in the column.
struct Features {
  std::vector<uint64_t> hashes;
  std::vector<std::string> names;  // only in rows that are read into the book of names
  float value = 1;
  bool is_number = false;

  void clear() {
    hashes.clear();
    names.clear();
    value = 1;
    is_number = false;
  }
};

class RowHasher {
 public:
  explicit RowHasher(const Recipe& recipe)
      : recipe_(recipe),
        options_(recipe.options),
        words_(options_.lowercase, static_cast<uint32_t>(options_.min_letters)),
        features_(recipe.readers.size()),
        row_(options_.n_bits, options_.is_signed) {}

  // Rows of this plan follow, with about so many features in all.
  void begin(const Plan& plan, size_t likely);
  void forget_rows() { rows_ = HashedRows(); }

  // With a log: its features' names are written there.
  void add_row(int64_t row, NameLog* log);

  HashedRows& rows() { return rows_; }
  const uint64_t* touched() const { return touched_.data(); }
  size_t n_bytes() const;  // that it holds on to

 private:
  void read(size_t k, int64_t row);
  void read_text(const ColumnReader& reader, Features& features, Span document);
  void read_word_grams(const ColumnReader& reader, Features& features);
  void read_character_grams(const ColumnReader& reader, Features& features);
  void read_category(const ColumnReader& reader, Features& features, Span value);
  void read_number(const ColumnReader& reader, Features& features, double number);
  void read_missing(const ColumnReader& reader, Features& features);
  bool is_number(std::pair<int32_t, int32_t> cross) const;
  void cross(const Features& a, const Features& b, float factor);
  template <typename Namer>
  void emit(const ColumnReader& reader, Features& features, size_t n, const Namer& name);
  template <typename Namer>
  void emit_single(const ColumnReader& reader, Features& features, uint64_t hash, const Namer& name);
  void insert_singles();
  template <typename Namer>
  void insert(const std::vector<uint64_t>& hashes, size_t n, float value, const Namer& name);
  void add_numbers();
  void write_out();
  void weigh(int64_t row);
  void count_documents(uint32_t* counts, const int32_t* index, size_t n) const;
  int32_t* indices() { return rows_.indices.data() + rows_.size; }
  float* values() { return rows_.values.data() + rows_.size; }

  const Recipe& recipe_;
  const HashOptions& options_;
  const Plan* plan_ = nullptr;
  Words words_;
  std::vector<uint64_t> word_hashes_, grams_, singles_, copied_;
  std::vector<uint32_t> letters_;
  std::vector<uint8_t> scratch_, is_new_;
  std::vector<Features> features_;
  std::vector<uint64_t> touched_;
  NameLog* log_ = nullptr;
  bool has_number_ = false;
  HashedRows rows_;
  RowSum row_;
};

}  // namespace steepest
