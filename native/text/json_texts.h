// SPDX-License-Identifier: Apache-2.0
// The texts of {"rows": ["...", ...]}, the body of a request, without an object for each. Any other body is
// left to a general reader, which can tell what is wrong with it: one that is not JSON or UTF-8, or has lone
// surrogates.
#pragma once
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <charconv>

#include "text/buffer.h"
#include "text/words.h"

namespace steepest {

class JsonTexts {
 public:
  JsonTexts(const uint8_t* body, size_t size)
      : at_(body), end_(body + size), start_(data.reserve(size)), out_(start_) {}

  // Whether all of the body has been read into `data` and `offsets`.
  bool read() {
    if (!takes("{") || !takes("\"rows\"") || !takes(":") || !takes("[")) return false;
    close();
    if (!takes("]")) {
      do {
        if (!takes("\"") || !text()) return false;
      } while (takes(","));
      if (!takes("]")) return false;
    }
    return takes("}") && takes("") && at_ == end_ && (all_ < 0x80 || is_utf8(start_, n_bytes()));
  }
  size_t n_bytes() const { return static_cast<size_t>(out_ - start_); }

  Buffer<uint8_t> data;
  Buffer<int32_t> offsets;
  size_t n_offsets = 0;

 private:
  // Passes over white space and this mark, if it comes next.
  bool takes(const char* mark) {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
    const size_t size = strlen(mark);
    if (static_cast<size_t>(end_ - at_) < size || memcmp(at_, mark, size) != 0) return false;
    at_ += size;
    return true;
  }

  void close() { offsets.reserve(++n_offsets)[n_offsets - 1] = static_cast<int32_t>(n_bytes()); }

  // A text, from behind its first quote. The quote that was found stays until it is passed: no byte is
  // searched twice.
  bool text() {
    for (const uint8_t* quote = nullptr;;) {
      if (!quote || at_ > quote) quote = find('"', end_);
      if (!quote) return false;
      const uint8_t* const escaped = find('\\', quote);
      if (!copy(escaped ? escaped : quote)) return false;
      if (escaped && !unescape()) return false;
      if (escaped) continue;
      ++at_;
      close();
      return true;
    }
  }

  const uint8_t* find(char mark, const uint8_t* end) const {
    return static_cast<const uint8_t*>(memchr(at_, mark, static_cast<size_t>(end - at_)));
  }

  bool copy(const uint8_t* stop) {
    uint8_t least = 0xFF, all = 0;
    for (const uint8_t* byte = at_; byte < stop; ++byte) least = std::min(least, *byte), all |= *byte;
    if (at_ < stop) memcpy(out_, at_, static_cast<size_t>(stop - at_));
    out_ += stop - at_;
    at_ = stop;
    all_ |= all;
    return least >= 0x20;
  }

  bool unescape() {
    static constexpr char kMarks[] = "\"\\/bfnrt", kBytes[] = "\"\\/\b\f\n\r\t";
    if (end_ - at_ < 2) return false;
    if (const void* const mark = memchr(kMarks, at_[1], sizeof kMarks - 1)) {
      *out_++ = static_cast<uint8_t>(kBytes[static_cast<const char*>(mark) - kMarks]);
      at_ += 2;
      return true;
    }
    uint32_t code, low;
    if (!takes_code(code)) return false;
    if (code - 0xD800 < 0x800) {  // half of a pair
      if (code >= 0xDC00 || !takes_code(low) || low - 0xDC00 >= 0x400) return false;
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    out_ += encode(code, out_);
    return true;
  }

  bool takes_code(uint32_t& code) {
    if (end_ - at_ < 6 || at_[0] != '\\' || at_[1] != 'u') return false;
    const char* const digits = reinterpret_cast<const char*>(at_) + 2;
    at_ += 6;
    return std::from_chars(digits, digits + 4, code, 16).ptr == digits + 4;
  }

  const uint8_t *at_, *const end_;
  uint8_t *const start_, *out_;
  uint8_t all_ = 0;  // bits of all bytes that were copied
};

}  // namespace steepest
