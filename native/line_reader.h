// SPDX-License-Identifier: Apache-2.0
// The frame of a parser of lines: texts one after the other, each line read by its format, bad ones noted.
// Every line ends in '\n' (the last one is copied if it does not), so that a format reads without a test for
// the end.
#pragma once

#include <cstring>
#include <vector>

#include "lines.h"

namespace steepest {

// A Format has read_line(p), which leaves p at the line's '\n' or says false after fail(),
// wrong_token_end() and name_of(fault); a Fault has kBinary.
template <typename Format, typename Options, typename Rows, typename Fault>
class LineReader {
 public:
  // False: there was a bad line and none may be skipped.
  bool read(const Text& text) {
    rows_.text_rows.push_back(0);
    rows_.text_bad.push_back(0);
    first_row_ = rows_.n_rows;
    int64_t whole = text.size;
    while (whole > 0 && text.data[whole - 1] != '\n') --whole;
    bool good = read_lines(text.data, text.data + whole, 0);
    if (good && whole < text.size) {
      std::vector<char> last(text.data + whole, text.data + text.size);
      last.push_back('\n');
      good = read_lines(last.data(), last.data() + last.size(), whole);
    }
    rows_.text_rows.back() = rows_.n_rows - first_row_;
    return good;
  }

 protected:
  LineReader(const Options& options, Rows& rows, int64_t max_rows)
      : options_(options), rows_(rows), max_rows_(max_rows) {}

  bool fail(Fault fault, const char* token) {
    fault_ = fault;
    token_ = token;
    return false;
  }

  const char* line_end(const char* p) const {
    return static_cast<const char*>(std::memchr(p, '\n', static_cast<size_t>(end_ - p)));
  }

  const Options& options_;
  Rows& rows_;
  const int64_t max_rows_;
  int64_t first_row_ = 0;  // of this text
  const char* end_ = nullptr;
  Fault fault_ = Fault::kBinary;
  const char* token_ = nullptr;

 private:
  // Lines that end in '\n' and lie `offset` bytes behind the start of the text.
  bool read_lines(const char* begin, const char* end, int64_t offset) {
    end_ = end;
    for (const char* p = begin; p < end; ++p) {
      const char* line = p;
      if (static_cast<Format*>(this)->read_line(p)) continue;
      note(begin, line, offset);
      if (!options_.skip_bad) return false;
      p = line_end(line);
    }
    return true;
  }

  void note(const char* begin, const char* line, int64_t offset) {
    if (std::memchr(line, '\0', static_cast<size_t>(line_end(line) - line))) fault_ = Fault::kBinary;
    if (++rows_.text_bad.back() > kBadLinesKept) return;
    const char* const stop = static_cast<Format*>(this)->wrong_token_end();
    rows_.bad.push_back({static_cast<int64_t>(rows_.text_bad.size()) - 1, line - begin + offset,
                         token_ - begin + offset, stop - token_, Format::name_of(fault_)});
  }
};

}  // namespace steepest
