// SPDX-License-Identifier: Apache-2.0
// Texts to numbers, in the order in which they first come.
#pragma once
#include <string.h>

#include <vector>

#include "text/hash.h"
#include "text/text.h"

namespace steepest {

// The number of each text, -1 for a missing one, and the rows in which texts first come.
class TextNumbers {
 public:
  explicit TextNumbers(const Texts& texts) : texts_(texts), table_(64, -1) {}

  int32_t number(int64_t row) {
    const Span text = texts_.at(row);
    if (!text.data) return -1;
    if (2 * firsts_.size() >= table_.size()) grow();
    const size_t slot = slot_of(text);
    if (table_[slot] < 0) {
      table_[slot] = static_cast<int32_t>(firsts_.size());
      firsts_.push_back(row);
    }
    return table_[slot];
  }
  const std::vector<int64_t>& firsts() const { return firsts_; }

 private:
  // Where the text is, or the free slot where it belongs.
  size_t slot_of(Span text) {
    const size_t size = static_cast<size_t>(text.size), last = table_.size() - 1;
    size_t slot = static_cast<size_t>(hash_copied(text.data, size, 0, scratch_)) & last;
    for (; table_[slot] >= 0; slot = (slot + 1) & last) {
      const Span other = texts_.at(firsts_[static_cast<size_t>(table_[slot])]);
      if (other.size == text.size && memcmp(other.data, text.data, size) == 0) break;
    }
    return slot;
  }
  void grow() {
    table_.assign(2 * table_.size(), -1);
    for (size_t k = 0; k < firsts_.size(); ++k)
      table_[slot_of(texts_.at(firsts_[k]))] = static_cast<int32_t>(k);
  }

  const Texts& texts_;
  std::vector<int32_t> table_;  // numbers, -1: free
  std::vector<int64_t> firsts_;
  std::vector<uint8_t> scratch_;
};

}  // namespace steepest
