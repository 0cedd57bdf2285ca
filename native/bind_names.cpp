// SPDX-License-Identifier: Apache-2.0
// Python names for the book in which hashed features keep theirs.
#include <nanobind/stl/vector.h>

#include "bind_texts.h"
#include "names.h"

using namespace nb::literals;

namespace steepest {
namespace {

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

void restore(NameBook& book, In2<uint32_t> numbers, In2<uint8_t> texts, List<uint64_t> seen_once,
             List<uint64_t> touched, int64_t rows) {
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

void bind_names(nb::module_& module) {
  module.attr("sampled_buckets") = NameBook::kSampledBuckets;
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
}
