// SPDX-License-Identifier: Apache-2.0
#include "text/words.h"

#include <string.h>

#include <algorithm>

#include "core/bits.h"
#include "text/hash.h"
#include "text/unicode_table.h"

#if defined(__SSE2__) || defined(_M_X64)
#define STEEPEST_SSE2
#include <emmintrin.h>
#endif

namespace steepest {
namespace {

constexpr int64_t kBlock = 16;
constexpr uint32_t kInvalid = 0xFFFFFFFF;
constexpr uint32_t kCodePoints = 0x110000, kPlaneZero = 0x10000;

// The runs and ranges of unicode_table.h, spread out for lookup in constant time; a text touches few of its
// cache lines.
class Characters {
 public:
  Characters() : words_(kCodePoints / 64), folded_(kPlaneZero) {
    uint32_t next = kFirstCode;
    bool is_word = false;
    for (uint32_t run : kWordRuns) {
      for (uint32_t code = next; is_word && code < next + run; ++code)
        words_[code / 64] |= uint64_t{1} << code % 64;
      next += run;
      is_word = !is_word;
    }
    for (uint32_t code = 0; code < kPlaneZero; ++code) folded_[code] = static_cast<uint16_t>(code);
    for (const FoldRange& range : kFoldRanges)
      for (uint32_t code = range.first; code <= range.last && code < kPlaneZero; code += range.stride)
        folded_[code] = static_cast<uint16_t>(code + range.difference);
  }

  bool is_word(uint32_t code) const { return words_[code / 64] >> code % 64 & 1; }

  uint32_t fold(uint32_t code) const {
    if (code < kPlaneZero) return folded_[code];
    for (const FoldRange& range : kFoldRanges)
      if (code >= range.first && code <= range.last && (code - range.first) % range.stride == 0)
        return code + range.difference;
    return code;
  }

 private:
  std::vector<uint64_t> words_;
  std::vector<uint16_t> folded_;
};

const Characters& characters() {
  static const Characters table;
  return table;
}

bool is_ascii_word(uint32_t code) { return (code | 0x20) - 'a' < 26 || code - '0' < 10 || code == '_'; }

bool is_ideograph(uint32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x20000 && code <= 0x3FFFF);
}

// Soft hyphen, zero-width joiners, word joiner, byte order mark: invisible, so a word reads the same with and
// without.
bool is_invisible(uint32_t code) {
  return code == 0xAD || code == 0x200C || code == 0x200D || code == 0x2060 || code == 0xFEFF;
}

// Bytes that a lead byte announces, 0 for a byte that cannot start a character.
int length_of(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
}

// The character at `text`, or kInvalid for overlong forms, surrogates, numbers beyond Unicode and cut
// sequences.
uint32_t decode(const uint8_t* text, const uint8_t* end, int length) {
  if (length == 0 || end - text < length) return kInvalid;
  if (length == 1) return text[0];
  uint32_t code = text[0] & (0x7F >> length);
  for (int k = 1; k < length; ++k) {
    if ((text[k] & 0xC0) != 0x80) return kInvalid;
    code = code << 6 | (text[k] & 0x3F);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  return overlong || code >= kCodePoints || (code >= 0xD800 && code < 0xE000) ? kInvalid : code;
}

// Of 1 to 8 bytes; 8 can be read.
bool is_short_ascii(const uint8_t* text, uint32_t size) {
  return (load_word(text) << (64 - 8 * size) & 0x8080808080808080) == 0;
}

#if defined(STEEPEST_SSE2)
// Which bytes lie in first..last, by saturation: x - first <= last - first, unsigned.
__m128i in_range(__m128i bytes, char first, char last) {
  const __m128i offset = _mm_sub_epi8(bytes, _mm_set1_epi8(first));
  return _mm_cmpeq_epi8(_mm_min_epu8(offset, _mm_set1_epi8(static_cast<char>(last - first))), offset);
}

bool is_ascii_block(const uint8_t* block) {
  return _mm_movemask_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block))) == 0;
}

// Copies 16 ASCII bytes, folded on request; returns a bit for each that belongs to a word.
uint64_t copy_block(const uint8_t* block, bool lowercase, uint8_t* out) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block));
  const __m128i low = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
  const __m128i letters = in_range(low, 'a', 'z');
  const __m128i others = _mm_or_si128(in_range(bytes, '0', '9'), _mm_cmpeq_epi8(bytes, _mm_set1_epi8('_')));
  const __m128i change = _mm_and_si128(letters, _mm_set1_epi8(lowercase ? 0x20 : 0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_or_si128(bytes, change));
  return static_cast<uint64_t>(_mm_movemask_epi8(_mm_or_si128(letters, others)));
}
#else
bool is_ascii_block(const uint8_t* block) {
  uint8_t all = 0;
  for (int k = 0; k < kBlock; ++k) all |= block[k];
  return all < 0x80;
}

uint64_t copy_block(const uint8_t* block, bool lowercase, uint8_t* out) {
  uint64_t bits = 0;
  for (int k = 0; k < kBlock; ++k) {
    const uint8_t byte = block[k];
    const bool letter = (byte | 0x20) - 'a' < 26u;
    out[k] = lowercase && letter ? byte | 0x20 : byte;
    bits |= static_cast<uint64_t>(is_ascii_word(byte)) << k;
  }
  return bits;
}
#endif

}  // namespace

int encode(uint32_t code, uint8_t* out) {
  if (code < 0x80) {
    out[0] = static_cast<uint8_t>(code);
    return 1;
  }
  const int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (int k = length - 1; k > 0; --k, code >>= 6) out[k] = static_cast<uint8_t>(0x80 | (code & 0x3F));
  out[0] = static_cast<uint8_t>((0xF00 >> length & 0xFF) | code);
  return length;
}

bool is_utf8(const uint8_t* text, size_t size) {
  const uint8_t* const end = text + size;
  while (text < end) {
    if (end - text >= 8 && is_short_ascii(text, 8)) {
      text += 8;
      continue;
    }
    const int length = length_of(*text);
    if (decode(text, end, length) == kInvalid) return false;
    text += length;
  }
  return true;
}

void Words::read(Span document) {
  make_room(document.size);
  const uint8_t* text = document.data;
  const uint8_t* const end = text + document.size;
  while (text < end) {
    text = fold_ascii(text, end);
    const uint8_t* const stop = std::min(text + kBlock, end);
    ascii_ = ascii_ && text == end;
    while (text < stop) text = fold_character(text, end);
  }
  split();
}

void Words::make_room(int64_t size) {
  // Folding lengthens a character by half at most, an ideograph takes two separators: less than double.
  const size_t most = static_cast<size_t>(2 * size);
  if (buffer_.size() < most + 2 * kMargin) buffer_.resize(most + 2 * kMargin);
  // Two more words: a block of marks may reach over the end, and the last edge needs a zero bit.
  if (marks_.size() < most / 64 + 3) marks_.resize(most / 64 + 3);
  std::fill_n(marks_.begin(), most / 64 + 3, 0);
  size_ = 0;
  ascii_ = true;
}

// Takes whole blocks as long as they are ASCII, and what remains at the end if that is.
const uint8_t* Words::fold_ascii(const uint8_t* text, const uint8_t* end) {
  for (; end - text >= kBlock; text += kBlock) {
    if (!is_ascii_block(text)) return text;
    fold_block(text, kBlock);
  }
  if (text == end) return text;
  uint8_t rest[kBlock] = {};
  memcpy(rest, text, static_cast<size_t>(end - text));
  if (!is_ascii_block(rest)) return text;
  fold_block(rest, end - text);
  return end;
}

void Words::fold_block(const uint8_t* block, int64_t size) {
  mark(copy_block(block, lowercase_, bytes() + size_));
  size_ += size;
}

const uint8_t* Words::fold_character(const uint8_t* text, const uint8_t* end) {
  const int length = length_of(*text);
  const uint32_t code = decode(text, end, length);
  if (code == kInvalid) {
    append(' ');
    return text + 1;
  }
  if (is_ideograph(code)) {
    if (after_word()) append(' ');
    append(code);
    append(' ');
  } else if (!is_invisible(code)) {
    append(code);
  }
  return text + length;
}

void Words::append(uint32_t code) {
  const Characters& table = characters();
  const bool is_word = code < 0x80 ? is_ascii_word(code) : table.is_word(code);
  if (lowercase_ && is_word) code = code - 'A' < 26 ? code | 0x20 : code < 0x80 ? code : table.fold(code);
  const int length = encode(code, bytes() + size_);
  if (is_word) mark((uint64_t{1} << length) - 1);
  size_ += length;
}

// Bits of the next bytes, before they are counted in size_.
void Words::mark(uint64_t bits) {
  uint64_t* const place = marks_.data() + size_ / 64;
  const int offset = static_cast<int>(size_ % 64);
  place[0] |= bits << offset;
  place[1] |= bits >> 1 >> (63 - offset);
}

bool Words::after_word() const {
  return size_ > 0 && (marks_[static_cast<size_t>(size_ - 1) / 64] >> (size_ - 1) % 64 & 1);
}

// Where bits of the marks change, words begin and end in turn. The bit after the last byte is zero and ends
// the last.
void Words::split() {
  const size_t n_marks = static_cast<size_t>(size_) / 64 + 1;
  if (edges_.size() < static_cast<size_t>(size_) + 2) edges_.resize(static_cast<size_t>(size_) + 2);
  // A bit without neighbours is a word of one byte, the most frequent kind to drop: it goes before it is
  // found.
  const uint64_t keep_single = min_letters_ > 1 ? 0 : ~uint64_t{0};
  uint32_t* edge = edges_.data();
  uint64_t previous = 0, inside = 0;  // the bit before this word of marks, as it was and as it was kept
  for (size_t k = 0; k < n_marks; ++k) {
    const uint64_t all = marks_[k];
    const uint64_t bits = all & (keep_single | all << 1 | previous | all >> 1 | marks_[k + 1] << 63);
    uint64_t changes = bits ^ (bits << 1 | inside);
    previous = all >> 63;
    inside = bits >> 63;
    for (; changes; changes &= changes - 1) *edge++ = static_cast<uint32_t>(64 * k) + trailing_zeros(changes);
  }
  count_ = static_cast<uint32_t>((edge - edges_.data()) / 2);
  if (min_letters_ < 2 || (ascii_ && min_letters_ == 2)) return;
  if (ascii_)
    select([&](uint32_t i) { return size(i) >= min_letters_; });
  else
    select([&](uint32_t i) { return is_long_enough(start(i), end(i)); });
}

bool Words::is_long_enough(uint32_t first, uint32_t last) const {
  const uint8_t* const text = buffer_.data() + kMargin;
  const uint32_t size = last - first;
  if (size >= 4 * min_letters_) return true;
  if (size <= 8 && is_short_ascii(text + first, size)) return size >= min_letters_;
  uint32_t letters = 0;
  for (uint32_t k = first; k < last; ++k) letters += (text[k] & 0xC0) != 0x80;
  return letters >= min_letters_ || is_ideograph(decode(text + first, text + last, length_of(text[first])));
}

}  // namespace steepest
