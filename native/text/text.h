// SPDX-License-Identifier: Apache-2.0
// Rows of named columns become hashed sparse rows.
//
// A row is made of blocks, one per column and one per cross; features that meet in a bucket are added up.
//   text      the hash of each word, n-grams of words as mixed hashes, and character n-grams inside words;
//             counts are weighed and the block is scaled to length 1
//   category  hash("column=value"), worth 1; with separators also hash("column:part"), 1/sqrt(parts) each
//   list      hash("column=value") of each of n values, worth 1/sqrt(n)
//   number    hash("column"), worth (x - centre) / scale; with knots k_0 < ... < k_m also the hats
//             hash("column~k_i"), worth 1 - t and t between two knots and 1 beyond the outermost
//   missing   hash("column=<missing>"), worth 1
//   bag       words with their counts: the hash of each word as it is, worth its count; a block like a text's
// A cross of two columns gives mix(a, b) for each pair of their features, worth the product; a number takes
// part with its hats if it has knots. Crosses with a text are weighed and scaled as texts are, by themselves.
// Rows are split among threads and come out in order, so the result does not depend on the number of threads.
#pragma once
#include <stdint.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "text/buffer.h"
#include "text/hash.h"
#include "text/names.h"
#include "text/word_filter.h"
#include "text/words.h"

namespace steepest {

constexpr char kMissing[] = "<missing>";

enum FieldKind { kText, kCategory, kNumber, kList, kBag };
enum Weighting { kCount, kBinary, kLog };

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

// A column's values, one per row.
struct Field {
  int32_t kind;
  Texts texts;                      // text and category; of a bag, the words of all rows
  const double* numbers = nullptr;  // number; NaN: missing. Of a bag, the count of each word
  int64_t n_numbers = 0;
  const int64_t* starts = nullptr;  // of a bag: where each row's words start, and where the last ones end
  int64_t n_bags = 0;

  int64_t n_rows() const { return kind == kNumber ? n_numbers : kind == kBag ? n_bags : texts.n; }
  // About how many bytes the row has.
  int64_t size(int64_t row) const {
    if (kind == kBag) return 16 * (starts[row + 1] - starts[row]);
    return kind == kNumber ? 0 : texts.at(row).size;
  }
};

typedef std::pair<int32_t, int32_t> Grams;  // the shortest and the longest; 0, 0: none

struct HashOptions {
  int32_t n_bits;
  Grams ngrams, char_ngrams;  // of words, and of the characters in a word
  int32_t weighting;
  int32_t copies;
  int32_t min_letters;
  bool is_signed, lowercase, normalise;
  uint64_t seed;
  bool by_column = false;  // the features of each column, or cross, have 2^n_bits buckets of their own
  uint32_t min_rows = 1;   // where rows are counted: features of texts that fewer rows have are left out
};

struct Column {
  int32_t kind;
  std::string name;             // empty for a text that is alone
  std::string prefix;           // of the names of its words: distinguishes two texts
  std::string separators = "";  // bytes between the values of a list, or the parts of a category; none: whole
  double centre = 0, scale = 1;              // of a number
  std::vector<double> knots = {};            // of a number, increasing
  std::vector<std::string> knot_names = {};  // what is hashed for each, "column~knot"
};

// A column, and what is known of it before the first row.
struct ColumnReader : Column {
  ColumnReader(const Column& column, uint64_t seed, const std::vector<std::string>& stop_words, bool crossed)
      : Column(column),
        crossed(crossed),
        label(name.empty() ? "" : name + "="),
        seed_key(key_of_seed(seed)),
        key(field_key(name, seed)),
        missing(hash_string(label + kMissing, seed_key)),
        number(hash_string(name, seed_key)),
        part_label(name + ":"),
        stop_words(hashes_of(kind == kText || kind == kBag ? stop_words : std::vector<std::string>(), key)) {
    for (const std::string& knot : knot_names) knot_hashes.push_back(hash_string(knot, seed_key));
    for (char letter : separators) is_separator[static_cast<uint8_t>(letter)] = true;
  }

  bool crossed;
  std::string label;         // in front of values
  uint64_t seed_key, key;    // of values, and of words
  uint64_t missing, number;  // the hashes of these features
  std::string part_label;    // in front of the parts of a category
  std::vector<uint64_t> knot_hashes;
  bool is_separator[256] = {};
  HashSet stop_words;

 private:
  static std::vector<uint64_t> hashes_of(const std::vector<std::string>& words, uint64_t key) {
    std::vector<uint64_t> hashes;
    for (const std::string& word : words) hashes.push_back(hash_string(word, key));
    return hashes;
  }
};

typedef std::vector<std::pair<int32_t, int32_t>> Crosses;

class RowHasher;
typedef std::vector<std::unique_ptr<RowHasher>> RowHashers;

// How rows are hashed: all that does not depend on them. It is made once, since for a single short text that
// takes longer than the text; the hashers in it are used again and again, each by one thread at a time.
class Recipe {
 public:
  Recipe(const HashOptions& options, const std::vector<Column>& columns, Crosses crosses,
         const std::vector<std::string>& stop_words, std::shared_ptr<const WordFilter> filter = nullptr);
  ~Recipe();

  // Hashers for n threads.
  RowHashers borrow(int64_t n) const;
  void give_back(RowHashers hashers) const;

  // One text and nothing else: the row is its block.
  bool is_one_text() const { return readers.size() == 1 && readers[0].kind == kText && crosses.empty(); }

  const HashOptions options;
  const Crosses crosses;
  const std::shared_ptr<const WordFilter> filter;  // of words by their counts; null: all are kept
  std::vector<ColumnReader> readers;

 private:
  mutable std::mutex mutex_;
  mutable RowHashers idle_;
};

struct HashTask {
  const Recipe& recipe;
  int64_t n_rows = 0;
  std::vector<Field> fields = {};  // one for each column of the recipe
  // Rows in which each bucket occurs. To be counted in this pass, or to be used for tf-idf; null for neither.
  uint32_t* count_documents = nullptr;
  const uint32_t* document_counts = nullptr;
  double n_documents = 0;
  NameBook* book = nullptr;
};

struct HashedRows {
  std::vector<int64_t> indptr = {0};
  Buffer<int32_t> indices;
  Buffer<float> values;

  size_t size() const { return static_cast<size_t>(indptr.back()); }
  void reserve(size_t n) {
    indices.reserve(n);
    values.reserve(n);
  }
};

HashedRows hash_rows(const HashTask& task, int n_threads);

// Counts the rows with each word of the texts and bags, without stop words.
void count_words(const HashTask& task, WordCounts& counts);

}  // namespace steepest
