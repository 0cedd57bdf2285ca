// SPDX-License-Identifier: Apache-2.0
// What the parsers of line formats share: texts that come in, memory that goes out, and lines that are bad.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace steepest {

// Memory for plain numbers that can be given away.
template <typename T>
class Room {
 public:
  Room() = default;
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() { std::free(data_); }

  void make(int64_t n) {
    std::free(
        std::exchange(data_, static_cast<T*>(std::malloc(static_cast<size_t>(n > 0 ? n : 1) * sizeof(T)))));
    if (!data_) throw std::bad_alloc();
  }
  T* data() const { return data_; }
  T* release() { return std::exchange(data_, nullptr); }  // the caller frees it

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
