// SPDX-License-Identifier: Apache-2.0
// Feeds arbitrary bytes to the hasher of texts and categories and checks what it promises; mutate.h says how
// to compile it.
#include "core/threads.cpp"
#include "fuzz/mutate.h"
#include "text/names.cpp"
#include "text/text.cpp"
#include "text/words.cpp"

using namespace steepest;

namespace {

HashOptions options_of(uint8_t a, uint8_t b) {
  HashOptions options = {};
  options.n_bits = a & 1 ? 30 : 1 + (a >> 4);
  if (a & 2) options.ngrams = {1, 1 + (a >> 2 & 3)};
  if (b & 1) options.char_ngrams = {1 + (b >> 1 & 3), 1 + (b >> 1 & 3) + (b >> 3 & 3)};
  options.weighting = b % 3;
  options.copies = 1 + (b >> 7);
  options.min_letters = 1 + (b >> 5 & 3);
  options.is_signed = a & 4;
  options.lowercase = a & 8;
  options.normalise = b & 4;
  options.seed = a;
  options.min_rows = 1 + (b >> 6 & 1);
  return options;
}

// The one of the last input if its options were the same: its hashers, used before, must leave nothing
// behind.
const Recipe& recipe_of(uint8_t a, uint8_t b) {
  static std::unique_ptr<Recipe> recipe;
  static int last = -1;
  if (last != (a << 8 | b)) {
    const std::vector<Column> columns = {{kText, "t", "t"}, {kCategory, "c", "c"}};
    recipe = std::make_unique<Recipe>(options_of(a, b), columns, Crosses{{0, 1}}, Strings{"the", "a"});
    last = a << 8 | b;
  }
  return *recipe;
}

Field field_of(int32_t kind, const std::vector<Text>& texts) {
  Field field;
  field.kind = kind;
  for (const Text& text : texts)
    field.texts.spans.push_back({reinterpret_cast<const uint8_t*>(text.data), text.size});
  field.texts.n = static_cast<int64_t>(texts.size());
  return field;
}

void check_words(Words& words, const Text& text) {
  words.read({reinterpret_cast<const uint8_t*>(text.data), text.size});
  uint32_t last = 0;
  for (uint32_t i = 0; i < words.count(); ++i) {
    require(words.start(i) < words.end(i) && (i == 0 || words.start(i) > last), "words follow each other");
    require(static_cast<int64_t>(words.end(i)) <= 2 * text.size, "words lie in the folded text");
    last = words.end(i);
  }
}

void check(const HashedRows& rows, const HashTask& task) {
  require(static_cast<int64_t>(rows.indptr.size()) == task.n_rows + 1, "each row has an end");
  require(rows.indptr[0] == 0, "the first row begins at the start");
  for (int64_t i = 0; i < task.n_rows; ++i) {
    require(rows.indptr[i] <= rows.indptr[i + 1], "ends do not decrease");
    double square = 0;
    for (int64_t k = rows.indptr[i]; k < rows.indptr[i + 1]; ++k) {
      const float x = rows.values.data()[k];
      require(rows.indices.data()[k] >= 0 && rows.indices.data()[k] >> task.recipe.options.n_bits == 0,
              "columns are in range");
      require(std::isfinite(x), "values are finite");
      square += static_cast<double>(x) * x;
    }
    // Of several columns each has its own length.
    const bool alone = task.fields.size() == 1 && task.fields[0].kind == kText;
    require(!task.recipe.options.normalise || !alone || square == 0 || std::fabs(square - 1) < 1e-3,
            "rows of one text have length one");
  }
}

bool same(const HashedRows& a, const HashedRows& b) {
  return a.indptr == b.indptr &&
         std::equal(a.indices.data(), a.indices.data() + a.size(), b.indices.data()) &&
         std::equal(a.values.data(), a.values.data() + a.size(), b.values.data());
}

}  // namespace

// The first two bytes choose the options. The rest is text: each line is a row of a text column, of a column
// of categories, and of their cross. Names are kept in one of the two runs, which must not change the rows.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const HashOptions options = options_of(data[0], data[1]);
  const char* text = reinterpret_cast<const char*>(data) + 2;
  const char* const end = text + size - 2;
  ExactTexts lines;
  while (text <= end) {
    const char* const stop = std::find(text, end, '\n');
    lines.add(text, stop - text);
    text = stop + 1;
  }
  HashTask task{recipe_of(data[0], data[1])};
  task.n_rows = static_cast<int64_t>(lines.texts.size());
  task.fields = {field_of(kText, lines.texts), field_of(kCategory, lines.texts)};
  task.fields[1].texts.spans[0] = {nullptr, 0};  // missing
  Words words(options.lowercase, static_cast<uint32_t>(options.min_letters));
  for (const Text& line : lines.texts) check_words(words, line);
  const HashedRows rows = hash_rows(task, 1);
  check(rows, task);
  NameBook book(16);
  task.book = &book;
  const HashedRows named = hash_rows(task, 1);
  require(same(rows, named), "results are bit-identical with names");
  for (size_t place = 0; place < book.n_slots(); ++place)
    if (book.is_used(place))
      require(book.slot(place).bucket >> options.n_bits == 0, "names belong to columns in range");
  return 0;
}

#if !defined(STEEPEST_LIBFUZZER)
int main(int n_arguments, char** arguments) {
  const Strings seeds = {
      "The quick brown fox, it's 2 o'clock; a_b c-d e.f@g.h\nSECOND line\r\n\n",
      "Stra\xC3\x9F"
      "e \xC3\x89t\xC3\xA9 \xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xC4\xB0stanbul "
      "\xEF\xBB\xBFmark\n",
      "\xE6\xBC\xA2\xE5\xAD\x97 kana \xE3\x81\x8B\xE3\x81\xAA \xF0\xA0\x80\x80 so\xC2\xAD"
      "ft "
      "zero\xE2\x80\x8Bwidth\xE2\x80\x8Djoin\n",
      "\xFF\xFE\xC0\x80 \xED\xA0\x80 \xF4\x90\x80\x80 \xE2\x82 cut \xF0\x9F\x98\n",
      std::string(300, 'a') + " " + std::string(40, '_') + " " + std::string(17, '\xC3') + "\n",
  };
  const Strings pieces = {" ",
                          "\n",
                          "\r\n",
                          "a",
                          "A",
                          "_",
                          "9",
                          "\xC3\xA9",
                          "\xE6\xBC\xA2",
                          "\xF0\xA0\x80\x80",
                          "\xC2\xAD",
                          "\xFF",
                          "\xE2\x80\x8D",
                          "the ",
                          "0123456789abcdef",
                          "\t"};
  return run_mutated(n_arguments, arguments, seeds, pieces, 2);
}
#endif
