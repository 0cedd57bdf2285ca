// SPDX-License-Identifier: Apache-2.0
// Feeds arbitrary bytes to the libsvm parser and checks what it promises.
//   clang++ -std=c++17 -g -O1 -fsanitize=fuzzer,address,undefined -DSTEEPEST_LIBFUZZER
//   native/fuzz/fuzz_libsvm.cpp g++     -std=c++17 -g -O1 -fsanitize=address,undefined
//   native/fuzz/fuzz_libsvm.cpp && ./a.out 20000 1
// The second form needs no libFuzzer: it mutates a few seeds by itself, as often as told, from the given
// random seed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "../libsvm.cpp"

using namespace steepest;

namespace {

void require(bool condition, const char* promise) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

void check(const LibsvmRows& rows, const std::vector<Text>& texts, const LibsvmOptions& options) {
  const int64_t* indptr = rows.indptr.data();
  require(indptr[0] == 0 && indptr[rows.n_rows] == rows.n_entries, "indptr spans the entries");
  for (int64_t i = 0; i < rows.n_rows; ++i) {
    require(indptr[i] <= indptr[i + 1], "indptr does not decrease");
    require(std::isfinite(rows.y.data()[i]), "labels are finite");
    require(!rows.has_groups || rows.groups.data()[i] >= kNoGroup, "groups are numbers or none");
  }
  int64_t widest = 0;
  for (int64_t k = 0; k < rows.n_entries; ++k) {
    const int64_t column = rows.indices.data()[k];
    require(column >= 0 && column < options.n_features, "columns are in range");
    require(std::isfinite(rows.values.data()[k]), "values are finite");
    widest = std::max(widest, column + 1);
  }
  require(rows.n_features == widest, "n_features is the widest row");
  int64_t n_rows = 0, n_bad = 0;
  for (int64_t n : rows.text_rows) n_rows += n;
  for (int64_t n : rows.text_bad) n_bad += n;
  require(n_rows == rows.n_rows, "each row belongs to a text");
  require(options.skip_bad || n_bad <= 1, "reading ends at the first bad line");
  for (const BadLine& bad : rows.bad) {
    const Text& text = texts.at(static_cast<size_t>(bad.text));
    require(bad.line >= 0 && bad.line <= bad.token, "a token is in its line");
    require(bad.token_length >= 0 && bad.token + bad.token_length <= text.size, "a token is in its text");
    require(bad.line == 0 || text.data[bad.line - 1] == '\n', "a bad line starts at a line start");
    require(std::strlen(bad.fault) > 0, "a fault has a name");
  }
}

template <typename T>
bool same(const Room<T>& a, const Room<T>& b, int64_t n) {
  return n == 0 || std::memcmp(a.data(), b.data(), static_cast<size_t>(n) * sizeof(T)) == 0;
}

}  // namespace

// The first byte chooses the options, the rest is text; its halves must parse like the whole if they are cut
// at a line.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  LibsvmOptions options;
  options.zero_based = data[0] & 1;
  options.with_labels = data[0] & 2;
  options.skip_bad = data[0] & 4;
  if (data[0] & 8) options.n_features = 1 + (data[0] >> 4);
  // A heap block of just the right size: the sanitizer sees a read of one byte more.
  const std::unique_ptr<char[]> exact(new char[size - 1]);
  std::copy_n(data + 1, size - 1, exact.get());
  const int64_t length = static_cast<int64_t>(size) - 1;
  const std::vector<Text> whole = {{exact.get(), length}};
  LibsvmRows rows;
  parse_libsvm(whole, options, rows);
  check(rows, whole, options);

  int64_t cut = length / 2;
  while (cut > 0 && exact[cut - 1] != '\n') --cut;
  const std::unique_ptr<char[]> front(new char[cut]);
  std::copy_n(exact.get(), cut, front.get());
  const std::unique_ptr<char[]> back(new char[length - cut]);
  std::copy_n(exact.get() + cut, length - cut, back.get());
  const std::vector<Text> halves = {{front.get(), cut}, {back.get(), length - cut}};
  LibsvmRows parts;
  parse_libsvm(halves, options, parts);
  check(parts, halves, options);
  require(rows.n_rows == parts.n_rows && rows.n_entries == parts.n_entries,
          "a cut at a line changes nothing");
  require(same(rows.indptr, parts.indptr, rows.n_rows + 1) &&
              same(rows.indices, parts.indices, rows.n_entries) &&
              same(rows.values, parts.values, rows.n_entries) && same(rows.y, parts.y, rows.n_rows),
          "a cut at a line changes no number");
  return 0;
}

#if !defined(STEEPEST_LIBFUZZER)

#include <random>
#include <string>

namespace {

const char* const kSeeds[] = {
    "+1 1:0.5 3:-2 7:1e-3\n-1 2:1\n",
    "1 qid:3 1:1 2:2 # comment 3:4\r\n\r\n# only a comment\n0\t5:0.125\t6:1\n",
    "-1.5e3 4:0.12345678901234567890123 9:1e-400 10:123456789012345678901234567890\n",
    "1:2 3:4\n5,6 1:1\nnan 1:1\n1 0:1\n1 -1:1\n1 1\n1 1:\n1 1:inf\n1 2147483647:1 2147483648:1",
};
const char* const kPieces[] = {
    ":",   " ",        "\n",   "\r\n", "#",     "e",  "-", "+", ".", "0", "99999999999999999999",
    "nan", "infinity", "qid:", "1:1 ", "1e308", "\t", ","};

std::string mutated(std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::string text = kSeeds[below(std::size(kSeeds))];
  for (size_t i = below(3); i > 0; --i) text += kSeeds[below(std::size(kSeeds))];
  for (size_t i = below(12); i > 0; --i) {
    const size_t place = below(text.size() + 1);
    switch (below(5)) {
      case 0:
        text.insert(place, kPieces[below(std::size(kPieces))]);
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

}  // namespace

int main(int n_arguments, char** arguments) {
  const int64_t n_inputs = n_arguments > 1 ? std::atoll(arguments[1]) : 20000;
  std::mt19937_64 random(n_arguments > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1);
  for (int64_t i = 0; i < n_inputs; ++i) {
    std::string input = static_cast<char>(random()) + mutated(random);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  std::printf("%lld inputs\n", static_cast<long long>(n_inputs));
  return 0;
}
#endif
