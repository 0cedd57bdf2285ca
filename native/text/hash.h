// SPDX-License-Identifier: Apache-2.0
// The token hash, frozen under the name "steepest-1": saved models depend on every bit of it, and a change
// needs a new id.
//
//   fold(a, b)      high ^ low half of the 128-bit product a b
//   scramble(p, q)  fold(low ^ p, high ^ q) of a product high:low
//   hash(s, key)    (A ^ K0) (B ^ K1 ^ key), scrambled by K2 ^ size and K3
//   mix(a, b)       (a ^ K1) (b ^ K2), scrambled by K0 and K3; for n-grams, left to right, and crosses
//   bucket, sign    bits 32.. and bit 63 of a hash
//
// A and B are the first 16 bytes of s as two little-endian words, zero where s ends. Of a longer s they are
// the last 16, and before that key <- key ^ fold(A ^ K2, B ^ K0 ^ key) for each 16 bytes from the front.
// Two rounds of multiply and fold are the least that passes the avalanche test; one does not.
#pragma once
#include <stdint.h>
#include <string.h>

#include <string>
#include <vector>

#if defined(_MSC_VER)
#include <intrin.h>
#include <stdlib.h>
#endif

namespace steepest {

constexpr char kHashId[] = "steepest-1";

// Digits of pi after the point, in order, and of the golden ratio: nothing hides in them.
constexpr uint64_t kHash0 = 0x243F6A8885A308D3, kHash1 = 0x13198A2E03707345, kHash2 = 0xA4093822299F31D1;
constexpr uint64_t kHash3 = 0x9E3779B97F4A7C15;

struct Product {
  uint64_t low, high;
};

inline Product multiply(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
  __extension__ typedef unsigned __int128 Wide;
  const Wide product = static_cast<Wide>(a) * b;
  return {static_cast<uint64_t>(product), static_cast<uint64_t>(product >> 64)};
#elif defined(_MSC_VER) && defined(_M_X64)
  Product product;
  product.low = _umul128(a, b, &product.high);
  return product;
#else
  const uint64_t a0 = a & 0xFFFFFFFF, a1 = a >> 32, b0 = b & 0xFFFFFFFF, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  const uint64_t other = a0 * b1 + (middle & 0xFFFFFFFF);
  return {a * b, a1 * b1 + (middle >> 32) + (other >> 32)};
#endif
}

inline uint64_t fold(uint64_t a, uint64_t b) {
  const Product product = multiply(a, b);
  return product.high ^ product.low;
}

inline uint64_t load_word(const uint8_t* bytes) {
  uint64_t word;
  memcpy(&word, bytes, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  word = __builtin_bswap64(word);
#endif
  return word;
}

// What remains of a word of which only the first 0..8 bytes count.
constexpr uint64_t kFirstBytes[9] = {0,
                                     0xFF,
                                     0xFFFF,
                                     0xFFFFFF,
                                     0xFFFFFFFF,
                                     0xFFFFFFFFFF,
                                     0xFFFFFFFFFFFF,
                                     0xFFFFFFFFFFFFFF,
                                     0xFFFFFFFFFFFFFFFF};

// At least 16 bytes must be readable from `bytes`, whatever the size.
inline uint64_t hash_bytes(const uint8_t* bytes, uint64_t size, uint64_t key) {
  uint64_t a, b;
  if (size <= 16) {
    a = load_word(bytes) & kFirstBytes[size < 8 ? size : 8];
    b = load_word(bytes + 8) & kFirstBytes[size < 8 ? 0 : size - 8];
  } else {
    const uint8_t* last = bytes + size - 16;
    // The key is kept beside the fold, so that no 16 bytes can wipe out what came before them.
    for (; bytes < last; bytes += 16)
      key ^= fold(load_word(bytes) ^ kHash2, load_word(bytes + 8) ^ kHash0 ^ key);
    a = load_word(last);
    b = load_word(last + 8);
  }
  const Product product = multiply(a ^ kHash0, b ^ kHash1 ^ key);
  return fold(product.low ^ kHash2 ^ size, product.high ^ kHash3);
}

// The same where nothing may be read behind the bytes: `scratch` takes a copy.
inline uint64_t hash_copied(const void* bytes, size_t size, uint64_t key, std::vector<uint8_t>& scratch) {
  if (scratch.size() < size + 16) scratch.resize(size + 16);
  memcpy(scratch.data(), bytes, size);
  return hash_bytes(scratch.data(), size, key);
}

inline uint64_t hash_string(const std::string& text, uint64_t key) {
  std::vector<uint8_t> padded(text.begin(), text.end());
  padded.resize(text.size() + 16);
  return hash_bytes(padded.data(), text.size(), key);
}

inline uint64_t mix(uint64_t a, uint64_t b) {
  const Product product = multiply(a ^ kHash1, b ^ kHash2);
  return fold(product.low ^ kHash0, product.high ^ kHash3);
}

inline uint64_t key_of_seed(uint64_t seed) { return fold(seed ^ kHash3, kHash1); }

// The key of a text column's words; the key of the seed alone is that of the empty name.
inline uint64_t field_key(const std::string& name, uint64_t seed) {
  const uint64_t key = key_of_seed(seed);
  return name.empty() ? key : hash_string(name, key);
}

// The feature x#c, the copy with number c; number 0 is the feature itself.
inline uint64_t copy_hash(uint64_t hash, uint64_t copy) { return copy ? mix(hash, copy * kHash3) : hash; }

inline uint32_t bucket_of(uint64_t hash, int n_bits) {
  return static_cast<uint32_t>(hash >> 32) & ((1u << n_bits) - 1);
}

}  // namespace steepest
