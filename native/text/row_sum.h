// SPDX-License-Identifier: Apache-2.0
// The features of one row, added up by bucket: a hash table that is emptied by walking its used slots, so
// that a short row after a long one costs no more. An entry is (bucket + 1) << 32 | the bits of a float; 0 is
// free and reads as 0.0.
#pragma once
#include <stdint.h>

#include <stdexcept>
#include <vector>

#include "core/bits.h"

namespace steepest {

class RowSum {
 public:
  RowSum(int n_bits, bool is_signed) : mask_((1u << n_bits) - 1), sign_(is_signed ? 0x80000000u : 0) {}

  // Rows of `likely` features follow: the table begins with room for them and grows where a row has more.
  void expect(size_t likely) {
    clear();
    least_bits_ = kLeastBits;
    while (least_bits_ < kMostLeastBits && size_t{1} << least_bits_ < 4 * likely) ++least_bits_;
    table_bits_ = least_bits_;
    if (table_.size() >> least_bits_ == 0) table_.resize(size_t{1} << least_bits_);
  }
  size_t n_bytes() const { return table_.capacity() * sizeof(uint64_t); }

  // From now on hashes go to buckets from here on, which must be a multiple of 2^n_bits.
  void set_first_bucket(uint32_t bucket) { first_ = bucket; }

  size_t size() const { return n_; }
  uint32_t bucket(size_t k) const { return static_cast<uint32_t>(table_[slots_[k]] >> 32) - 1; }
  float value(size_t k) const { return float_of(static_cast<uint32_t>(table_[slots_[k]])); }

  // Adds value, or -value by the sign bit, for each of n hashes; there must be room. On request shows
  // for each whether its bucket is new in the row.
  template <bool kShowNew>
  void add(const uint64_t* hashes, size_t n, float value, uint8_t* is_new) {
    uint64_t* const table = table_.data();
    uint32_t* const slots = slots_.data();
    const uint32_t bucket_mask = mask_, first = first_, sign = sign_, value_bits = bits_of(value);
    size_t size = n_;
    for (size_t i = 0; i < n; ++i) {
      const uint32_t top = static_cast<uint32_t>(hashes[i] >> 32), bucket = (top & bucket_mask) | first;
      const size_t slot = slot_of(bucket);
      // Whether the bucket is new, and the sign, cannot be foretold: no branch hangs on them.
      const uint64_t entry = table[slot];
      const float sum = float_of(static_cast<uint32_t>(entry)) + float_of(value_bits ^ (top & sign));
      table[slot] = (uint64_t{bucket} + 1) << 32 | bits_of(sum);
      slots[size] = static_cast<uint32_t>(slot);
      size += entry == 0;
      if (kShowNew) is_new[i] = entry == 0;
    }
    n_ = size;
  }

  // Adds a value to a bucket; there must be room.
  void add_value(uint32_t bucket, float value) {
    const size_t slot = slot_of(bucket);
    const uint64_t entry = table_[slot];
    const float sum = float_of(static_cast<uint32_t>(entry)) + value;
    table_[slot] = (uint64_t{bucket} + 1) << 32 | bits_of(sum);
    slots_[n_] = static_cast<uint32_t>(slot);
    n_ += entry == 0;
  }

  // The same for a hash, with its sign.
  void add_hash(uint64_t hash, float value) {
    const uint32_t top = static_cast<uint32_t>(hash >> 32);
    add_value((top & mask_) | first_, float_of(bits_of(value) ^ (top & sign_)));
  }

  // For n more. The table stays at most a quarter full, since a second probe costs a branch that is missed.
  void make_room(size_t n) {
    const size_t most = n_ + n;
    if (most >= size_t{1} << 29)
      throw std::length_error("a row has more than 500 million features; split it");
    if (slots_.size() < most + 1) slots_.resize(most + most / 2 + 64);
    if (n_ == 0) table_bits_ = least_bits_;
    if (4 * most <= size_t{1} << table_bits_) return;
    std::vector<uint64_t> entries;
    for (size_t k = 0; k < n_; ++k) entries.push_back(table_[slots_[k]]);
    clear();
    while (size_t{1} << table_bits_ < 4 * most) ++table_bits_;
    if (table_.size() >> table_bits_ == 0) table_.resize(size_t{1} << table_bits_);
    for (uint64_t entry : entries) {
      const size_t slot = slot_of(static_cast<uint32_t>(entry >> 32) - 1);
      table_[slot] = entry;
      slots_[n_++] = static_cast<uint32_t>(slot);
    }
  }

  void clear() {
    for (size_t k = 0; k < n_; ++k) table_[slots_[k]] = 0;
    n_ = 0;
  }

 private:
  // Where the bucket is, or the free slot where it belongs.
  size_t slot_of(uint32_t bucket) const {
    const size_t last = (size_t{1} << table_bits_) - 1;
    // Golden ratio: neighbouring buckets to distant slots.
    size_t slot = bucket * 0x9E3779B1u >> (32 - table_bits_);
    // Zero if the slot is free or the bucket's own; a product, since two tests would be two branches.
    auto other = [&](uint64_t tag) { return tag * (tag ^ (uint64_t{bucket} + 1)); };
    while (other(table_[slot] >> 32)) slot = (slot + 1) & last;
    return slot;
  }

  const uint32_t mask_, sign_;
  uint32_t first_ = 0;
  static constexpr int kLeastBits = 8, kMostLeastBits = 13;  // 64 KiB, well inside the second cache

  int least_bits_ = kLeastBits, table_bits_ = kLeastBits;
  size_t n_ = 0;
  std::vector<uint64_t> table_;
  std::vector<uint32_t> slots_;  // used ones, in the order of first use
};

}  // namespace steepest
