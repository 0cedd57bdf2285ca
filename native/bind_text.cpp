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
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "hash.h"
#include "row_hasher.h"
#include "score.h"
#include "text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace steepest {
namespace {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Result = nb::ndarray<nb::numpy, T>;

template <typename T>
Result<T> hand_over(T* data, std::initializer_list<size_t> shape) {
  nb::capsule owner(data, [](void* memory) noexcept { free(memory); });
  return Result<T>(data, shape, owner);
}

template <typename T>
T* new_array(size_t n) {
  T* const data = static_cast<T*>(malloc(std::max<size_t>(n, 1) * sizeof(T)));
  if (!data) throw std::bad_alloc();
  return data;
}

template <typename T>
Result<T> copied(const std::vector<T>& from) {
  T* const data = new_array<T>(from.size());
  std::copy(from.begin(), from.end(), data);
  return hand_over(data, {from.size()});
}

// The objects that own the bytes while a kernel reads them without the interpreter's lock.
using Owners = std::vector<nb::object>;

Span span_of_str(PyObject* item, Owners& owners) {
  Py_ssize_t size;
  if (const char* data = PyUnicode_AsUTF8AndSize(item, &size))
    return {reinterpret_cast<const uint8_t*>(data), size};
  // Lone surrogates cannot be written as UTF-8; written all the same, they are invalid and separate words.
  PyErr_Clear();
  PyObject* const encoded = PyUnicode_AsEncodedString(item, "utf-8", "surrogatepass");
  if (!encoded) throw nb::python_error();
  owners.push_back(nb::steal(encoded));
  char* bytes;
  if (PyBytes_AsStringAndSize(encoded, &bytes, &size)) throw nb::python_error();
  return {reinterpret_cast<const uint8_t*>(bytes), size};
}

bool is_missing(PyObject* item) {
  if (item == Py_None) return true;
  return PyFloat_Check(item) && PyFloat_AsDouble(item) != PyFloat_AsDouble(item);
}

Span span_of(PyObject* item, size_t row, Owners& owners) {
  if (PyUnicode_Check(item)) return span_of_str(item, owners);
  if (PyBytes_Check(item)) {
    char* bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(item, &bytes, &size)) throw nb::python_error();
    return {reinterpret_cast<const uint8_t*>(bytes), size};
  }
  if (is_missing(item)) return {nullptr, 0};
  throw nb::type_error(("row " + std::to_string(row) + " is no text").c_str());
}

std::vector<Span> spans_of_list(nb::list list, Owners& owners) {
  // A tuple of our own: another thread may change the list while its strings are read.
  nb::object items = nb::steal(PySequence_Tuple(list.ptr()));
  if (!items.is_valid()) throw nb::python_error();
  owners.push_back(items);
  const size_t n = static_cast<size_t>(PyTuple_Size(items.ptr()));
  std::vector<Span> spans(n);
  for (size_t i = 0; i < n; ++i)
    spans[i] = span_of(PyTuple_GetItem(items.ptr(), static_cast<Py_ssize_t>(i)), i, owners);
  return spans;
}

template <typename Offset>
Texts texts_in_buffers(In<uint8_t> data, const In<Offset>& offsets, const std::optional<In<uint8_t>>& valid) {
  require(offsets.size() > 0, "offsets must hold one number more than there are texts");
  const size_t n = offsets.size() - 1;
  require(!valid || valid->size() == n, "valid must hold one flag a text");
  const Offset* const at = offsets.data();
  require(at[0] >= 0 && static_cast<uint64_t>(at[n]) <= data.size(), "offsets reach beyond the data");
  bool ordered = true;  // told in the end, so that the loop can take several at once
  for (size_t i = 0; i < n; ++i) ordered &= at[i] <= at[i + 1];
  require(ordered, "offsets must not decrease");
  // A pointer that is not null even where there are no bytes: an empty text is not a missing one.
  static const uint8_t nothing = 0;
  Texts texts;
  texts.bytes = data.size() ? data.data() : &nothing;
  texts.valid = valid ? valid->data() : nullptr;
  texts.n = static_cast<int64_t>(n);
  return texts;
}

Texts texts_in_parts(nb::tuple parts) {
  require(parts.size() == 3, "texts must be a list, or (data, offsets, valid)");
  const auto data = nb::cast<In<uint8_t>>(parts[0], false);
  const auto valid = nb::cast<std::optional<In<uint8_t>>>(parts[2], false);
  In<int32_t> narrow;
  if (nb::try_cast(parts[1], narrow, false)) {
    Texts texts = texts_in_buffers(data, narrow, valid);
    texts.narrow = narrow.data();
    return texts;
  }
  const auto wide = nb::cast<In<int64_t>>(parts[1], false);
  Texts texts = texts_in_buffers(data, wide, valid);
  texts.wide = wide.data();
  return texts;
}

// What they are read from stays alive with the owners.
Texts texts_of(nb::object values, Owners& owners) {
  Texts texts;
  if (nb::isinstance<nb::list>(values)) {
    texts.spans = spans_of_list(nb::cast<nb::list>(values), owners);
    texts.n = static_cast<int64_t>(texts.spans.size());
  } else {
    owners.push_back(values);
    texts = texts_in_parts(nb::cast<nb::tuple>(values));
  }
  for (int64_t i = 0; i < texts.n; ++i)
    if (texts.at(i).size > kLongestDocument)
      throw std::invalid_argument("row " + std::to_string(i) + " is longer than 1 GiB; split it");
  return texts;
}

Field field_of(int32_t kind, nb::handle values, Owners& owners) {
  Field field;
  field.kind = kind;
  if (kind == kNumber) {
    const auto numbers = nb::cast<In<double>>(values, false);
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

HashTask task_of(const Recipe& recipe, nb::list columns, const std::optional<In<uint32_t>>& document_counts,
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

nb::tuple hash_rows_of(const Recipe& recipe, nb::list columns, std::optional<Out<uint32_t>> count_documents,
                       std::optional<In<uint32_t>> document_counts, double n_documents, NameBook* book,
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
nb::object score_rows(const Recipe& recipe, nb::list columns, std::optional<In<uint32_t>> document_counts,
                      double n_documents, int hashing_threads, ConstFloatTable weights, double scale,
                      In<double> bias, std::optional<In<int32_t>> slots, int n_threads, int table_bits,
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

// Texts to numbers, in the order in which they first come, and the rows in which that is; -1 for a missing
// one.
class TextNumbers {
 public:
  explicit TextNumbers(const Texts& texts) : texts_(texts), table_(64, -1) {}

  int32_t number(int64_t row) {
    const Span text = texts_.at(row);
    if (!text.data) return -1;
    if (2 * firsts_.size() >= table_.size()) grow();
    const size_t slot = slot_of(text);
    if (table_[slot] < 0) {
      table_[slot] = static_cast<int32_t>(firsts_.size());
      firsts_.push_back(row);
    }
    return table_[slot];
  }
  const std::vector<int64_t>& firsts() const { return firsts_; }

 private:
  // Where the text stands, or the free slot where it belongs.
  size_t slot_of(Span text) {
    const size_t size = static_cast<size_t>(text.size);
    if (padded_.size() < size + 16) padded_.resize(size + 16);
    memcpy(padded_.data(), text.data, size);
    const size_t last = table_.size() - 1;
    size_t slot = static_cast<size_t>(hash_bytes(padded_.data(), size, 0)) & last;
    for (; table_[slot] >= 0; slot = (slot + 1) & last) {
      const Span other = texts_.at(firsts_[static_cast<size_t>(table_[slot])]);
      if (other.size == text.size && memcmp(other.data, text.data, size) == 0) break;
    }
    return slot;
  }
  void grow() {
    table_.assign(2 * table_.size(), -1);
    for (size_t k = 0; k < firsts_.size(); ++k)
      table_[slot_of(texts_.at(firsts_[k]))] = static_cast<int32_t>(k);
  }

  const Texts& texts_;
  std::vector<int32_t> table_;  // numbers, -1: free
  std::vector<int64_t> firsts_;
  std::vector<uint8_t> padded_;
};

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

Result<uint64_t> mix_hashes(In<uint64_t> a, In<uint64_t> b) {
  require(a.size() == b.size(), "the arrays differ in length");
  uint64_t* const mixed = new_array<uint64_t>(a.size());
  for (size_t i = 0; i < a.size(); ++i) mixed[i] = mix(a.data()[i], b.data()[i]);
  return hand_over(mixed, {a.size()});
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

// The first number that float32 cannot hold, or -1; NaN stands for a missing one and passes.
int64_t first_too_large(In<double> numbers) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  const double* const end = numbers.data() + numbers.size();
  const double* const bad =
      std::find_if(numbers.data(), end, [](double x) { return std::fabs(x) > kLargest; });
  return bad == end ? -1 : bad - numbers.data();
}

// Whole numbers written out, as (data, offsets).
nb::tuple write_integers(In<int64_t> numbers) {
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

nb::object text_of(const char* text, size_t size) {
  // A name can be cut or come from bytes that are no UTF-8.
  PyObject* const decoded = PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(size), "replace");
  if (!decoded) throw nb::python_error();
  return nb::steal(decoded);
}

std::vector<size_t> used_places(const NameBook& book) {
  std::vector<size_t> places;
  for (size_t place = 0; place < book.n_slots(); ++place)
    if (book.is_used(place)) places.push_back(place);
  return places;
}

// What a parser logged of n_rows rows; the log is empty afterwards.
void read_log(NameBook& book, NameLog& log, int64_t n_rows) {
  book.read(log);
  book.set_rows(book.rows() + n_rows);
}

nb::list names_of(const NameBook& book, In<int64_t> buckets) {
  nb::list result;
  for (size_t i = 0; i < buckets.size(); ++i) {
    nb::list names;
    const int64_t bucket = buckets.data()[i];
    const int64_t place = bucket >= 0 && bucket <= UINT32_MAX ? book.find(static_cast<uint32_t>(bucket)) : -1;
    if (place >= 0) {
      const NameBook::Slot slot = book.slot(static_cast<size_t>(place));
      const uint32_t times[] = {slot.tally.times, slot.names.second_times};
      const int first = times[1] > times[0];  // the more frequent name leads
      for (int k : {first, 1 - first})
        if (times[k]) names.append(text_of(slot.names.texts[k], slot.names.sizes[k]));
    }
    result.append(names);
  }
  return result;
}

Result<int64_t> buckets_of(const NameBook& book) {
  std::vector<int64_t> buckets;
  for (size_t place : used_places(book)) buckets.push_back(book.slot(place).bucket);
  return copied(buckets);
}

void prune(NameBook& book, In<double> importance) {
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
  uint32_t* const numbers = new_array<uint32_t>(places.size() * kNumbers);
  uint8_t* const texts = new_array<uint8_t>(places.size() * kTextBytes);
  for (size_t k = 0; k < places.size(); ++k) {
    const NameBook::Slot slot = book.slot(places[k]);
    const NameBook::Names& names = slot.names;
    const uint32_t row[kNumbers] = {static_cast<uint32_t>(places[k]),
                                    slot.bucket,
                                    slot.tally.fingerprint,
                                    slot.tally.times,
                                    slot.tally.seniority,
                                    slot.tally.tenured,
                                    names.second_fingerprint,
                                    names.second_times,
                                    names.others,
                                    names.sizes[0],
                                    names.sizes[1]};
    std::copy_n(row, kNumbers, numbers + k * kNumbers);
    std::copy_n(reinterpret_cast<const uint8_t*>(names.texts), kTextBytes, texts + k * kTextBytes);
  }
  return nb::make_tuple(hand_over(numbers, {places.size(), kNumbers}),
                        hand_over(texts, {places.size(), kTextBytes}), copied(book.seen_once()),
                        copied(book.touched()), book.rows());
}

template <typename T>
using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void restore(NameBook& book, In2<uint32_t> numbers, In2<uint8_t> texts, In<uint64_t> seen_once,
             In<uint64_t> touched, int64_t rows) {
  const char* const damaged = "the state of the names is damaged";
  require(numbers.shape(1) == kNumbers && texts.shape(1) == kTextBytes && numbers.shape(0) == texts.shape(0),
          damaged);
  require(seen_once.size() == book.seen_once().size() && touched.size() == book.touched().size(), damaged);
  require(rows >= 0, damaged);
  for (size_t k = 0; k < numbers.shape(0); ++k) {
    const uint32_t* const row = numbers.data() + k * kNumbers;
    require(row[9] <= NameBook::kNameBytes && row[10] <= NameBook::kNameBytes, damaged);
    NameBook::Slot slot;
    slot.bucket = row[1];
    slot.tally = {row[2], row[3], row[4], row[5]};
    slot.names = {row[6], row[7], row[8], {static_cast<uint8_t>(row[9]), static_cast<uint8_t>(row[10])}, {}};
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
  nb::class_<NameLog>(module, "NameLog");
  nb::class_<NameBook>(module, "NameTable")
      .def(
          "__init__",
          [](NameBook* self, int64_t n_names) {
            require(n_names >= 1 && n_names <= 1 << 26, "the number of names must lie in 1..2^26");
            new (self) NameBook(n_names);
          },
          "n_names"_a)
      .def_prop_ro("n_bytes", &NameBook::n_bytes)
      .def_prop_ro("n_rows", &NameBook::rows)
      .def("names_of", names_of, "buckets"_a)
      .def("read", read_log, "log"_a, "n_rows"_a)
      .def("buckets", buckets_of)
      .def("touched", [](NameBook& self) { return copied(self.touched()); })
      .def("prune", prune, "importance"_a)
      .def("state", state_of)
      .def("restore", restore, "numbers"_a, "texts"_a, "seen_once"_a, "touched"_a, "rows"_a);
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
  module.def("split_words", split_words, "document"_a, "lowercase"_a, "min_letters"_a);
  module.def("first_no_text", first_no_text, "texts"_a);
  module.def("first_too_large", first_too_large, "numbers"_a);
  module.def("write_integers", write_integers, "numbers"_a);
}
