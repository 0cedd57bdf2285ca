// SPDX-License-Identifier: Apache-2.0
// Rows of named columns become hashed sparse rows.
//
// A text column gives the hash of each word, n-grams of words as mixed hashes, and character n-grams inside
// words; a category gives hash("column=value"), a number hash("column") with the number as value, a missing
// value hash("column=<missing>"). A cross of two columns gives mix(a, b) for each pair of their features. In
// a row, features that meet in a bucket are added up. Counts are then weighed and the row is scaled to length
// 1; numbers, and crosses with them, are added afterwards and keep their size. Rows are split among threads
// and come out in order, so the result does not depend on the number of threads.
#pragma once
#include <stdint.h>

#include <string>
#include <utility>
#include <vector>

#include "names.h"
#include "words.h"

namespace steepest {

enum FieldKind { kText, kCategory, kNumber };
enum Weighting { kCount, kBinary, kLog };

// What is known of a column before any row.
struct Column {
  int32_t kind;
  std::string name;    // empty for a text that stands alone
  std::string prefix;  // of the names of its words: tells two texts apart
};

// Texts as spans of their own, or one behind the other as Arrow keeps them; no data: missing.
struct Texts {
  std::vector<Span> spans;
  const uint8_t* bytes = nullptr;
  const int32_t* narrow = nullptr;  // where each text starts, and where the last one ends
  const int64_t* wide = nullptr;    // the same
  const uint8_t* valid = nullptr;   // none: all are there
  int64_t n = 0;

  Span at(int64_t i) const {
    if (!bytes) return spans[static_cast<size_t>(i)];
    if (valid && !valid[i]) return {nullptr, 0};
    if (narrow) return {bytes + narrow[i], int64_t{narrow[i + 1]} - narrow[i]};
    return {bytes + wide[i], wide[i + 1] - wide[i]};
  }
};

// A column's values, one a row.
struct Field {
  int32_t kind;
  Texts texts;                      // text and category
  const double* numbers = nullptr;  // number; NaN: missing
  int64_t n_numbers = 0;

  int64_t n_rows() const { return kind == kNumber ? n_numbers : texts.n; }
};

struct HashOptions {
  int32_t n_bits;
  int32_t word_low, word_high;            // n-grams of words; 0, 0: none
  int32_t character_low, character_high;  // n-grams of characters; 0, 0: none
  int32_t weighting;
  int32_t copies;
  int32_t min_letters;
  bool is_signed, lowercase, normalise;
  uint64_t seed;
};

typedef std::vector<std::pair<int32_t, int32_t>> Crosses;

class Recipe;  // how to hash, prepared for any number of tasks: row_hasher.h

struct HashTask {
  explicit HashTask(const Recipe& recipe);

  const Recipe& recipe;
  const HashOptions& options;
  const Crosses& crosses;
  int64_t n_rows = 0;
  std::vector<Field> fields;  // one for each column of the recipe
  // Rows in which each bucket occurs. To be counted in this pass, or to be used for tf-idf; null for neither.
  uint32_t* count_documents = nullptr;
  const uint32_t* document_counts = nullptr;
  double n_documents = 0;
  NameBook* book = nullptr;
};

// Grows without touching what it has not used; handed to Python without a copy.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  T* reserve(size_t n);  // room for n in all
  T* release(size_t n);  // the first n, to be freed by the caller
  T* data() { return data_; }
  const T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  size_t room_ = 0;
};

struct HashedRows {
  std::vector<int64_t> ends;  // entries up to and with each row
  Buffer<int32_t> indices;
  Buffer<float> values;
  size_t size = 0;
};

HashedRows hash_rows(const HashTask& task, int n_threads);

// The key of a text column's words; the key of the seed alone is that of the empty name.
uint64_t field_key(const std::string& name, uint64_t seed);

}  // namespace steepest
