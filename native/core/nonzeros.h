// SPDX-License-Identifier: Apache-2.0
// Arrays that are mostly zero, as a bit for every element and the elements that are not zero, one behind the
// other. Elements are bit patterns: minus zero is not zero, and a NaN is what it is.
#pragma once
#include <cstdint>
#include <vector>

#include "core/threads.h"

namespace steepest {

// Elements side by side, or every `step`-th one: a column of a table.
template <typename T>
struct Dense {
  const T* first;
  T operator[](int64_t k) const { return first[k]; }
};
template <typename T>
struct Spaced {
  const T* first;
  int64_t step;
  T operator[](int64_t k) const { return first[k * step]; }
};

// Eight elements at most, from one on: bit k for the k-th of them.
template <typename Elements>
inline unsigned mark_eight(const Elements& elements, int64_t from, int64_t n) {
  auto any = elements[from];
  for (int64_t k = 1; k < n; ++k) any |= elements[from + k];
  if (any == 0) return 0;  // most of a table that is worth a mask
  unsigned bits = 0;
  for (int64_t k = 0; k < n; ++k) bits |= (elements[from + k] != 0 ? 1u : 0u) << k;
  return bits;
}

inline int64_t count_bits(const uint8_t* mask, int64_t first, int64_t last) {
  static constexpr uint8_t kOfFour[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
  int64_t n = 0;
  for (int64_t byte = first; byte < last; ++byte) n += kOfFour[mask[byte] & 15] + kOfFour[mask[byte] >> 4];
  return n;
}

inline int64_t mask_size(int64_t n) { return (n + 7) / 8; }

// Threads share out the bytes of a mask: where each starts, and how many bits are set before it.
class MaskParts {
 public:
  MaskParts(const uint8_t* mask, int64_t n_bytes, int64_t n_threads)
      : n_bytes_(n_bytes), n_(parts_for(n_bytes, n_threads, kLeastBytes)), before_(n_ + 1) {
    parallel_for(n_, n_,
                 [&](int64_t part) { before_[part + 1] = count_bits(mask, start(part), start(part + 1)); });
    for (int64_t part = 0; part < n_; ++part) before_[part + 1] += before_[part];
  }
  int64_t size() const { return n_; }
  int64_t start(int64_t part) const { return n_bytes_ * part / n_; }
  int64_t before(int64_t part) const { return before_[part]; }
  int64_t total() const { return before_[n_]; }

 private:
  static constexpr int64_t kLeastBytes = 1 << 14;  // worth the start of a thread
  int64_t n_bytes_, n_;
  std::vector<int64_t> before_;
};

template <typename Elements>
void mark_nonzeros(const Elements& elements, int64_t n, uint8_t* mask, int64_t n_threads) {
  const int64_t n_bytes = mask_size(n), n_parts = parts_for(n, n_threads, 1 << 17);
  parallel_for(n_parts, n_parts, [&](int64_t part) {
    for (int64_t byte = n_bytes * part / n_parts; byte < n_bytes * (part + 1) / n_parts; ++byte) {
      const int64_t from = 8 * byte;
      mask[byte] = static_cast<uint8_t>(n - from >= 8 ? mark_eight(elements, from, 8)
                                                      : mark_eight(elements, from, n % 8));
    }
  });
}

// The elements whose bit is set, as many as the parts say.
template <typename Elements, typename T>
void pick_nonzeros(const Elements& elements, const uint8_t* mask, const MaskParts& parts, T* values) {
  parallel_for(parts.size(), parts.size(), [&](int64_t part) {
    T *to = values + parts.before(part), *const end = values + parts.before(part + 1);
    for (int64_t byte = parts.start(part); byte < parts.start(part + 1); ++byte) {
      if (!mask[byte]) continue;
      if (end - to >= 8) {  // room to write what is not needed, and to write over it: no branch to foresee
        for (int k = 0; k < 8; ++k) {
          *to = elements[8 * byte + k];
          to += mask[byte] >> k & 1;
        }
      } else {
        for (int k = 0; k < 8; ++k)
          if (mask[byte] >> k & 1) *to++ = elements[8 * byte + k];
      }
    }
  });
}

// The places of the bits that are set.
template <typename Place>
void list_places(const uint8_t* mask, const MaskParts& parts, Place* places) {
  parallel_for(parts.size(), parts.size(), [&](int64_t part) {
    Place* to = places + parts.before(part);
    for (int64_t byte = parts.start(part); byte < parts.start(part + 1); ++byte)
      for (int k = 0; mask[byte] >> k; ++k)
        if (mask[byte] >> k & 1) *to++ = static_cast<Place>(8 * byte + k);
  });
}

// The reverse: every element is written, a zero where no bit is set.
template <typename T>
void spread_nonzeros(const T* values, const uint8_t* mask, const MaskParts& parts, T* elements, int64_t n) {
  parallel_for(parts.size(), parts.size(), [&](int64_t part) {
    const T *from = values + parts.before(part), *const end = values + parts.before(part + 1);
    for (int64_t byte = parts.start(part); byte < parts.start(part + 1); ++byte) {
      T* const eight = elements + 8 * byte;
      if (end - from >= 8 && n - 8 * byte >= 8) {
        for (int k = 0; k < 8; ++k) {
          const unsigned bit = mask[byte] >> k & 1;
          eight[k] = bit ? *from : T{0};
          from += bit;
        }
      } else {
        for (int64_t k = 0; k < 8 && 8 * byte + k < n; ++k) eight[k] = mask[byte] >> k & 1 ? *from++ : T{0};
      }
    }
  });
}

}  // namespace steepest
