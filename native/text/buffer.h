// SPDX-License-Identifier: Apache-2.0
// An array that grows without touching what it has not used, and is handed to Python without a copy.
#pragma once
#include <stdint.h>
#include <stdlib.h>

#include <algorithm>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace steepest {

// Asks the system to back a large array with large pages: the first touch of fresh memory costs a fault per
// page. The request may fail.
inline void use_large_pages(void* data, size_t size) {
#if defined(__linux__)
  constexpr uintptr_t kPage = 1 << 21;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + kPage - 1) & ~(kPage - 1);
  const uintptr_t last = (reinterpret_cast<uintptr_t>(data) + size) & ~(kPage - 1);
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  (void)data, (void)size;
#endif
}

template <typename T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(room_, other.room_);
    return *this;
  }
  ~Buffer() { free(data_); }

  // Room for n in all.
  T* reserve(size_t n) {
    if (n > room_ || !data_) {
      const size_t room = data_ ? n + n / 2 : std::max<size_t>(n, 64);
      void* const data = realloc(data_, room * sizeof(T));
      if (!data) throw std::bad_alloc();
      if (!data_) use_large_pages(data, room * sizeof(T));
      data_ = static_cast<T*>(data);
      room_ = room;
    }
    return data_;
  }

  // The first n, to be freed by the caller.
  T* release(size_t n) {
    reserve(n);
    // Giving back the unused end can only fail by leaving everything as it is.
    void* const data = realloc(data_, std::max<size_t>(n, 1) * sizeof(T));
    room_ = 0;
    T* const all = std::exchange(data_, nullptr);
    return data ? static_cast<T*>(data) : all;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  size_t room_ = 0;
};

}  // namespace steepest
