// SPDX-License-Identifier: Apache-2.0
// Rows with each word, counted in fixed memory, and which words to leave out.
//
// The first `most_words` different words have a counter each, which is exact. Words that come later share a
// count-min sketch of kDepth rows: a word's cells are the top bits of hash * kOdd[r], the least of them is
// its count, and only cells at the least are raised (conservative update). A count is never too low, and too
// high by more than e N / width for fewer than e^-kDepth of the words, N = what the sketch was given (Cormode
// and Muthukrishnan, 2005; Estan and Varghese, 2002).
#pragma once
#include <stdint.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace steepest {

// Open addressing: where a hash is in a table with free slots, or the free slot (0) where it belongs.
inline size_t slot_of(const std::vector<uint64_t>& table, uint64_t hash) {
  const size_t last = table.size() - 1;
  size_t slot = hash & last;
  while (table[slot] && table[slot] != hash) slot = (slot + 1) & last;
  return slot;
}

// A set of hashes, at most half full. Zero marks a free slot, so it has a flag of its own.
class HashSet {
 public:
  HashSet() = default;
  explicit HashSet(const std::vector<uint64_t>& hashes) : n_(hashes.size()) {
    if (hashes.empty()) return;
    size_t size = 64;
    while (size < 2 * hashes.size()) size *= 2;
    slots_.resize(size);
    for (uint64_t hash : hashes) {
      has_zero_ |= hash == 0;
      slots_[slot_of(slots_, hash)] = hash;
    }
  }
  bool empty() const { return n_ == 0; }
  bool contains(uint64_t hash) const {
    if (hash == 0) return has_zero_;
    return n_ && slots_[slot_of(slots_, hash)] == hash;
  }

 private:
  size_t n_ = 0;
  bool has_zero_ = false;
  std::vector<uint64_t> slots_;
};

struct Sketch {
  static constexpr int kDepth = 4;
  static constexpr uint64_t kOdd[kDepth] = {0x243F6A8885A308D3, 0x13198A2E03707345, 0xA4093822299F31D1,
                                            0x9E3779B97F4A7C15};
  // The cell of a word in row r, of kDepth << bits cells in all.
  static size_t cell(uint64_t hash, int r, int bits) {
    return (static_cast<size_t>(r) << bits) + static_cast<size_t>(hash * kOdd[r] >> (64 - bits));
  }
};

class WordCounts {
 public:
  WordCounts(int64_t most_words, int sketch_bits)
      : most_words_(static_cast<size_t>(most_words)),
        sketch_bits_(sketch_bits),
        hashes_(1024),
        counts_(1024) {}

  // One more row with this word.
  void add(uint64_t hash) {
    hash += hash == 0;  // zero marks a free slot
    const size_t slot = slot_of(hashes_, hash);
    if (hashes_[slot]) {
      counts_[slot] += counts_[slot] < UINT32_MAX;
    } else if (n_words_ < most_words_) {
      hashes_[slot] = hash;
      counts_[slot] = 1;
      if (4 * ++n_words_ > 3 * hashes_.size()) grow();
    } else {
      add_to_sketch(hash);
    }
  }

  // What is known of the words counted exactly: no order.
  void listed(std::vector<uint64_t>& hashes, std::vector<uint32_t>& counts) const {
    for (size_t slot = 0; slot < hashes_.size(); ++slot)
      if (hashes_[slot]) {
        hashes.push_back(hashes_[slot]);
        counts.push_back(counts_[slot]);
      }
  }
  const std::vector<uint32_t>& cells() const { return cells_; }  // none: all words were counted exactly
  int64_t n_sketched() const { return n_sketched_; }             // rows with words, given to the sketch
  int64_t n_rows = 0;

 private:
  void grow() {
    std::vector<uint64_t> hashes(2 * hashes_.size());
    std::vector<uint32_t> counts(2 * hashes_.size());
    hashes.swap(hashes_);
    counts.swap(counts_);
    for (size_t k = 0; k < hashes.size(); ++k)
      if (hashes[k]) {
        const size_t slot = slot_of(hashes_, hashes[k]);
        hashes_[slot] = hashes[k];
        counts_[slot] = counts[k];
      }
  }

  void add_to_sketch(uint64_t hash) {
    if (cells_.empty()) cells_.resize(static_cast<size_t>(Sketch::kDepth) << sketch_bits_);
    uint32_t least = UINT32_MAX;
    for (int r = 0; r < Sketch::kDepth; ++r)
      least = std::min(least, cells_[Sketch::cell(hash, r, sketch_bits_)]);
    ++n_sketched_;
    if (least == UINT32_MAX) return;
    for (int r = 0; r < Sketch::kDepth; ++r) {
      uint32_t& cell = cells_[Sketch::cell(hash, r, sketch_bits_)];
      cell = std::max(cell, least + 1);
    }
  }

  const size_t most_words_;
  const int sketch_bits_;
  size_t n_words_ = 0;
  int64_t n_sketched_ = 0;
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> counts_, cells_;
};

// What was decided from counts. A word is kept if it is listed (or, if the list is of words to leave out, if
// it is not), or if the sketch says that it came often enough; and unless the sketch says too often.
class WordFilter {
 public:
  WordFilter(const std::vector<uint64_t>& listed, bool keeps_listed, std::vector<uint8_t> enough,
             std::vector<uint8_t> too_many, int sketch_bits)
      : listed_(listed),
        keeps_listed_(keeps_listed),
        enough_(std::move(enough)),
        too_many_(std::move(too_many)),
        sketch_bits_(sketch_bits) {}

  bool keeps(uint64_t hash) const {
    hash += hash == 0;
    if (listed_.contains(hash)) return keeps_listed_;
    if (keeps_listed_ && !all(enough_, hash)) return false;
    return !all(too_many_, hash);
  }

 private:
  // Whether the bits of a word are all set; never in a sketch that is not there.
  bool all(const std::vector<uint8_t>& bits, uint64_t hash) const {
    if (bits.empty()) return false;
    for (int r = 0; r < Sketch::kDepth; ++r) {
      const size_t cell = Sketch::cell(hash, r, sketch_bits_);
      if (!(bits[cell / 8] >> cell % 8 & 1)) return false;
    }
    return true;
  }

  const HashSet listed_;
  const bool keeps_listed_;
  const std::vector<uint8_t> enough_, too_many_;
  const int sketch_bits_;
};

}  // namespace steepest
