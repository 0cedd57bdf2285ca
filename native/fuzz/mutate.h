// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets share: promises, and a program that mutates seeds where there is no libFuzzer.
//   clang++ -std=c++17 -g -O1 -fsanitize=fuzzer,address,undefined -DSTEEPEST_LIBFUZZER native/fuzz/TARGET.cpp
//   g++     -std=c++17 -g -O1 -fsanitize=address,undefined native/fuzz/TARGET.cpp && ./a.out 20000 1
// The second form mutates a target's seeds that often, from the given random seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "parse/lines.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

#if !defined(STEEPEST_LIBFUZZER)
// Small inputs need no quarantine of 256 MB: with it half the time is spent on fresh pages.
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=8:malloc_context_size=4"; }
#endif

namespace steepest {

inline void require(bool condition, const char* promise) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

template <typename T>
bool same(const PooledArray<T>& a, const PooledArray<T>& b, int64_t n) {
  return n == 0 || std::memcmp(a.data(), b.data(), static_cast<size_t>(n) * sizeof(T)) == 0;
}

// Texts in heap blocks of just the right size: the sanitizer sees a read of one byte more.
class ExactTexts {
 public:
  void add(const char* data, int64_t size) {
    blocks_.emplace_back(new char[static_cast<size_t>(size)]);
    std::copy_n(data, size, blocks_.back().get());
    texts.push_back({blocks_.back().get(), size});
  }
  std::vector<Text> texts;

 private:
  std::vector<std::unique_ptr<char[]>> blocks_;
};

// Of the rows and the bad lines of any format.
inline void check_lines(const ParsedRows& rows, const std::vector<Text>& texts, bool skip_bad) {
  const int64_t* indptr = rows.indptr.data();
  require(indptr[0] == 0 && indptr[rows.n_rows] == rows.n_entries, "indptr spans the entries");
  for (int64_t i = 0; i < rows.n_rows; ++i) {
    require(indptr[i] <= indptr[i + 1], "indptr does not decrease");
    require(std::isfinite(rows.y.data()[i]), "labels are finite");
  }
  for (int64_t k = 0; k < rows.n_entries; ++k)
    require(std::isfinite(rows.values.data()[k]), "values are finite");
  int64_t n_rows = 0, n_bad = 0;
  for (int64_t n : rows.text_rows) n_rows += n;
  for (int64_t n : rows.text_bad) n_bad += n;
  require(n_rows == rows.n_rows, "each row belongs to a text");
  require(skip_bad || n_bad <= 1, "reading ends at the first bad line");
  for (const BadLine& bad : rows.bad) {
    const Text& text = texts.at(static_cast<size_t>(bad.text));
    require(bad.line >= 0 && bad.line <= bad.token, "a token is in its line");
    require(bad.token_length >= 0 && bad.token + bad.token_length <= text.size, "a token is in its text");
    require(bad.line == 0 || text.data[bad.line - 1] == '\n', "a bad line starts at a line start");
    require(std::strlen(bad.fault) > 0, "a fault has a name");
  }
}

template <typename T>
bool same(const OptionalColumn<T>& a, const OptionalColumn<T>& b, int64_t n) {
  return a.is_used == b.is_used && (!a.is_used || same(a.values, b.values, n));
}

// Parses a text as a whole and cut at a line into two: both keep what is promised, and have the same rows.
template <typename Options, typename Rows, typename Check, typename Column>
void check_parser(const char* data, int64_t size, const Options& options,
                  void (*parse)(const std::vector<Text>&, const Options&, Rows&), const Check& check,
                  Column Rows::* column) {
  int64_t cut = size / 2;
  while (cut > 0 && data[cut - 1] != '\n') --cut;
  ExactTexts whole, halves;
  whole.add(data, size);
  halves.add(data, cut);
  halves.add(data + cut, size - cut);
  Rows rows, parts;
  parse(whole.texts, options, rows);
  check_lines(rows, whole.texts, options.skip_bad);
  check(rows);
  parse(halves.texts, options, parts);
  check_lines(parts, halves.texts, options.skip_bad);
  check(parts);
  require(rows.n_rows == parts.n_rows && rows.n_entries == parts.n_entries,
          "a cut at a line changes nothing");
  require(same(rows.indptr, parts.indptr, rows.n_rows + 1) &&
              same(rows.indices, parts.indices, rows.n_entries) &&
              same(rows.values, parts.values, rows.n_entries) && same(rows.y, parts.y, rows.n_rows) &&
              same(rows.*column, parts.*column, rows.n_rows),
          "a cut at a line changes no number");
}

using Strings = std::vector<std::string>;

inline std::string mutated(std::mt19937_64& random, const Strings& seeds, const Strings& pieces) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::string text = seeds[below(seeds.size())];
  for (size_t i = below(3); i > 0; --i) text += seeds[below(seeds.size())];
  for (size_t i = below(12); i > 0; --i) {
    const size_t place = below(text.size() + 1);
    switch (below(5)) {
      case 0:
        text.insert(place, pieces[below(pieces.size())]);
        break;
      case 1:
        text.insert(place, 1, static_cast<char>(random()));
        break;
      case 2:
        text.erase(place, 1 + below(8));
        break;
      case 3:
        text.resize(place);
        break;
      default:
        if (place < text.size()) text[place] = static_cast<char>(random());
    }
  }
  return text;
}

// Zero bytes are among the pieces to insert. The bytes that choose options change after every few inputs, so
// that a target may keep what it builds from them.
inline int run_mutated(int n_arguments, char** arguments, const Strings& seeds, Strings pieces,
                       size_t n_option_bytes = 1) {
  constexpr int64_t kInputsPerOptions = 16;
  pieces.emplace_back(1, '\0');
  const int64_t n_inputs = n_arguments > 1 ? std::atoll(arguments[1]) : 20000;
  std::mt19937_64 random(n_arguments > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1);
  std::string options(n_option_bytes, '\0');
  for (int64_t i = 0; i < n_inputs; ++i) {
    if (i % kInputsPerOptions == 0)
      for (char& byte : options) byte = static_cast<char>(random());
    const std::string input = options + mutated(random, seeds, pieces);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    if (i > 0 && i % 1000000 == 0) std::fprintf(stderr, "%lld inputs so far\n", static_cast<long long>(i));
  }
  std::printf("%lld inputs\n", static_cast<long long>(n_inputs));
  return 0;
}

}  // namespace steepest
