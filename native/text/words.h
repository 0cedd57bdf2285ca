// SPDX-License-Identifier: Apache-2.0
// A UTF-8 document becomes its words. A word is a run of letters, marks, numbers and "_"; a Han ideograph is
// a word by itself. Letters are folded to lower case. Invalid UTF-8 separates words; invisible joiners and
// soft hyphens vanish. Runs of ASCII go 16 bytes at a time. Left out: Unicode normalisation, and dividing
// runs of Thai, Lao, Khmer or kana.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <vector>

namespace steepest {

// Bytes of somebody else; no data at all means that the value is missing.
struct Span {
  const uint8_t* data;
  int64_t size;
};

// Positions inside a document are 32 bits wide, and folding may double its size.
constexpr int64_t kLongestDocument = int64_t{1} << 30;

// Whether the bytes are UTF-8, of nothing but characters of Unicode.
bool is_utf8(const uint8_t* text, size_t size);

// Writes a character as UTF-8; returns how many bytes that takes.
int encode(uint32_t code, uint8_t* out);

class Words {
 public:
  // Words of fewer than min_letters characters are dropped, except ideographs.
  Words(bool lowercase, uint32_t min_letters) : lowercase_(lowercase), min_letters_(min_letters) {}

  // The document must not be longer than kLongestDocument.
  void read(Span document);

  uint32_t count() const { return count_; }
  uint32_t start(uint32_t i) const { return edges_[2 * i]; }
  uint32_t end(uint32_t i) const { return edges_[2 * i + 1]; }
  uint32_t size(uint32_t i) const { return end(i) - start(i); }
  const uint32_t* bounds() const { return edges_.data(); }  // start, end, start, end, ...

  // Keeps the words for which keep(i) is true.
  template <typename Keep>
  void select(const Keep& keep) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      const uint32_t first = start(i), last = end(i);
      edges_[2 * kept] = first;
      edges_[2 * kept + 1] = last;
      kept += keep(i) ? 1 : 0;
    }
    count_ = kept;
  }

  // The folded bytes. Around each word there is a byte on either side that belongs to no word and may be
  // overwritten, and 16 bytes can be read from the start of each.
  uint8_t* bytes() { return buffer_.data() + kMargin; }

  // That it holds on to.
  size_t n_bytes() const { return buffer_.capacity() + edges_.capacity() * sizeof(uint32_t); }

 private:
  static constexpr int64_t kMargin = 64;

  void make_room(int64_t size);
  const uint8_t* fold_ascii(const uint8_t* text, const uint8_t* end);
  const uint8_t* fold_character(const uint8_t* text, const uint8_t* end);
  void fold_block(const uint8_t* block, int64_t size);
  void append(uint32_t code);
  void mark(uint64_t bits);
  bool after_word() const;
  void split();
  bool is_long_enough(uint32_t start, uint32_t end) const;

  bool lowercase_;
  uint32_t min_letters_;
  bool ascii_ = true;
  int64_t size_ = 0;             // bytes written
  uint32_t count_ = 0;           // words found
  std::vector<uint8_t> buffer_;  // margin, folded bytes, margin
  std::vector<uint64_t> marks_;  // one bit per byte: part of a word
  std::vector<uint32_t> edges_;  // start, end, start, end, ...
};

}  // namespace steepest
