// SPDX-License-Identifier: Apache-2.0
// One row after the other to its hashed features.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "core/rows.h"
#include "text/hash.h"
#include "text/row_sum.h"
#include "text/text.h"

namespace steepest {

constexpr uint64_t kCharacterMark = 0x3C3E;  // "<>": words and character n-grams of the same letters differ
constexpr size_t kCountsAhead = 24;          // prefetched: a trip to memory takes as long as so many entries

// A task and what follows from it for all rows.
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

 private:
  // Of small counts, made once: a thousand logarithms cost more than a text of twenty words.
  static const std::vector<double>& small_logs() {
    static const std::vector<double> logs = [] {
      std::vector<double> made(1 << 15);
      for (size_t count = 0; count < made.size(); ++count) made[count] = log1p(static_cast<double>(count));
      return made;
    }();
    return logs;
  }
};

// 1 + log(times), the weight of a word that comes so often in its row; few come more than some dozen times.
inline float damped(float times) {
  constexpr size_t kOften = 256;
  static const std::vector<float> known = [] {
    std::vector<float> made(kOften);
    for (size_t k = 1; k < kOften; ++k) made[k] = 1 + logf(static_cast<float>(k));
    return made;
  }();
  if (times < 1) return times;  // only in a bag, whose counts may be any numbers
  const size_t whole = times < kOften ? static_cast<size_t>(times) : 0;
  return static_cast<float>(whole) == times ? known[whole] : 1 + logf(times);
}

// To length 1, or so that c copies are together as long as one feature.
inline void scale(const HashOptions& options, float* x, size_t n) {
  double factor = 1 / sqrt(static_cast<double>(options.copies));
  if (options.normalise) {
    const double square = squared_length(x, static_cast<int64_t>(n));
    factor = square > 0 ? 1 / sqrt(square) : 1;
  }
  if (static_cast<float>(factor) != 1)
    for (size_t k = 0; k < n; ++k) x[k] *= static_cast<float>(factor);
}

// What rows with a feature are counted by: the same bucket of all columns is one.
inline int32_t bucket_mask(const HashOptions& options) {
  return static_cast<int32_t>((1u << options.n_bits) - 1);
}

// Leaves out the features that too few rows have; returns how many are left.
inline size_t leave_out_rare(const HashOptions& options, const uint32_t* counts, int32_t* index, float* x,
                             size_t n) {
  if (options.min_rows <= 1) return n;
  const int32_t mask = bucket_mask(options);
  size_t kept = 0;
  for (size_t k = 0; k < n; ++k) {
    index[kept] = index[k];
    x[kept] = x[k];
    kept += counts[index[k] & mask] >= options.min_rows;
  }
  return kept;
}

// Counts the words, then weighs them by the rows up to and including this one; returns how many are left.
inline size_t count_and_weigh(const Plan& plan, int64_t row, int32_t* index, float* x, size_t n) {
  uint32_t* const counts = plan.task.count_documents;
  const int32_t mask = bucket_mask(plan.task.recipe.options);
  const double log_rows = 1 + log1p(plan.task.n_documents + static_cast<double>(row + 1));
  for (size_t k = 0; k < std::min(n, kCountsAhead); ++k) PREFETCH(counts + (index[k] & mask));
  for (size_t k = 0; k < n; ++k) {
    if (k + kCountsAhead < n) PREFETCH(counts + (index[k + kCountsAhead] & mask));
    const uint32_t count = ++counts[index[k] & mask];
    x[k] = static_cast<float>(x[k] * (log_rows - plan.log_count(count)));
  }
  n = leave_out_rare(plan.task.recipe.options, counts, index, x, n);
  scale(plan.task.recipe.options, x, n);
  return n;
}

// How to name the features of a batch: the n-grams of words by their place, everything else by its text.
struct WordNamer {
  Words& words;
  const std::string& prefix;
  uint32_t n;

  void log(NameLog& log, uint32_t bucket, uint32_t fingerprint, size_t i) const {
    log.add_words(bucket, fingerprint, static_cast<uint32_t>(i), n);
  }
  std::string text(size_t i) const {
    std::string name = prefix;
    for (uint32_t k = static_cast<uint32_t>(i); k < i + n; ++k) {
      if (k > i) name += ' ';
      name.append(reinterpret_cast<const char*>(words.bytes()) + words.start(k), words.size(k));
    }
    return name;
  }
};

template <typename F>
struct TextNamer {
  F text;
  void log(NameLog& log, uint32_t bucket, uint32_t fingerprint, size_t i) const {
    log.add_text(bucket, fingerprint, text(i));
  }
};

template <typename F>
TextNamer<F> named(F text) {
  return {text};
}

// The features of one column in one row that take part in crosses. Those of a text are counts, worth 1 each.
struct Features {
  std::vector<uint64_t> hashes;
  std::vector<float> values;
  std::vector<std::string> names;  // only in rows that are read into the book of names
  bool is_text = false;

  void clear() {
    hashes.clear();
    values.clear();
    names.clear();
    is_text = false;
  }
};

// How people write that a category is missing, in lower case; an empty value is, too.
inline bool is_missing_mark(Span value) {
  constexpr const char* kMarks[] = {"?", "-", "na", "n/a", "nan", "null", "none", "<na>", "#n/a"};
  constexpr int64_t kLongest = 4;
  if (value.size == 0) return true;
  if (value.size > kLongest) return false;
  char lower[kLongest];
  for (int64_t k = 0; k < value.size; ++k)
    lower[k] =
        static_cast<char>(value.data[k] >= 'A' && value.data[k] <= 'Z' ? value.data[k] + 32 : value.data[k]);
  for (const char* mark : kMarks)
    if (static_cast<int64_t>(strlen(mark)) == value.size && !memcmp(mark, lower, strlen(mark))) return true;
  return false;
}

class RowHasher {
 public:
  explicit RowHasher(const Recipe& recipe)
      : recipe_(recipe),
        options_(recipe.options),
        words_(options_.lowercase, static_cast<uint32_t>(options_.min_letters)),
        features_(recipe.readers.size()),
        copy_value_(static_cast<float>(1 / sqrt(static_cast<double>(options_.copies)))),
        row_(options_.n_bits, options_.is_signed),
        block_(options_.n_bits, options_.is_signed) {}

  // Rows of this plan follow, with about so many features in all.
  void begin(const Plan& plan, size_t likely) {
    plan_ = &plan;
    touched_.assign(plan.task.book ? NameBook::kSampledBuckets / 64 : 0, 0);
    row_.expect(likely);
    if (!recipe_.is_one_text()) block_.expect(likely);
    rows_.reserve(likely);
  }
  void forget_rows() { rows_ = HashedRows(); }

  // With a log: its features' names are written there.
  void add_row(int64_t row, NameLog* log) {
    log_ = log;
    row_.clear();
    singles_.clear();
    single_values_.clear();
    size_t n;
    if (recipe_.is_one_text()) {
      n = read_one_text(row);
    } else {
      for (size_t k = 0; k < features_.size(); ++k) {
        begin_column(k);
        read(k, row);
      }
      add_crosses(row);
      insert_singles();
      write_out();
      n = row_.size();
    }
    if (plan_->task.book) {
      const int32_t* const index = indices();
      for (size_t k = 0; k < n; ++k)
        if (const uint32_t j = static_cast<uint32_t>(index[k]); j < NameBook::kSampledBuckets)
          touched_[j / 64] |= uint64_t{1} << j % 64;
    }
    rows_.indptr.push_back(rows_.indptr.back() + static_cast<int64_t>(n));
  }

  // The different words of a text or a bag in one row, by hash.
  const std::vector<uint64_t>& different_words(const Field& field, size_t k, int64_t row) {
    const ColumnReader& reader = recipe_.readers[k];
    word_hashes_.clear();
    if (field.kind == kText) {
      if (const Span value = field.texts.at(row); value.data) find_words(reader, value);
    } else if (field.kind == kBag) {
      for (int64_t i = field.starts[row]; i < field.starts[row + 1]; ++i) {
        const uint64_t hash = labelled("", field.texts.at(i), reader.key);
        if (field.numbers[i] != 0 && keeps(reader, hash)) word_hashes_.push_back(hash);
      }
    }
    std::sort(word_hashes_.begin(), word_hashes_.end());
    word_hashes_.erase(std::unique(word_hashes_.begin(), word_hashes_.end()), word_hashes_.end());
    return word_hashes_;
  }

  HashedRows& rows() { return rows_; }
  const uint64_t* touched() const { return touched_.data(); }

  // That it holds on to; all else is in proportion to these.
  size_t n_bytes() const {
    const size_t n_hashes =
        word_hashes_.capacity() + grams_.capacity() + singles_.capacity() + copied_.capacity();
    return words_.n_bytes() + scratch_.capacity() + n_hashes * sizeof(uint64_t) + row_.n_bytes() +
           block_.n_bytes();
  }

 private:
  // Of the row that is being made.
  int32_t* indices() { return rows_.indices.data() + rows_.size(); }
  float* values() { return rows_.values.data() + rows_.size(); }

  // The row is the block of its text, or the mark of a missing one; returns how many features it has.
  size_t read_one_text(int64_t row) {
    const ColumnReader& reader = recipe_.readers[0];
    const Span value = plan_->task.fields[0].texts.at(row);
    if (value.data) {
      read_text(row_, reader, features_[0], value);
    } else {
      grams_.assign(1, reader.missing);
      insert(row_, grams_, 1, 1, named([&](size_t) { return reader.label + kMissing; }));
    }
    write_out();
    return weigh(row, indices(), values(), row_.size());
  }

  // What follows belongs to this column, or to a cross behind all columns.
  void begin_column(size_t k) {
    if (!options_.by_column) return;
    insert_singles();
    first_bucket_ = static_cast<uint32_t>(k) << options_.n_bits;
    row_.set_first_bucket(first_bucket_);
    block_.set_first_bucket(first_bucket_);
  }

  void read(size_t k, int64_t row) {
    const ColumnReader& reader = recipe_.readers[k];
    Features& features = features_[k];
    features.clear();
    const Field& field = plan_->task.fields[k];
    if (field.kind == kNumber) return read_number(reader, features, field.numbers[row]);
    if (field.kind == kBag) return read_bag(reader, field, row);
    const Span value = field.texts.at(row);
    if (!value.data) return read_missing(reader, features);
    if (field.kind == kText) {
      features.is_text = true;
      read_text(block_, reader, features, value);
      return close_block(row, 1);
    }
    if (is_missing_mark(value)) return read_missing(reader, features);
    return field.kind == kList ? read_list(reader, features, value) : read_category(reader, features, value);
  }

  bool keeps(const ColumnReader& reader, uint64_t hash) const {
    return !reader.stop_words.contains(hash) && (!recipe_.filter || recipe_.filter->keeps(hash));
  }

  // The words of a text that are not left out, with their hashes.
  void find_words(const ColumnReader& reader, Span document) {
    words_.read(document);
    const uint8_t* const bytes = words_.bytes();
    word_hashes_.resize(words_.count());
    for (uint32_t i = 0; i < words_.count(); ++i)
      word_hashes_[i] = hash_bytes(bytes + words_.start(i), words_.size(i), reader.key);
    if (reader.stop_words.empty() && !recipe_.filter) return;
    size_t kept = 0;
    words_.select([&](uint32_t i) {
      const uint64_t hash = word_hashes_[i];
      const bool stays = keeps(reader, hash);
      if (stays) word_hashes_[kept++] = hash;
      return stays;
    });
    word_hashes_.resize(kept);
  }

  void read_text(RowSum& sum, const ColumnReader& reader, Features& features, Span document) {
    find_words(reader, document);
    if (log_)
      log_->begin_page(reader.prefix, reinterpret_cast<const char*>(words_.bytes()), words_.bounds(),
                       words_.count());
    read_word_grams(sum, reader, features);
    if (options_.char_ngrams.second > 0) read_character_grams(sum, reader, features);
  }

  // An n-gram is the mix of the (n-1)-gram that starts with it and its last word.
  void read_word_grams(RowSum& sum, const ColumnReader& reader, Features& features) {
    const size_t n_words = word_hashes_.size();
    grams_ = word_hashes_;
    for (size_t n = 1; n <= static_cast<size_t>(options_.ngrams.second) && n <= n_words; ++n) {
      const size_t count = n_words - n + 1;
      for (size_t i = 0; n > 1 && i < count; ++i) grams_[i] = mix(grams_[i], word_hashes_[i + n - 1]);
      if (n < static_cast<size_t>(options_.ngrams.first)) continue;
      emit(sum, reader, features, count, WordNamer{words_, reader.prefix, static_cast<uint32_t>(n)});
    }
  }

  // All runs of low..high characters in <word>; of a word shorter than low, the whole. A mark alone is not a
  // feature.
  void read_character_grams(RowSum& sum, const ColumnReader& reader, Features& features) {
    const uint64_t key = reader.key ^ kCharacterMark;
    const uint32_t low = static_cast<uint32_t>(options_.char_ngrams.first);
    const uint32_t high = static_cast<uint32_t>(options_.char_ngrams.second);
    uint8_t* const bytes = words_.bytes();
    std::vector<std::pair<uint32_t, uint32_t>> runs;
    for (uint32_t i = 0; i < words_.count(); ++i) {
      uint8_t* const word = bytes + static_cast<int64_t>(words_.start(i)) - 1;
      const uint32_t size = words_.size(i) + 2;
      word[0] = '<';
      word[size - 1] = '>';
      letters_.clear();  // where each character begins
      for (uint32_t k = 0; k < size; ++k)
        if ((word[k] & 0xC0) != 0x80) letters_.push_back(k);
      const uint32_t n_letters = static_cast<uint32_t>(letters_.size());
      letters_.push_back(size);
      grams_.clear();
      runs.clear();
      for (uint32_t n = std::min(low, n_letters); n <= std::min(high, n_letters); ++n)
        for (uint32_t k = n == 1; k + n <= n_letters - (n == 1); ++k) {
          runs.emplace_back(letters_[k], letters_[k + n] - letters_[k]);
          grams_.push_back(hash_bytes(word + runs.back().first, runs.back().second, key));
        }
      emit(sum, reader, features, grams_.size(), named([&](size_t k) {
             const char* const text = reinterpret_cast<const char*>(word) + runs[k].first;
             return reader.prefix + "'" + std::string(text, runs[k].second) + "'";
           }));
    }
  }

  void read_bag(const ColumnReader& reader, const Field& field, int64_t row) {
    for (int64_t i = field.starts[row]; i < field.starts[row + 1]; ++i) {
      const Span word = field.texts.at(i);
      alone_.assign(1, labelled("", word, reader.key));
      const float count = static_cast<float>(field.numbers[i]);
      if (count != 0 && keeps(reader, alone_[0]))
        insert(block_, alone_, 1, count, named([&](size_t) { return name_of(reader.prefix, word); }));
    }
    close_block(row, 1);
  }

  void read_category(const ColumnReader& reader, Features& features, Span value) {
    emit_value(reader, features, reader.label, value, 1);
    if (reader.separators.empty()) return;
    find_parts(reader, value);
    if (parts_.size() < 2) return;
    const float share = static_cast<float>(1 / sqrt(static_cast<double>(parts_.size())));
    for (Span part : parts_) {
      const uint64_t hash = labelled(reader.part_label, part, reader.seed_key);
      put(hash, share, named([&](size_t) { return name_of(reader.part_label, part); }));
    }
  }

  void read_list(const ColumnReader& reader, Features& features, Span value) {
    find_parts(reader, value);
    const float share = static_cast<float>(1 / sqrt(static_cast<double>(parts_.size())));
    for (Span part : parts_) emit_value(reader, features, reader.label, part, share);
  }

  // What is between separators, without spaces at the ends.
  void find_parts(const ColumnReader& reader, Span value) {
    parts_.clear();
    for (int64_t start = 0, end; start <= value.size; start = end + 1) {
      for (end = start; end < value.size && !reader.is_separator[value.data[end]];) ++end;
      int64_t first = start, last = end;
      while (first < last && value.data[first] == ' ') ++first;
      while (first < last && value.data[last - 1] == ' ') --last;
      if (first < last) parts_.push_back({value.data + first, last - first});
    }
  }

  static std::string name_of(const std::string& label, Span value) {
    return label + std::string(reinterpret_cast<const char*>(value.data), static_cast<size_t>(value.size));
  }

  uint64_t labelled(const std::string& label, Span value, uint64_t key) {
    const size_t size = label.size() + static_cast<size_t>(value.size);
    if (scratch_.size() < size + 16) scratch_.resize(size + 16);
    memcpy(scratch_.data(), label.data(), label.size());
    memcpy(scratch_.data() + label.size(), value.data, static_cast<size_t>(value.size));
    return hash_bytes(scratch_.data(), size, key);
  }

  void emit_value(const ColumnReader& reader, Features& features, const std::string& label, Span value,
                  float worth) {
    const uint64_t hash = labelled(label, value, reader.seed_key);
    emit_single(reader, features, hash, worth, named([&](size_t) { return name_of(label, value); }));
  }

  // The line, and the hats where there are knots; only these take part in crosses then.
  void read_number(const ColumnReader& reader, Features& features, double number) {
    if (isnan(number)) return read_missing(reader, features);
    const auto name = named([&](size_t) { return reader.name; });
    const std::vector<double>& knots = reader.knots;
    if (const float line = static_cast<float>((number - reader.centre) / reader.scale); line != 0) {
      if (knots.empty())
        emit_single(reader, features, reader.number, line, name);
      else
        put(reader.number, line, name);
    }
    if (knots.empty()) return;
    const size_t next =
        static_cast<size_t>(std::upper_bound(knots.begin(), knots.end(), number) - knots.begin());
    if (next == 0) return emit_knot(reader, features, 0, 1);
    if (next == knots.size() || number == knots[next - 1]) return emit_knot(reader, features, next - 1, 1);
    const double t = (number - knots[next - 1]) / (knots[next] - knots[next - 1]);
    emit_knot(reader, features, next - 1, static_cast<float>(1 - t));
    emit_knot(reader, features, next, static_cast<float>(t));
  }

  void emit_knot(const ColumnReader& reader, Features& features, size_t knot, float worth) {
    emit_single(reader, features, reader.knot_hashes[knot], worth,
                named([&](size_t) { return reader.knot_names[knot]; }));
  }

  void read_missing(const ColumnReader& reader, Features& features) {
    emit_single(reader, features, reader.missing, 1, named([&](size_t) { return reader.label + kMissing; }));
  }

  // Hands over the first n hashes of grams_.
  template <typename Namer>
  void emit(RowSum& sum, const ColumnReader& reader, Features& features, size_t n, const Namer& name) {
    insert(sum, grams_, n, 1, name);
    if (!reader.crossed) return;
    features.hashes.insert(features.hashes.end(), grams_.begin(), grams_.begin() + n);
    for (size_t i = 0; log_ && i < n; ++i) features.names.push_back(name.text(i));
  }

  template <typename Namer>
  void emit_single(const ColumnReader& reader, Features& features, uint64_t hash, float value,
                   const Namer& name) {
    put(hash, value, name);
    if (!reader.crossed) return;
    features.hashes.push_back(hash);
    features.values.push_back(value);
    if (log_) features.names.push_back(name.text(0));
  }

  // Features that come alone wait for their neighbours: to insert one costs almost as much as to insert ten.
  template <typename Namer>
  void put(uint64_t hash, float value, const Namer& name) {
    if (log_ || options_.copies > 1) {
      alone_.assign(1, hash);
      return insert(row_, alone_, 1, value * copy_value_, name);
    }
    singles_.push_back(hash);
    single_values_.push_back(value);
  }

  void insert_singles() {
    row_.make_room(singles_.size());
    for (size_t k = 0; k < singles_.size(); ++k) row_.add_hash(singles_[k], single_values_[k]);
    singles_.clear();
    single_values_.clear();
  }

  // The words of a block are weighed by themselves and added to the row, behind all that came before.
  void close_block(int64_t row, float factor) {
    insert_singles();
    size_t n = block_.size();
    block_indices_.resize(n);
    block_values_.resize(n);
    for (size_t k = 0; k < n; ++k) {
      block_indices_[k] = static_cast<int32_t>(block_.bucket(k));
      block_values_[k] = block_.value(k);
    }
    block_.clear();
    n = weigh(row, block_indices_.data(), block_values_.data(), n);
    row_.make_room(n);
    for (size_t k = 0; k < n; ++k)
      row_.add_value(static_cast<uint32_t>(block_indices_[k]), block_values_[k] * factor);
  }

  void add_crosses(int64_t row) {
    size_t next = features_.size();
    for (const auto& pair : recipe_.crosses) {
      begin_column(next++);
      const Features &a = features_[pair.first], &b = features_[pair.second];
      const auto name_of_pair = [&](size_t i, size_t k) { return a.names[i] + "#" + b.names[k]; };
      if (b.is_text) {  // words of b with each feature of a: a block each, unless these are words, too
        for (size_t i = 0; i < a.hashes.size(); ++i) {
          grams_.resize(b.hashes.size());
          for (size_t k = 0; k < b.hashes.size(); ++k) grams_[k] = mix(a.hashes[i], b.hashes[k]);
          insert(block_, grams_, grams_.size(), 1, named([&](size_t k) { return name_of_pair(i, k); }));
          if (!a.is_text) close_block(row, a.values[i]);
        }
        if (a.is_text) close_block(row, 1);
        continue;
      }
      for (size_t k = 0; k < b.hashes.size(); ++k) {
        if (a.is_text) {
          grams_.resize(a.hashes.size());
          for (size_t i = 0; i < a.hashes.size(); ++i) grams_[i] = mix(a.hashes[i], b.hashes[k]);
          insert(block_, grams_, grams_.size(), 1, named([&](size_t i) { return name_of_pair(i, k); }));
          close_block(row, b.values[k]);
          continue;
        }
        for (size_t i = 0; i < a.hashes.size(); ++i)
          put(mix(a.hashes[i], b.hashes[k]), a.values[i] * b.values[k],
              named([&](size_t) { return name_of_pair(i, k); }));
      }
    }
  }

  template <typename Namer>
  void insert(RowSum& sum, const std::vector<uint64_t>& hashes, size_t n, float value, const Namer& name) {
    for (int32_t copy = 0; copy < options_.copies; ++copy) {
      const uint64_t* these = hashes.data();
      if (copy) {
        copied_.resize(n);
        for (size_t i = 0; i < n; ++i) copied_[i] = copy_hash(hashes[i], static_cast<uint64_t>(copy));
        these = copied_.data();
      }
      sum.make_room(n);
      // The row is weighed soon. Asked for now, the counts come while features are added up.
      const uint32_t* const counts = plan_->counts_and_weighs() ? nullptr : plan_->task.document_counts;
      if (counts)
        for (size_t i = 0; i < n; ++i) PREFETCH(counts + bucket_of(these[i], options_.n_bits));
      if (!log_) {
        sum.add<false>(these, n, value, nullptr);
        continue;
      }
      is_new_.resize(n);
      sum.add<true>(these, n, value, is_new_.data());
      for (size_t i = 0; i < n; ++i) {
        if (!is_new_[i]) continue;
        name.log(*log_, bucket_of(these[i], options_.n_bits) | first_bucket_, static_cast<uint32_t>(these[i]),
                 i);
      }
    }
  }

  void write_out() {
    rows_.reserve(rows_.size() + row_.size());
    int32_t* const index = indices();
    float* const x = values();
    for (size_t k = 0; k < row_.size(); ++k) {
      index[k] = static_cast<int32_t>(row_.bucket(k));
      x[k] = row_.value(k);
    }
  }

  // Turns the counts of one block into values; returns how many features are left.
  size_t weigh(int64_t row, int32_t* index, float* x, size_t n) {
    if (options_.weighting == kBinary)
      for (size_t k = 0; k < n; ++k) x[k] = static_cast<float>((x[k] > 0) - (x[k] < 0));
    if (options_.weighting == kLog)
      for (size_t k = 0; k < n; ++k)
        if (x[k] != 0 && fabsf(x[k]) != 1) x[k] = copysignf(damped(fabsf(x[k])), x[k]);
    if (plan_->counts_and_weighs())  // of several parts when all rows are there
      return plan_->n_parts == 1 ? count_and_weigh(*plan_, row, index, x, n) : n;
    if (uint32_t* const counts = plan_->task.count_documents) count_documents(counts, index, n);
    if (const uint32_t* const counts = plan_->task.document_counts) {
      n = leave_out_rare(options_, counts, index, x, n);
      for (size_t k = 0; k < n; ++k)
        x[k] = static_cast<float>(x[k] * plan_->inverse_frequency(counts[index[k] & mask_]));
    }
    scale(options_, x, n);
    return n;
  }

  // Sums of whole numbers do not depend on the order, so all threads may count in one array.
  void count_documents(uint32_t* counts, const int32_t* index, size_t n) const {
    if (plan_->n_parts == 1) {
      for (size_t k = 0; k < n; ++k) ++counts[index[k] & mask_];
      return;
    }
    static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "counts are taken for atomic ones");
    auto* const shared = reinterpret_cast<std::atomic<uint32_t>*>(counts);
    for (size_t k = 0; k < n; ++k) shared[index[k] & mask_].fetch_add(1, std::memory_order_relaxed);
  }

  const Recipe& recipe_;
  const HashOptions& options_;
  const int32_t mask_ = bucket_mask(options_);
  uint32_t first_bucket_ = 0;
  const Plan* plan_ = nullptr;
  Words words_;
  std::vector<uint64_t> word_hashes_, grams_, singles_, alone_, copied_;
  std::vector<float> single_values_, block_values_;
  std::vector<int32_t> block_indices_;
  std::vector<Span> parts_;
  std::vector<uint32_t> letters_;
  std::vector<uint8_t> scratch_, is_new_;
  std::vector<Features> features_;
  std::vector<uint64_t> touched_;
  NameLog* log_ = nullptr;
  const float copy_value_;  // of one copy of a feature that is worth 1
  HashedRows rows_;
  RowSum row_, block_;
};

}  // namespace steepest
