// SPDX-License-Identifier: Apache-2.0
// Python names for the text kernels and for the book in which hashed features keep their names. Texts come as
// lists of str, bytes and None, or as Arrow's buffers; neither is copied. Everything that could make a kernel
// read outside its arrays is checked here.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/convert.h"
#include "linear/parallel.h"
#include "python/linear_tables.h"
#include "text/hash.h"
#include "text/json_texts.h"
#include "text/names.h"
#include "text/text.h"
#include "text/text_numbers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

void free_buffer(void* memory) noexcept { free(memory); }

template <typename T>
NumpyArray<T> to_numpy(Buffer<T>& buffer, size_t n) {
  return numpy_array(buffer.release(n), {n}, free_buffer);
}
template <typename T>
NumpyArray<T> to_numpy(Buffer<T>& buffer, size_t n_rows, size_t n_columns) {
  return numpy_array(buffer.release(n_rows * n_columns), {n_rows, n_columns}, free_buffer);
}

template <typename T>
NumpyArray<T> copied(const std::vector<T>& from) {
  Buffer<T> buffer;
  std::copy(from.begin(), from.end(), buffer.reserve(from.size()));
  return to_numpy(buffer, from.size());
}

// ------------------------------------------------------------------------------------------------- texts

// The objects that own the bytes while a kernel reads them without the interpreter's lock.
using Owners = std::vector<nb::object>;

Span span_of_bytes(PyObject* item) {
  char* bytes;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(item, &bytes, &size)) throw nb::python_error();
  return {reinterpret_cast<const uint8_t*>(bytes), size};
}

Span span_of_str(PyObject* item, Owners& owners) {
  Py_ssize_t size;
  if (const char* data = PyUnicode_AsUTF8AndSize(item, &size))
    return {reinterpret_cast<const uint8_t*>(data), size};
  // Lone surrogates cannot be written as UTF-8; written all the same, they are invalid and separate words.
  PyErr_Clear();
  PyObject* const encoded = PyUnicode_AsEncodedString(item, "utf-8", "surrogatepass");
  if (!encoded) throw nb::python_error();
  owners.push_back(nb::steal(encoded));
  return span_of_bytes(encoded);
}

bool is_missing(PyObject* item) {
  if (item == Py_None) return true;
  return PyFloat_Check(item) && PyFloat_AsDouble(item) != PyFloat_AsDouble(item);
}

Span span_of(PyObject* item, size_t row, Owners& owners) {
  if (PyUnicode_Check(item)) return span_of_str(item, owners);
  if (PyBytes_Check(item)) return span_of_bytes(item);
  if (is_missing(item)) return {nullptr, 0};
  throw nb::type_error(("row " + std::to_string(row) + " is not a text").c_str());
}

Texts texts_of_list(nb::handle list, Owners& owners) {
  // A tuple of our own: another thread may change the list while its strings are read.
  nb::object items = nb::steal(PySequence_Tuple(list.ptr()));
  if (!items.is_valid()) throw nb::python_error();
  owners.push_back(items);
  Texts texts;
  texts.n = PyTuple_Size(items.ptr());
  texts.spans.resize(static_cast<size_t>(texts.n));
  for (size_t i = 0; i < texts.spans.size(); ++i)
    texts.spans[i] = span_of(PyTuple_GetItem(items.ptr(), static_cast<Py_ssize_t>(i)), i, owners);
  return texts;
}

template <typename Offset>
const Offset* check_offsets(const List<Offset>& offsets, size_t n_bytes) {
  require(offsets.size() > 0, "offsets must hold one number more than there are texts");
  const size_t n = offsets.size() - 1;
  const Offset* const at = offsets.data();
  require(at[0] >= 0 && static_cast<uint64_t>(at[n]) <= n_bytes, "offsets reach beyond the data");
  bool ordered = true;  // required in the end, so that the loop can take several at once
  for (size_t i = 0; i < n; ++i) ordered &= at[i] <= at[i + 1];
  require(ordered, "offsets must not decrease");
  return at;
}

Texts texts_of_buffers(nb::tuple parts) {
  require(parts.size() == 3, "texts must be a list, or (data, offsets, valid)");
  const auto data = nb::cast<List<uint8_t>>(parts[0], false);
  const auto valid = nb::cast<std::optional<List<uint8_t>>>(parts[2], false);
  Texts texts;
  List<int32_t> narrow;
  if (nb::try_cast(parts[1], narrow, false)) {
    texts.narrow = check_offsets(narrow, data.size());
    texts.n = size_of(narrow) - 1;
  } else {
    const auto wide = nb::cast<List<int64_t>>(parts[1], false);
    texts.wide = check_offsets(wide, data.size());
    texts.n = size_of(wide) - 1;
  }
  texts.valid = data_of(valid, texts.n, "valid must hold one flag per text");
  // A pointer that is not null even where there are no bytes: an empty text is not a missing one.
  static const uint8_t nothing = 0;
  texts.bytes = data.size() ? data.data() : &nothing;
  return texts;
}

// What they are read from stays alive with the owners.
Texts texts_of(nb::handle values, Owners& owners) {
  owners.push_back(nb::borrow(values));
  const Texts texts = nb::isinstance<nb::list>(values) ? texts_of_list(values, owners)
                                                       : texts_of_buffers(nb::cast<nb::tuple>(values));
  for (int64_t i = 0; i < texts.n; ++i)
    if (texts.at(i).size > kLongestDocument)
      throw std::invalid_argument("row " + std::to_string(i) + " is longer than 1 GiB; split it");
  return texts;
}

// ------------------------------------------------------------------------------------------------ hashing

void check(const HashOptions& options) {
  require(options.n_bits >= 1 && options.n_bits <= 30, "n_bits must lie in 1..30");
  require(options.copies >= 1 && options.copies <= 64, "copies must lie in 1..64");
  require(options.weighting >= kCount && options.weighting <= kLog, "unknown weighting");
  require(options.min_letters >= 1 && options.min_letters <= 1 << 20, "min_letters must be at least 1");
  for (const auto& [low, high] : {options.ngrams, options.char_ngrams})
    require((low == 0 && high == 0) || (low >= 1 && low <= high && high <= 1 << 20),
            "n-grams must be (low, high)");
}

// Each column is (kind, name, prefix, separators, (centre, scale), knots, names of the knots).
typedef std::tuple<int32_t, std::string, std::string, std::string, std::pair<double, double>,
                   std::vector<double>, std::vector<std::string>>
    ColumnParts;

void make_recipe(Recipe* self, const std::vector<ColumnParts>& columns, const Crosses& crosses,
                 const std::vector<std::string>& stop_words, const HashOptions& options,
                 std::shared_ptr<const WordFilter> filter) {
  check(options);
  require(!columns.empty(), "there must be a column");
  std::vector<Column> known;
  for (const auto& [kind, name, prefix, separators, size, knots, knot_names] : columns) {
    require(kind >= kText && kind <= kBag, "unknown kind of column");
    require(std::isfinite(size.first) && std::isfinite(size.second) && size.second > 0,
            "a column's scale must be positive");
    require(knots.size() == knot_names.size(), "each knot needs a name");
    for (size_t k = 0; k < knots.size(); ++k)
      require(std::isfinite(knots[k]) && (k == 0 || knots[k - 1] < knots[k]), "knots must increase");
    known.push_back({kind, name, prefix, separators, size.first, size.second, knots, knot_names});
  }
  const int32_t n_columns = static_cast<int32_t>(known.size());
  for (const auto& pair : crosses)
    require(std::min(pair.first, pair.second) >= 0 && std::max(pair.first, pair.second) < n_columns,
            "a cross names a column that is not there");
  require(!options.by_column || (known.size() + crosses.size()) << options.n_bits <= uint64_t{1} << 31,
          "there are too many buckets");
  for (const auto& pair : crosses)
    require(known[pair.first].kind != kBag && known[pair.second].kind != kBag, "a bag cannot be crossed");
  new (self) Recipe(options, known, crosses, stop_words, std::move(filter));
}

int64_t n_buckets(const Recipe& recipe) { return int64_t{1} << recipe.options.n_bits; }
int64_t n_features(const Recipe& recipe) {
  return n_buckets(recipe) * (recipe.options.by_column ? recipe.readers.size() + recipe.crosses.size() : 1);
}

constexpr double kLargestFloat = std::numeric_limits<float>::max();

Field field_of(int32_t kind, nb::handle values, Owners& owners) {
  Field field;
  field.kind = kind;
  if (kind == kNumber) {
    const auto numbers = nb::cast<List<double>>(values, false);
    owners.push_back(nb::borrow(values));
    field.numbers = numbers.data();
    field.n_numbers = size_of(numbers);
  } else if (kind == kBag) {
    const nb::tuple parts = nb::cast<nb::tuple>(values, false);
    require(parts.size() == 3, "a bag must be (words, counts, starts)");
    field.texts = texts_of(parts[0], owners);
    const auto counts = nb::cast<List<double>>(parts[1], false);
    const auto starts = nb::cast<List<int64_t>>(parts[2], false);
    for (int k : {1, 2}) owners.push_back(nb::borrow(parts[k]));
    require(size_of(counts) == field.texts.n, "each word of a bag needs a count");
    field.numbers = counts.data();
    field.starts = check_offsets(starts, counts.size());
    field.n_bags = size_of(starts) - 1;
    for (int64_t i = 0; i < field.texts.n; ++i)
      require(field.texts.at(i).data != nullptr && std::fabs(counts.data()[i]) <= kLargestFloat,
              "a bag holds words and finite counts");
  } else {
    field.texts = texts_of(values, owners);
  }
  return field;
}

constexpr char kCountPerBucket[] = "document counts need one number per bucket";

HashTask task_of(const Recipe& recipe, nb::list columns, const std::optional<List<uint32_t>>& document_counts,
                 double n_documents, Owners& owners) {
  HashTask task{recipe};
  require(columns.size() == recipe.readers.size(), "the recipe has another number of columns");
  for (size_t k = 0; k < columns.size(); ++k)
    task.fields.push_back(field_of(recipe.readers[k].kind, columns[k], owners));
  task.n_rows = task.fields[0].n_rows();
  for (const Field& field : task.fields)
    require(field.n_rows() == task.n_rows, "the columns differ in length");
  task.document_counts = data_of(document_counts, n_buckets(recipe), kCountPerBucket);
  task.n_documents = n_documents;
  return task;
}

nb::tuple hash_rows_of(const Recipe& recipe, nb::list columns, std::optional<Out<uint32_t>> count_documents,
                       std::optional<List<uint32_t>> document_counts, double n_documents, NameBook* book,
                       int n_threads) {
  Owners owners;
  HashTask task = task_of(recipe, columns, document_counts, n_documents, owners);
  task.count_documents = data_of(count_documents, n_buckets(recipe), kCountPerBucket);
  task.book = book;
  HashedRows rows;
  {
    nb::gil_scoped_release release;
    rows = hash_rows(task, n_threads);
  }
  return nb::make_tuple(copied(rows.indptr), to_numpy(rows.indices, rows.size()),
                        to_numpy(rows.values, rows.size()));
}

void make_word_counts(WordCounts* self, int64_t most_words, int sketch_bits) {
  require(most_words >= 1 && most_words <= int64_t{1} << 30, "most_words must lie in 1..2^30");
  require(sketch_bits >= 3 && sketch_bits <= 28, "sketch_bits must lie in 3..28");
  new (self) WordCounts(most_words, sketch_bits);
}

void read_words(WordCounts& counts, const Recipe& recipe, nb::list columns) {
  Owners owners;
  const HashTask task = task_of(recipe, columns, std::nullopt, 0, owners);
  nb::gil_scoped_release release;
  count_words(task, counts);
}

nb::tuple counted_words(const WordCounts& counts) {
  std::vector<uint64_t> hashes;
  std::vector<uint32_t> found;
  counts.listed(hashes, found);
  return nb::make_tuple(copied(hashes), copied(found), copied(counts.cells()));
}

// The lists of bits are empty, or as long as a sketch of sketch_bits has cells.
void make_word_filter(WordFilter* self, List<uint64_t> listed, bool keeps_listed, List<uint8_t> enough,
                      List<uint8_t> too_many, int sketch_bits) {
  require(sketch_bits >= 3 && sketch_bits <= 28, "sketch_bits must lie in 3..28");
  const size_t n_bytes = (static_cast<size_t>(Sketch::kDepth) << sketch_bits) / 8;
  for (const auto& bits : {enough, too_many})
    require(bits.size() == 0 || bits.size() == n_bytes, "a sketch has another size");
  const auto bytes_of = [](const List<uint8_t>& bits) {
    return std::vector<uint8_t>(bits.data(), bits.data() + bits.size());
  };
  new (self) WordFilter({listed.data(), listed.data() + listed.size()}, keeps_listed, bytes_of(enough),
                        bytes_of(too_many), sketch_bits);
}

// hash_rows and linear_scores in one, without arrays between them: they would cost as much as a short text.
// None if there is a bucket that the table does not know, or a score that is not a number.
std::optional<NumpyArray<double>> score_rows(const Recipe& recipe, nb::list columns,
                                             std::optional<List<uint32_t>> document_counts,
                                             double n_documents, int hashing_threads, ConstFloatTable weights,
                                             double scale, List<double> bias,
                                             std::optional<List<int32_t>> slots, int n_threads,
                                             int table_bits, int64_t n_columns) {
  Owners owners;
  const HashTask task = task_of(recipe, columns, document_counts, n_documents, owners);
  const ScoreTable table = score_table(weights, scale, bias.data(), bias.size(), table_bits, n_columns);
  if ((slots ? size_of(*slots) : table.shape.n_features) < n_features(recipe)) return std::nullopt;
  const size_t n_rows = static_cast<size_t>(task.n_rows);
  Buffer<double> scores;
  scores.reserve(n_rows * bias.size());
  bool good;
  {
    nb::gil_scoped_release release;
    const HashedRows hashed = hash_rows(task, hashing_threads);
    Rows rows = plain_rows(hashed.indptr.data(), hashed.indices.data(), hashed.values.data(), task.n_rows,
                           slots ? size_of(*slots) : table.shape.n_features);
    std::optional<OwnedRows> placed;
    if (slots) {
      placed = place_features(rows, slots->data(), bias.size() == 1);
      rows = placed->view(table.shape.n_features);
    }
    const auto [fitting, finite] = score_linear(rows, table, scores.data(), n_threads);
    good = std::min(fitting, finite) == task.n_rows;
  }
  if (!good) return std::nullopt;
  return to_numpy(scores, n_rows, bias.size());
}

NumpyArray<uint64_t> hash_texts(nb::object texts, uint64_t key) {
  Owners owners;
  const Texts read = texts_of(texts, owners);
  std::vector<uint64_t> hashes;
  std::vector<uint8_t> scratch;
  for (int64_t i = 0; i < read.n; ++i) {
    const Span text = read.at(i);
    require(text.data != nullptr, "a missing text has no hash");
    hashes.push_back(hash_copied(text.data, static_cast<size_t>(text.size), key, scratch));
  }
  return copied(hashes);
}

nb::tuple number_texts(nb::object values) {
  Owners owners;
  const Texts texts = texts_of(values, owners);
  require(texts.n < (int64_t{1} << 30), "more than a billion texts");
  Buffer<int32_t> numbers;
  numbers.reserve(static_cast<size_t>(texts.n));
  TextNumbers known(texts);
  {
    nb::gil_scoped_release release;
    for (int64_t i = 0; i < texts.n; ++i) numbers.data()[i] = known.number(i);
  }
  return nb::make_tuple(to_numpy(numbers, static_cast<size_t>(texts.n)), copied(known.firsts()));
}

NumpyArray<uint64_t> mix_hashes(List<uint64_t> a, List<uint64_t> b) {
  require(a.size() == b.size(), "the arrays differ in length");
  Buffer<uint64_t> mixed;
  std::transform(a.data(), a.data() + a.size(), b.data(), mixed.reserve(a.size()), mix);
  return to_numpy(mixed, a.size());
}

bool is_utf8_text(nb::bytes text) {
  const uint8_t* const bytes = static_cast<const uint8_t*>(text.data());
  const size_t size = text.size();
  nb::gil_scoped_release release;
  return is_utf8(bytes, size);
}

// (data, offsets) of a request's texts; None for a body of another form.
std::optional<nb::tuple> json_texts(nb::bytes body) {
  if (body.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) return std::nullopt;
  JsonTexts texts(static_cast<const uint8_t*>(body.data()), body.size());
  bool good;
  {
    nb::gil_scoped_release release;
    good = texts.read();
  }
  if (!good) return std::nullopt;
  return nb::make_tuple(to_numpy(texts.data, texts.n_bytes()), to_numpy(texts.offsets, texts.n_offsets));
}

// The words of one document, folded, as the kernel sees them.
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

// The first number that float32 cannot hold, or -1; NaN is for a missing one and passes.
int64_t first_too_large(List<double> numbers) {
  const double* const end = numbers.data() + numbers.size();
  const double* const bad =
      std::find_if(numbers.data(), end, [](double x) { return std::fabs(x) > kLargestFloat; });
  return bad == end ? -1 : bad - numbers.data();
}

// Whole numbers written out, as (data, offsets).
nb::tuple write_integers(List<int64_t> numbers) {
  constexpr size_t kMostDigits = 20;
  Buffer<uint8_t> data;
  Buffer<int64_t> offsets;
  char* const begin = reinterpret_cast<char*>(data.reserve(numbers.size() * kMostDigits));
  char* end = begin;
  offsets.reserve(numbers.size() + 1)[0] = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    end = std::to_chars(end, end + kMostDigits, numbers.data()[i]).ptr;
    offsets.data()[i + 1] = end - begin;
  }
  return nb::make_tuple(to_numpy(data, static_cast<size_t>(end - begin)),
                        to_numpy(offsets, numbers.size() + 1));
}

// -------------------------------------------------------------------------------------------------- names

std::vector<size_t> used_places(const NameBook& book) {
  std::vector<size_t> places;
  for (size_t place = 0; place < book.n_slots(); ++place)
    if (book.is_used(place)) places.push_back(place);
  return places;
}

void make_book(NameBook* self, int64_t n_names) {
  require(n_names >= 1 && n_names <= 1 << 26, "the number of names must lie in 1..2^26");
  new (self) NameBook(n_names);
}

// What a parser logged of n_rows rows; the log is empty afterwards.
void read_log(NameBook& book, NameLog& log, int64_t n_rows) {
  book.read(log);
  book.set_rows(book.rows() + n_rows);
}

nb::list names_of(const NameBook& book, List<int64_t> buckets) {
  nb::list result;
  for (size_t i = 0; i < buckets.size(); ++i) {
    nb::list names;
    const int64_t bucket = buckets.data()[i];
    const int64_t place = bucket >= 0 && bucket <= UINT32_MAX ? book.find(static_cast<uint32_t>(bucket)) : -1;
    if (place >= 0) {
      const NameBook::Slot slot = book.slot(static_cast<size_t>(place));
      const uint32_t times[] = {slot.tally.times, slot.names.second_times};
      const int first = times[1] > times[0];  // the more frequent name leads
      for (int k : {first, 1 - first}) {
        if (!times[k]) continue;
        // A name can be cut or come from bytes that are not UTF-8.
        PyObject* const text = PyUnicode_DecodeUTF8(slot.names.texts[k], slot.names.sizes[k], "replace");
        if (!text) throw nb::python_error();
        names.append(nb::steal(text));
      }
    }
    result.append(names);
  }
  return result;
}

NumpyArray<int64_t> buckets_of(const NameBook& book) {
  std::vector<int64_t> buckets;
  for (size_t place : used_places(book)) buckets.push_back(book.slot(place).bucket);
  return copied(buckets);
}

void prune(NameBook& book, List<double> importance) {
  const std::vector<size_t> places = used_places(book);
  require(importance.size() == places.size(), "importance needs one number for each of buckets()");
  std::vector<double> by_place(book.n_slots());
  for (size_t k = 0; k < places.size(); ++k) by_place[places[k]] = importance.data()[k];
  book.prune(by_place.data());
}

// A used slot is a row of numbers and a row of text.
constexpr size_t kNumbers = 11;
constexpr size_t kTextBytes = NameBook::kNames * NameBook::kNameBytes;

nb::tuple state_of(NameBook& book) {
  const std::vector<size_t> places = used_places(book);
  Buffer<uint32_t> numbers;
  Buffer<uint8_t> texts;
  uint32_t* number = numbers.reserve(places.size() * kNumbers);
  uint8_t* text = texts.reserve(places.size() * kTextBytes);
  for (size_t place : places) {
    const auto [bucket, tally, names] = book.slot(place);
    for (uint32_t x : {static_cast<uint32_t>(place), bucket, tally.fingerprint, tally.times, tally.seniority,
                       tally.tenured, names.second_fingerprint, names.second_times, names.others,
                       uint32_t{names.sizes[0]}, uint32_t{names.sizes[1]}})
      *number++ = x;
    text = std::copy_n(reinterpret_cast<const uint8_t*>(names.texts), kTextBytes, text);
  }
  return nb::make_tuple(to_numpy(numbers, places.size(), kNumbers),
                        to_numpy(texts, places.size(), kTextBytes), copied(book.seen_once()),
                        copied(book.touched()), book.rows());
}

void restore(NameBook& book, Table<const uint32_t> numbers, Table<const uint8_t> texts,
             List<uint64_t> seen_once, List<uint64_t> touched, int64_t rows) {
  const char* const damaged = "the state of the names is damaged";
  require(numbers.shape(1) == kNumbers && texts.shape(1) == kTextBytes && numbers.shape(0) == texts.shape(0),
          damaged);
  require(seen_once.size() == book.seen_once().size() && touched.size() == book.touched().size(), damaged);
  require(rows >= 0, damaged);
  for (size_t k = 0; k < numbers.shape(0); ++k) {
    const uint32_t* const row = numbers.data() + k * kNumbers;
    require(row[9] <= NameBook::kNameBytes && row[10] <= NameBook::kNameBytes, damaged);
    const uint8_t sizes[] = {static_cast<uint8_t>(row[9]), static_cast<uint8_t>(row[10])};
    NameBook::Slot slot = {
        row[1], {row[2], row[3], row[4], row[5]}, {row[6], row[7], row[8], {sizes[0], sizes[1]}, {}}};
    std::copy_n(texts.data() + k * kTextBytes, kTextBytes, reinterpret_cast<uint8_t*>(slot.names.texts));
    require(book.restore(row[0], slot), damaged);
  }
  book.set_seen_once(std::vector<uint64_t>(seen_once.data(), seen_once.data() + seen_once.size()));
  std::copy(touched.data(), touched.data() + touched.size(), book.touched().begin());
  book.set_rows(rows);
}

}  // namespace
}  // namespace steepest

using namespace steepest;

void bind_text(nb::module_& module) {
  module.attr("hash_id") = kHashId;
  module.attr("sampled_buckets") = NameBook::kSampledBuckets;
  nb::class_<HashOptions>(module, "HashOptions")
      .def(nb::init<int32_t, Grams, Grams, int32_t, int32_t, int32_t, bool, bool, bool, uint64_t, bool,
                    uint32_t>(),
           nb::kw_only(), "n_bits"_a, "ngrams"_a, "char_ngrams"_a, "weighting"_a, "copies"_a, "min_letters"_a,
           "is_signed"_a, "lowercase"_a, "normalise"_a, "seed"_a, "by_column"_a = false, "min_rows"_a = 1);
  nb::class_<WordFilter>(module, "WordFilter")
      .def("__init__", make_word_filter, "listed"_a, "keeps_listed"_a, "enough"_a, "too_many"_a,
           "sketch_bits"_a)
      .def("keeps", &WordFilter::keeps, "hash"_a);
  nb::class_<Recipe>(module, "HashRecipe")
      .def("__init__", make_recipe, "columns"_a, "crosses"_a, "stop_words"_a, "options"_a,
           "filter"_a.none() = nb::none());
  nb::class_<WordCounts>(module, "WordCounts")
      .def("__init__", make_word_counts, "most_words"_a, "sketch_bits"_a)
      .def("read", read_words, "recipe"_a, "columns"_a)
      .def("counts", counted_words)
      .def_prop_ro("n_sketched", &WordCounts::n_sketched)
      .def_ro("n_rows", &WordCounts::n_rows);
  nb::class_<NameLog>(module, "NameLog");
  nb::class_<NameBook>(module, "NameTable")
      .def("__init__", make_book, "n_names"_a)
      .def_prop_ro("n_bytes", &NameBook::n_bytes)
      .def_prop_ro("n_rows", &NameBook::rows)
      .def("names_of", names_of, "buckets"_a)
      .def("read", read_log, "log"_a, "n_rows"_a)
      .def("buckets", buckets_of)
      .def("touched", [](NameBook& self) { return copied(self.touched()); })
      .def("prune", prune, "importance"_a)
      .def("state", state_of)
      .def("restore", restore, "numbers"_a, "texts"_a, "seen_once"_a, "touched"_a, "rows"_a);
  module.def("hash_rows", hash_rows_of, "recipe"_a, "columns"_a, "count_documents"_a.none(),
             "document_counts"_a.none(), "n_documents"_a, "book"_a.none(), "n_threads"_a);
  module.def("score_rows", score_rows, "recipe"_a, "columns"_a, "document_counts"_a.none(), "n_documents"_a,
             "hashing_threads"_a, "weights"_a, "scale"_a, "bias"_a, "slots"_a.none(), "n_threads"_a,
             "table_bits"_a = 0, "n_columns"_a = 0);
  module.def("hash_texts", hash_texts, "texts"_a, "key"_a);
  module.def("number_texts", number_texts, "texts"_a);
  module.def("mix_hashes", mix_hashes, "a"_a, "b"_a);
  module.def("hash_key", field_key, "name"_a, "seed"_a);
  module.def("is_utf8", is_utf8_text, "text"_a);
  module.def("json_texts", json_texts, "body"_a);
  module.def("split_words", split_words, "document"_a, "lowercase"_a, "min_letters"_a);
  module.def("first_no_text", first_no_text, "texts"_a);
  module.def("first_too_large", first_too_large, "numbers"_a);
  module.def("write_integers", write_integers, "numbers"_a);
}
