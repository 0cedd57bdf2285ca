// SPDX-License-Identifier: Apache-2.0
// What the parsers of line formats share: texts that come in, memory that goes out, and lines that are bad.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

namespace steepest {

// Memory that parsed chunks have given back is used again: new pages from the system took a quarter of the
// time of parsing. A block knows its size, which stands in front of it.
class Shelf {
 public:
  static Shelf& common() {
    static Shelf* const shelf = new Shelf;  // never destroyed: arrays may outlive whatever ends at exit
    return *shelf;
  }

  void* take(size_t size) {
    size = (size + kHead + kGrain - 1) / kGrain * kGrain;
    char* block = size < kLeast ? nullptr : find(size);
    if (!block) {
      block = static_cast<char*>(std::malloc(size));
      if (!block) throw std::bad_alloc();
      std::memcpy(block, &size, sizeof size);
    }
    return block + kHead;
  }

  void give(void* memory) noexcept {
    if (!memory) return;
    char* const block = static_cast<char*>(memory) - kHead;
    const size_t size = size_of(block);
    if (size >= kLeast) {
      const std::lock_guard<std::mutex> guard(lock_);
      if (n_ < kMostBlocks && kept_ + size <= kMostBytes) {
        blocks_[n_++] = block;
        kept_ += size;
        return;
      }
    }
    std::free(block);
  }

 private:
  static constexpr size_t kHead = 64, kGrain = 256, kLeast = 1 << 17, kMostBytes = 32 << 20;
  static constexpr int kMostBlocks = 32;

  static size_t size_of(const char* block) {
    size_t size;
    std::memcpy(&size, block, sizeof size);
    return size;
  }

  // A block that is large enough, and no more than twice as large.
  char* find(size_t size) {
    const std::lock_guard<std::mutex> guard(lock_);
    for (int k = n_ - 1; k >= 0; --k) {
      const size_t found = size_of(blocks_[k]);
      if (found < size || found > 2 * size) continue;
      char* const block = blocks_[k];
      blocks_[k] = blocks_[--n_];
      kept_ -= found;
      return block;
    }
    return nullptr;
  }

  std::mutex lock_;
  char* blocks_[kMostBlocks];
  int n_ = 0;
  size_t kept_ = 0;
};

// Memory for plain numbers that can be given away.
template <typename T>
class Room {
 public:
  Room() = default;
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() { Shelf::common().give(data_); }

  void make(int64_t n) {
    Shelf::common().give(std::exchange(data_, nullptr));
    data_ = static_cast<T*>(Shelf::common().take(static_cast<size_t>(n > 0 ? n : 1) * sizeof(T)));
  }
  T* data() const { return data_; }
  T* release() { return std::exchange(data_, nullptr); }  // the caller gives it back to the shelf

 private:
  T* data_ = nullptr;
};

struct Text {
  const char* data;
  int64_t size;
};

// Offsets count from the start of the text; the token is the piece that is wrong.
struct BadLine {
  int64_t text = 0;
  int64_t line = 0;
  int64_t token = 0;
  int64_t token_length = 0;
  const char* fault = "";
};

constexpr int64_t kBadLinesKept = 3;  // of each text

// How many bytes pass a test, counted in 32 lanes of bytes, which a compiler turns into vector code.
template <typename Test>
int64_t count_bytes(const Text& text, Test test) {
  constexpr int kLanes = 32, kFull = 255;
  const char* data = text.data;
  int64_t total = 0, i = 0;
  while (text.size - i >= kLanes) {
    uint8_t lanes[kLanes] = {};
    for (int step = 0; step < kFull && text.size - i >= kLanes; ++step, i += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += test(data[i + lane]);
    for (int lane = 0; lane < kLanes; ++lane) total += lanes[lane];
  }
  for (; i < text.size; ++i) total += test(data[i]);
  return total;
}

}  // namespace steepest
