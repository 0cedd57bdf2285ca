// SPDX-License-Identifier: Apache-2.0
// A thread that waits looks for work for some ten microseconds before it sleeps, since the next piece of a
// mini-batch usually comes within them. A fork leaves its child without threads; it makes its own.
#include "crew.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#if !defined(_WIN32)
#include <pthread.h>
#endif
#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#define PAUSE() _mm_pause()
#else
#define PAUSE() ((void)0)
#endif

namespace steepest {
namespace {

constexpr int kLooks = 4000;  // before a thread goes to sleep
constexpr int64_t kMostThreads = 64;

class Crew {
 public:
  void run(int64_t n_parts, CrewWork work, void* context) {
    const std::unique_lock<std::mutex> mine(in_use_, std::try_to_lock);
    if (!mine.owns_lock() || !hire(n_parts - 1)) {
      for (int64_t part = 0; part < n_parts; ++part) work(context, part);
      return;
    }
    work_ = work;
    context_ = context;
    n_parts_ = n_parts;
    busy_.store(n_hands_, std::memory_order_relaxed);
    {
      const std::lock_guard<std::mutex> lock(sleep_);
      round_.fetch_add(1, std::memory_order_release);
    }
    if (sleepers_.load() > 0) wake_.notify_all();
    for (int64_t part = 0; part < n_parts; part += n_hands_ + 1) work(context, part);
    for (int looks = 0; busy_.load(std::memory_order_acquire) > 0; ++looks) {
      if (looks < kLooks) {
        PAUSE();
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  bool hire(int64_t wanted) {
    while (n_hands_ < wanted && n_hands_ < kMostThreads) {
      try {
        std::thread(&Crew::serve, this, n_hands_ + 1, round_.load()).detach();
      } catch (const std::system_error&) {
        break;
      }
      ++n_hands_;
    }
    return n_hands_ > 0;
  }

  void serve(int64_t place, uint64_t seen) {
    for (;;) {
      await(seen);
      seen = round_.load(std::memory_order_acquire);
      for (int64_t part = place; part < n_parts_; part += n_hands_ + 1) work_(context_, part);
      busy_.fetch_sub(1, std::memory_order_release);
    }
  }

  void await(uint64_t seen) {
    for (int looks = 0; looks < kLooks; ++looks) {
      if (round_.load(std::memory_order_acquire) != seen) return;
      PAUSE();
    }
    std::unique_lock<std::mutex> lock(sleep_);
    ++sleepers_;
    wake_.wait(lock, [&] { return round_.load(std::memory_order_acquire) != seen; });
    --sleepers_;
  }

  std::mutex in_use_, sleep_;
  std::condition_variable wake_;
  std::atomic<uint64_t> round_{0};
  std::atomic<int64_t> busy_{0};
  std::atomic<int> sleepers_{0};
  int64_t n_hands_ = 0;  // changes between rounds only
  CrewWork work_ = nullptr;
  void* context_ = nullptr;
  int64_t n_parts_ = 0;
};

// Never destroyed: its threads may outlive everything else.
Crew* the_crew = nullptr;
std::once_flag prepared;

void after_fork() { the_crew = new Crew; }

Crew& crew() {
  std::call_once(prepared, [] {
    the_crew = new Crew;
#if !defined(_WIN32)
    pthread_atfork(nullptr, nullptr, after_fork);
#endif
  });
  return *the_crew;
}

}  // namespace

void run_crew(int64_t n_parts, CrewWork work, void* context) { crew().run(n_parts, work, context); }

}  // namespace steepest
