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

#include "hash.h"
#include "row_sum.h"

#if defined(_MSC_VER) && !defined(__clang__)
#define PREFETCH(address) ((void)(address))
#else
#define PREFETCH(address) __builtin_prefetch(address)
#endif

namespace steepest {
namespace {

constexpr uint64_t kCharacterMark = 0x3C3E;  // "<>": words and character n-grams of the same letters differ
constexpr char kMissing[] = "<missing>";
constexpr int64_t kBytesPerThread = 1 << 16;  // below that a thread costs more than it brings
constexpr int64_t kLoggedPerWave = 1 << 17;   // bytes of text a thread; keeps the log of names in cache
constexpr uint32_t kSmallCounts = 1024;       // document counts whose logarithm is looked up

uint64_t hash_string(const std::string& text, uint64_t key) {
  std::vector<uint8_t> padded(text.begin(), text.end());
  padded.resize(text.size() + 16);
  return hash_bytes(padded.data(), text.size(), key);
}

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
struct Reader {
  Reader(const Field& field, const HashTask& task, bool crossed)
      : field(&field),
        crossed(crossed),
        label(field.name.empty() ? "" : field.name + "="),
        seed_key(key_of_seed(task.options.seed)),
        key(field_key(field.name, task.options.seed)),
        missing(hash_string(label + kMissing, seed_key)),
        number(hash_string(field.name, seed_key)),
        stop_words(field.kind == kText ? task.stop_words : std::vector<std::string>(), key) {}

  const Field* field;
  bool crossed;
  std::string label;         // stands before values
  uint64_t seed_key, key;    // of values, and of words
  uint64_t missing, number;  // the hashes of these features
  StopWords stop_words;
};

// log(1 + count) of small counts, made once: a thousand logarithms cost more than a text of twenty words.
const std::vector<double>& small_logs() {
  static const std::vector<double> logs = [] {
    std::vector<double> made(kSmallCounts);
    for (uint32_t count = 0; count < kSmallCounts; ++count) made[count] = log1p(count);
    return made;
  }();
  return logs;
}

struct Plan {
  Plan(const HashTask& task, int64_t n_parts) : task(task), n_parts(n_parts), logs(small_logs()) {
    for (size_t k = 0; k < task.fields.size(); ++k) {
      bool crossed = false;
      for (const auto& pair : task.crosses)
        crossed = crossed || pair.first == static_cast<int32_t>(k) || pair.second == static_cast<int32_t>(k);
      readers.emplace_back(task.fields[k], task, crossed);
    }
    log_rows = 1 + log1p(task.n_documents);
  }

  double inverse_frequency(uint32_t count) const { return log_rows - log_count(count); }
  double log_count(uint32_t count) const { return count < logs.size() ? logs[count] : log1p(count); }
  // Each row is counted and then weighted by what was counted so far, which takes rows one after the other.
  bool counts_and_weighs() const { return task.count_documents && task.document_counts; }

  const HashTask& task;
  int64_t n_parts;
  std::vector<Reader> readers;
  const std::vector<double>& logs;  // log(1 + count)
  double log_rows;                  // 1 + log(1 + rows)
};

// To length 1, or so that c copies are together as long as one feature.
void scale(const HashOptions& options, float* x, size_t n) {
  double factor = 1 / sqrt(static_cast<double>(options.copies));
  if (options.normalise) {
    double squares[4] = {};  // four sums, since one would wait for each addition
    size_t k = 0;
    for (; k + 4 <= n; k += 4)
      for (size_t lane = 0; lane < 4; ++lane) squares[lane] += static_cast<double>(x[k + lane]) * x[k + lane];
    for (; k < n; ++k) squares[0] += static_cast<double>(x[k]) * x[k];
    const double square = (squares[0] + squares[1]) + (squares[2] + squares[3]);
    factor = square > 0 ? 1 / sqrt(square) : 1;
  }
  if (static_cast<float>(factor) != 1)
    for (size_t k = 0; k < n; ++k) x[k] *= static_cast<float>(factor);
}

// Counts the words of a row, then weighs them by the rows up to and with this one.
void count_and_weigh(const Plan& plan, int64_t row, const int32_t* index, float* x, size_t n) {
  uint32_t* const counts = plan.task.count_documents;
  const double log_rows = 1 + log1p(plan.task.n_documents + static_cast<double>(row + 1));
  for (size_t k = 0; k < n; ++k) {
    const uint32_t count = ++counts[index[k]];
    x[k] = static_cast<float>(x[k] * (log_rows - plan.log_count(count)));
  }
  scale(plan.task.options, x, n);
}

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

class RowHasher {
 public:
  // For about so many features in all.
  RowHasher(const Plan& plan, size_t likely)
      : plan_(plan),
        options_(plan.task.options),
        words_(options_.lowercase, static_cast<uint32_t>(options_.min_letters)),
        features_(plan.readers.size()),
        touched_(plan.task.book ? NameBook::kSampledBuckets / 64 : 0),
        row_(options_.n_bits, options_.is_signed, likely) {
    rows_.indices.reserve(likely);
    rows_.values.reserve(likely);
  }

  // With a log: its features' names are written there.
  void add_row(int64_t row, NameLog* log);

  HashedRows& rows() { return rows_; }
  const uint64_t* touched() const { return touched_.data(); }

 private:
  void read(size_t k, int64_t row);
  void read_text(const Reader& reader, Features& features, Span document);
  void read_word_grams(const Reader& reader, Features& features);
  void read_character_grams(const Reader& reader, Features& features);
  void read_category(const Reader& reader, Features& features, Span value);
  void read_number(const Reader& reader, Features& features, double number);
  void read_missing(const Reader& reader, Features& features);
  bool is_number(std::pair<int32_t, int32_t> cross) const;
  void cross(const Features& a, const Features& b, float factor);
  template <typename Namer>
  void emit(const Reader& reader, Features& features, size_t n, const Namer& name);
  template <typename Namer>
  void insert(const std::vector<uint64_t>& hashes, size_t n, float value, const Namer& name);
  void add_numbers();
  void write_out();
  void weigh(int64_t row);
  void count_documents(uint32_t* counts, const int32_t* index, size_t n) const;
  int32_t* indices() { return rows_.indices.data() + rows_.size; }
  float* values() { return rows_.values.data() + rows_.size; }

  const Plan& plan_;
  const HashOptions& options_;
  Words words_;
  std::vector<uint64_t> word_hashes_, grams_, copied_;
  std::vector<uint32_t> letters_;
  std::vector<uint8_t> scratch_, is_new_;
  std::vector<Features> features_;
  std::vector<uint64_t> touched_;
  NameLog* log_ = nullptr;
  bool has_number_ = false;
  HashedRows rows_;
  RowSum row_;
};

void RowHasher::add_row(int64_t row, NameLog* log) {
  log_ = log;
  row_.clear();
  has_number_ = false;
  for (size_t k = 0; k < features_.size(); ++k) read(k, row);
  for (const auto& pair : plan_.task.crosses)
    if (!is_number(pair)) cross(features_[pair.first], features_[pair.second], 1);
  write_out();
  weigh(row);
  if (has_number_) add_numbers();
  if (plan_.task.book) {
    const int32_t* const index = indices();
    for (size_t k = 0; k < row_.size(); ++k)
      if (const uint32_t j = static_cast<uint32_t>(index[k]); j < NameBook::kSampledBuckets)
        touched_[j / 64] |= uint64_t{1} << j % 64;
  }
  rows_.size += row_.size();
  rows_.ends.push_back(static_cast<int64_t>(rows_.size));
}

bool RowHasher::is_number(std::pair<int32_t, int32_t> cross) const {
  return features_[cross.first].is_number || features_[cross.second].is_number;
}

// Numbers, and crosses with them, come to the row when it has been weighed.
void RowHasher::add_numbers() {
  for (size_t k = 0; k < row_.size(); ++k) row_.set(k, values()[k]);
  const float factor = static_cast<float>(1 / sqrt(static_cast<double>(options_.copies)));
  for (size_t k = 0; k < features_.size(); ++k) {
    const Features& own = features_[k];
    if (!own.is_number) continue;
    insert(own.hashes, own.hashes.size(), own.value * factor,
           named([&](size_t) { return plan_.readers[k].field->name; }));
  }
  for (const auto& pair : plan_.task.crosses)
    if (is_number(pair)) cross(features_[pair.first], features_[pair.second], factor);
  write_out();
}

void RowHasher::write_out() {
  rows_.indices.reserve(rows_.size + row_.size());
  rows_.values.reserve(rows_.size + row_.size());
  int32_t* const index = indices();
  float* const x = values();
  for (size_t k = 0; k < row_.size(); ++k) {
    index[k] = static_cast<int32_t>(row_.bucket(k));
    x[k] = row_.value(k);
  }
}

void RowHasher::read(size_t k, int64_t row) {
  const Reader& reader = plan_.readers[k];
  Features& features = features_[k];
  features.clear();
  if (reader.field->kind == kNumber) return read_number(reader, features, reader.field->numbers[row]);
  const Span value = reader.field->spans[row];
  if (!value.data) return read_missing(reader, features);
  if (reader.field->kind == kText) return read_text(reader, features, value);
  read_category(reader, features, value);
}

// Hands over the first n hashes of grams_.
template <typename Namer>
void RowHasher::emit(const Reader& reader, Features& features, size_t n, const Namer& name) {
  insert(grams_, n, 1, name);
  if (!reader.crossed) return;
  features.hashes.insert(features.hashes.end(), grams_.begin(), grams_.begin() + n);
  for (size_t i = 0; log_ && i < n; ++i) features.names.push_back(name.text(i));
}

void RowHasher::read_text(const Reader& reader, Features& features, Span document) {
  words_.read(document);
  const uint8_t* const bytes = words_.bytes();
  word_hashes_.resize(words_.count());
  for (uint32_t i = 0; i < words_.count(); ++i)
    word_hashes_[i] = hash_bytes(bytes + words_.start(i), words_.size(i), reader.key);
  if (!reader.stop_words.empty()) {
    words_.select([&](uint32_t i) { return !reader.stop_words.contain(word_hashes_[i]); });
    auto stopped = [&](uint64_t hash) { return reader.stop_words.contain(hash); };
    word_hashes_.erase(std::remove_if(word_hashes_.begin(), word_hashes_.end(), stopped), word_hashes_.end());
  }
  if (log_) {
    const char* const text = reinterpret_cast<const char*>(words_.bytes());
    log_->begin_page(reader.field->prefix, text, words_.bounds(), words_.count());
  }
  read_word_grams(reader, features);
  if (options_.character_high > 0) read_character_grams(reader, features);
}

// An n-gram is the mix of the (n-1)-gram that starts with it and its last word.
void RowHasher::read_word_grams(const Reader& reader, Features& features) {
  const size_t n_words = word_hashes_.size();
  grams_ = word_hashes_;
  for (size_t n = 1; n <= static_cast<size_t>(options_.word_high) && n <= n_words; ++n) {
    const size_t count = n_words - n + 1;
    for (size_t i = 0; n > 1 && i < count; ++i) grams_[i] = mix(grams_[i], word_hashes_[i + n - 1]);
    if (n < static_cast<size_t>(options_.word_low)) continue;
    emit(reader, features, count, WordNamer{words_, reader.field->prefix, static_cast<uint32_t>(n)});
  }
}

// All runs of low..high characters in <word>; of a word shorter than low, the whole. A mark alone is no
// feature.
void RowHasher::read_character_grams(const Reader& reader, Features& features) {
  const uint64_t key = reader.key ^ kCharacterMark;
  const uint32_t low = static_cast<uint32_t>(options_.character_low);
  const uint32_t high = static_cast<uint32_t>(options_.character_high);
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
    emit(reader, features, grams_.size(), named([&](size_t k) {
           const char* const text = reinterpret_cast<const char*>(word) + runs[k].first;
           return reader.field->prefix + "'" + std::string(text, runs[k].second) + "'";
         }));
  }
}

void RowHasher::read_category(const Reader& reader, Features& features, Span value) {
  const std::string& label = reader.label;
  const size_t size = label.size() + static_cast<size_t>(value.size);
  if (scratch_.size() < size + 16) scratch_.resize(size + 16);
  std::copy(label.begin(), label.end(), scratch_.begin());
  std::copy(value.data, value.data + value.size, scratch_.begin() + label.size());
  grams_.assign(1, hash_bytes(scratch_.data(), size, reader.seed_key));
  emit(reader, features, 1,
       named([&](size_t) { return std::string(reinterpret_cast<const char*>(scratch_.data()), size); }));
}

void RowHasher::read_number(const Reader& reader, Features& features, double number) {
  if (isnan(number)) return read_missing(reader, features);
  features.is_number = has_number_ = true;
  features.value = static_cast<float>(number);
  if (number == 0) return;
  features.hashes.push_back(reader.number);
  if (log_) features.names.push_back(reader.field->name);
}

void RowHasher::read_missing(const Reader& reader, Features& features) {
  grams_.assign(1, reader.missing);
  emit(reader, features, 1, named([&](size_t) { return reader.label + kMissing; }));
}

void RowHasher::cross(const Features& a, const Features& b, float factor) {
  for (size_t i = 0; i < a.hashes.size(); ++i) {
    grams_.resize(b.hashes.size());
    for (size_t k = 0; k < b.hashes.size(); ++k) grams_[k] = mix(a.hashes[i], b.hashes[k]);
    insert(grams_, grams_.size(), a.value * b.value * factor,
           named([&](size_t k) { return a.names[i] + "#" + b.names[k]; }));
  }
}

template <typename Namer>
void RowHasher::insert(const std::vector<uint64_t>& hashes, size_t n, float value, const Namer& name) {
  for (int32_t copy = 0; copy < options_.copies; ++copy) {
    const uint64_t* these = hashes.data();
    if (copy) {
      copied_.resize(n);
      for (size_t i = 0; i < n; ++i) copied_[i] = copy_hash(hashes[i], static_cast<uint64_t>(copy));
      these = copied_.data();
    }
    row_.make_room(n);
    if (!log_) {
      row_.add<false>(these, n, value, nullptr);
      continue;
    }
    is_new_.resize(n);
    row_.add<true>(these, n, value, is_new_.data());
    for (size_t i = 0; i < n; ++i) {
      if (!is_new_[i]) continue;
      name.log(*log_, bucket_of(these[i], options_.n_bits), static_cast<uint32_t>(these[i]), i);
    }
  }
}

// Counts to values. What has come into the row so far are words, categories and crosses of such.
void RowHasher::weigh(int64_t row) {
  const size_t n = row_.size();
  const int32_t* const index = indices();
  float* const x = values();
  if (options_.weighting == kBinary)
    for (size_t k = 0; k < n; ++k) x[k] = static_cast<float>((x[k] > 0) - (x[k] < 0));
  if (options_.weighting == kLog)
    for (size_t k = 0; k < n; ++k)
      if (x[k] != 0 && fabsf(x[k]) != 1) x[k] = copysignf(1 + logf(fabsf(x[k])), x[k]);
  if (plan_.counts_and_weighs()) {
    if (plan_.n_parts == 1) count_and_weigh(plan_, row, index, x, n);  // else when all rows are there
    return;
  }
  if (uint32_t* const counts = plan_.task.count_documents) count_documents(counts, index, n);
  if (const uint32_t* const counts = plan_.task.document_counts) {
    for (size_t k = 0; k < n; ++k) PREFETCH(counts + index[k]);
    for (size_t k = 0; k < n; ++k)
      x[k] = static_cast<float>(x[k] * plan_.inverse_frequency(counts[index[k]]));
  }
  scale(options_, x, n);
}

// Sums of whole numbers do not depend on the order, so all threads may count in one array.
void RowHasher::count_documents(uint32_t* counts, const int32_t* index, size_t n) const {
  if (plan_.n_parts == 1) {
    for (size_t k = 0; k < n; ++k) ++counts[index[k]];
    return;
  }
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "counts are taken for atomic ones");
  auto* const shared = reinterpret_cast<std::atomic<uint32_t>*>(counts);
  for (size_t k = 0; k < n; ++k) shared[index[k]].fetch_add(1, std::memory_order_relaxed);
}

// Bytes up to each row, by which work is divided.
std::vector<int64_t> row_starts(const HashTask& task) {
  std::vector<int64_t> starts(static_cast<size_t>(task.n_rows) + 1);
  for (int64_t i = 0; i < task.n_rows; ++i) {
    int64_t bytes = 16;
    for (const Field& field : task.fields) bytes += field.kind == kNumber ? 8 : field.spans[i].size + 8;
    starts[i + 1] = starts[i] + bytes;
  }
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

HashedRows join(std::vector<std::unique_ptr<RowHasher>>& parts, const std::vector<Segment>& segments,
                int64_t n_rows) {
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
  std::vector<std::unique_ptr<RowHasher>> parts;
  const size_t likely = likely_entries(task, starts.back() / n_parts);
  for (int64_t part = 0; part < n_parts; ++part) parts.push_back(std::make_unique<RowHasher>(plan, likely));
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
