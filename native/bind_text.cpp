// SPDX-License-Identifier: Apache-2.0
// Python names for the text kernels. Texts come as lists of str, bytes and None, or as Arrow's buffers;
// neither is copied. Everything that could make a kernel read outside its arrays is checked here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "bind_texts.h"
#include "hash.h"
#include "row_hasher.h"
#include "score.h"
#include "text_numbers.h"

using namespace nb::literals;

namespace steepest {
namespace {

Field field_of(int32_t kind, nb::handle values, Owners& owners) {
  Field field;
  field.kind = kind;
  if (kind == kNumber) {
    const auto numbers = nb::cast<List<double>>(values, false);
    owners.push_back(nb::borrow(values));
    field.numbers = numbers.data();
    field.n_numbers = static_cast<int64_t>(numbers.size());
  } else {
    field.texts = texts_of(nb::borrow(values), owners);
  }
  return field;
}

void check(const HashOptions& options) {
  require(options.n_bits >= 1 && options.n_bits <= 30, "n_bits must lie in 1..30");
  require(options.copies >= 1 && options.copies <= 64, "copies must lie in 1..64");
  require(options.weighting >= kCount && options.weighting <= kLog, "unknown weighting");
  require(options.min_letters >= 1 && options.min_letters <= 1 << 20, "min_letters must be at least 1");
  auto check_range = [](int32_t low, int32_t high) {
    require((low == 0 && high == 0) || (low >= 1 && low <= high && high <= 1 << 20),
            "n-grams must be (low, high)");
  };
  check_range(options.word_low, options.word_high);
  check_range(options.character_low, options.character_high);
}

// Each column is (kind, name, prefix).
void make_recipe(Recipe* self, const std::vector<std::tuple<int32_t, std::string, std::string>>& columns,
                 const Crosses& crosses, const std::vector<std::string>& stop_words,
                 const HashOptions& options) {
  check(options);
  require(!columns.empty(), "there must be a column");
  std::vector<Column> known;
  for (const auto& [kind, name, prefix] : columns) {
    require(kind >= kText && kind <= kNumber, "unknown kind of column");
    known.push_back({kind, name, prefix});
  }
  const int32_t n_columns = static_cast<int32_t>(known.size());
  for (const auto& pair : crosses)
    require(std::min(pair.first, pair.second) >= 0 && std::max(pair.first, pair.second) < n_columns,
            "a cross names a column that is not there");
  new (self) Recipe(options, known, crosses, stop_words);
}

size_t n_buckets(const Recipe& recipe) { return size_t{1} << recipe.options.n_bits; }

HashTask task_of(const Recipe& recipe, nb::list columns, const std::optional<List<uint32_t>>& document_counts,
                 double n_documents, Owners& owners) {
  HashTask task(recipe);
  require(columns.size() == recipe.readers.size(), "the recipe has another number of columns");
  for (size_t k = 0; k < columns.size(); ++k)
    task.fields.push_back(field_of(recipe.readers[k].column.kind, columns[k], owners));
  task.n_rows = task.fields[0].n_rows();
  for (const Field& field : task.fields)
    require(field.n_rows() == task.n_rows, "the columns differ in length");
  require(!document_counts || document_counts->size() == n_buckets(recipe),
          "document counts need one number a bucket");
  task.document_counts = document_counts ? document_counts->data() : nullptr;
  task.n_documents = n_documents;
  return task;
}

nb::tuple hash_rows_of(const Recipe& recipe, nb::list columns,
                       std::optional<OutList<uint32_t>> count_documents,
                       std::optional<List<uint32_t>> document_counts, double n_documents, NameBook* book,
                       int n_threads) {
  Owners owners;
  HashTask task = task_of(recipe, columns, document_counts, n_documents, owners);
  require(!count_documents || count_documents->size() == n_buckets(recipe),
          "document counts need one number a bucket");
  task.count_documents = count_documents ? count_documents->data() : nullptr;
  task.book = book;
  HashedRows rows;
  int64_t* indptr = new_array<int64_t>(static_cast<size_t>(task.n_rows) + 1);
  const auto result = hand_over(indptr, {static_cast<size_t>(task.n_rows) + 1});
  {
    nb::gil_scoped_release release;
    rows = hash_rows(task, n_threads);
    indptr[0] = 0;
    std::copy(rows.ends.begin(), rows.ends.end(), indptr + 1);
  }
  return nb::make_tuple(result, hand_over(rows.indices.release(rows.size), {rows.size}),
                        hand_over(rows.values.release(rows.size), {rows.size}));
}

// Slots for indices, as place_features finds them; features without one are left out, unless their value is
// not finite, which the scores must show.
void take_slots(HashedRows& rows, const int32_t* slots) {
  int32_t* const index = rows.indices.data();
  float* const x = rows.values.data();
  int64_t k = 0, filled = 0;
  for (int64_t& end : rows.ends) {
    for (; k < end; ++k) {
      const int32_t slot = slots[index[k]];
      index[filled] = slot ? slot - 1 : 0;
      x[filled] = x[k];
      filled += slot != 0 || !std::isfinite(x[k]);
    }
    end = filled;
  }
}

// Whether all scores are numbers.
bool score_hashed(HashedRows& rows, const int32_t* slots, const ScoreTable& table, double* scores,
                  int n_threads) {
  if (slots) take_slots(rows, slots);
  rows.ends.insert(rows.ends.begin(), 0);
  Rows all = {};
  all.indptr = rows.ends.data();
  all.indices = rows.indices.data();
  all.values = rows.values.data();
  all.n = static_cast<int64_t>(rows.ends.size()) - 1;
  all.n_features = table.n_features;
  all.n_outputs = all.n_targets = table.n_outputs;
  all.width = all.stride = table.width;
  all.table_bits = table.table_bits;
  const std::pair<int64_t, int64_t> good = score(all, table, scores, n_threads);
  return std::min(good.first, good.second) == all.n;
}

// hash_rows and linear_scores in one, without arrays between them: they would cost as much as a short text.
// None if there is a bucket that the table does not know, or a score that is no number.
nb::object score_rows(const Recipe& recipe, nb::list columns, std::optional<List<uint32_t>> document_counts,
                      double n_documents, int hashing_threads, ConstFloatTable weights, double scale,
                      List<double> bias, std::optional<List<int32_t>> slots, int n_threads, int table_bits,
                      int64_t n_columns) {
  Owners owners;
  const HashTask task = task_of(recipe, columns, document_counts, n_documents, owners);
  const ScoreTable table(weights, scale, bias.data(), bias.size(), table_bits, n_columns);
  const size_t n_known = slots ? slots->size() : static_cast<size_t>(table.n_features);
  if (n_known < n_buckets(recipe)) return nb::none();
  const size_t n_rows = static_cast<size_t>(task.n_rows), n_outputs = bias.size();
  double* const scores = new_array<double>(n_rows * n_outputs);
  const auto result = hand_over(scores, {n_rows, n_outputs});
  bool good;
  {
    nb::gil_scoped_release release;
    HashedRows rows = hash_rows(task, hashing_threads);
    good = score_hashed(rows, slots ? slots->data() : nullptr, table, scores, n_threads);
  }
  return good ? nb::cast(result) : nb::none();
}

Result<uint64_t> hash_texts(nb::object texts, uint64_t key) {
  Owners owners;
  const Texts read = texts_of(texts, owners);
  const size_t n = static_cast<size_t>(read.n);
  uint64_t* const hashes = new_array<uint64_t>(n);
  const auto result = hand_over(hashes, {n});
  std::vector<uint8_t> padded;
  for (size_t i = 0; i < n; ++i) {
    const Span text = read.at(static_cast<int64_t>(i));
    require(text.data != nullptr, "a missing text has no hash");
    const size_t size = static_cast<size_t>(text.size);
    if (padded.size() < size + 16) padded.resize(size + 16);
    std::copy(text.data, text.data + size, padded.begin());
    hashes[i] = hash_bytes(padded.data(), size, key);
  }
  return result;
}

nb::tuple number_texts(nb::object values) {
  Owners owners;
  const Texts texts = texts_of(values, owners);
  require(texts.n < (int64_t{1} << 30), "more than a billion texts");
  int32_t* const numbers = new_array<int32_t>(static_cast<size_t>(texts.n));
  const auto result = hand_over(numbers, {static_cast<size_t>(texts.n)});
  TextNumbers known(texts);
  {
    nb::gil_scoped_release release;
    for (int64_t i = 0; i < texts.n; ++i) numbers[i] = known.number(i);
  }
  return nb::make_tuple(result, copied(known.firsts()));
}

Result<uint64_t> mix_hashes(List<uint64_t> a, List<uint64_t> b) {
  require(a.size() == b.size(), "the arrays differ in length");
  uint64_t* const mixed = new_array<uint64_t>(a.size());
  for (size_t i = 0; i < a.size(); ++i) mixed[i] = mix(a.data()[i], b.data()[i]);
  return hand_over(mixed, {a.size()});
}

// The words of one document, folded, as the kernel sees them.
bool is_utf8_text(nb::bytes text) {
  const uint8_t* const bytes = static_cast<const uint8_t*>(text.data());
  const size_t size = text.size();
  nb::gil_scoped_release release;
  return is_utf8(bytes, size);
}

nb::list split_words(nb::object document, bool lowercase, int min_letters) {
  require(min_letters >= 1, "min_letters must be at least 1");
  Owners owners;
  nb::list one;
  one.append(document);
  const Span text = texts_of(one, owners).at(0);
  require(text.data != nullptr, "there is no document");
  Words words(lowercase, static_cast<uint32_t>(min_letters));
  words.read(text);
  nb::list result;
  for (uint32_t i = 0; i < words.count(); ++i)
    result.append(nb::str(reinterpret_cast<const char*>(words.bytes()) + words.start(i), words.size(i)));
  return result;
}

// The first row that is neither text nor missing, or -1.
int64_t first_no_text(nb::list texts) {
  int64_t row = 0;
  for (nb::handle item : texts) {
    if (!PyUnicode_Check(item.ptr()) && !PyBytes_Check(item.ptr()) && !is_missing(item.ptr())) return row;
    ++row;
  }
  return -1;
}

// The first number that float32 cannot hold, or -1; NaN stands for a missing one and passes.
int64_t first_too_large(List<double> numbers) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  const double* const end = numbers.data() + numbers.size();
  const double* const bad =
      std::find_if(numbers.data(), end, [](double x) { return std::fabs(x) > kLargest; });
  return bad == end ? -1 : bad - numbers.data();
}

// Whole numbers written out, as (data, offsets).
nb::tuple write_integers(List<int64_t> numbers) {
  constexpr size_t kMostDigits = 20;
  const size_t n = numbers.size();
  char* const data = new_array<char>(n * kMostDigits);
  int64_t* const offsets = new_array<int64_t>(n + 1);
  const auto result = hand_over(offsets, {n + 1});
  char* end = data;
  offsets[0] = 0;
  for (size_t i = 0; i < n; ++i) {
    end = std::to_chars(end, end + kMostDigits, numbers.data()[i]).ptr;
    offsets[i + 1] = end - data;
  }
  return nb::make_tuple(hand_over(reinterpret_cast<uint8_t*>(data), {static_cast<size_t>(end - data)}),
                        result);
}

}  // namespace
}  // namespace steepest

using namespace steepest;

void bind_text(nb::module_& module) {
  module.attr("hash_id") = kHashId;
  nb::class_<HashOptions>(module, "HashOptions")
      .def(
          "__init__",
          [](HashOptions* self, int32_t n_bits, std::pair<int32_t, int32_t> ngrams,
             std::pair<int32_t, int32_t> char_ngrams, int32_t weighting, int32_t copies, int32_t min_letters,
             bool is_signed, bool lowercase, bool normalise, uint64_t seed) {
            new (self) HashOptions{
                n_bits, ngrams.first, ngrams.second, char_ngrams.first, char_ngrams.second, weighting,
                copies, min_letters,  is_signed,     lowercase,         normalise,          seed};
          },
          nb::kw_only(), "n_bits"_a, "ngrams"_a, "char_ngrams"_a, "weighting"_a, "copies"_a, "min_letters"_a,
          "is_signed"_a, "lowercase"_a, "normalise"_a, "seed"_a);
  nb::class_<Recipe>(module, "HashRecipe")
      .def("__init__", make_recipe, "columns"_a, "crosses"_a, "stop_words"_a, "options"_a);
  module.def("hash_rows", hash_rows_of, "recipe"_a, "columns"_a, "count_documents"_a.none(),
             "document_counts"_a.none(), "n_documents"_a, "book"_a.none(), "n_threads"_a);
  module.def("score_rows", score_rows, "recipe"_a, "columns"_a, "document_counts"_a.none(), "n_documents"_a,
             "hashing_threads"_a, "weights"_a, "scale"_a, "bias"_a, "slots"_a.none(), "n_threads"_a,
             "table_bits"_a = 0, "n_columns"_a = 0);
  module.def("hash_texts", hash_texts, "texts"_a, "key"_a);
  module.def("number_texts", number_texts, "texts"_a);
  module.def("mix_hashes", mix_hashes, "a"_a, "b"_a);
  module.def(
      "hash_key", [](const std::string& name, uint64_t seed) { return field_key(name, seed); }, "name"_a,
      "seed"_a);
  module.def("is_utf8", is_utf8_text, "text"_a);
  module.def("split_words", split_words, "document"_a, "lowercase"_a, "min_letters"_a);
  module.def("first_no_text", first_no_text, "texts"_a);
  module.def("first_too_large", first_too_large, "numbers"_a);
  module.def("write_integers", write_integers, "numbers"_a);
}
