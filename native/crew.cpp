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

// Parts are taken by whoever is free, so a thread that the system lets wait delays nobody: the others do its
// parts. `call_` holds the round, how many parts it has and the next one to take.
constexpr uint64_t kMostParts = 1 << 16;

uint64_t parts_in(uint64_t call) { return call >> 16 & (kMostParts - 1); }
uint64_t next_in(uint64_t call) { return call & (kMostParts - 1); }

class Crew {
 public:
  void run(int64_t n_parts, CrewWork work, void* context) {
    const std::unique_lock<std::mutex> mine(in_use_, std::try_to_lock);
    if (!mine.owns_lock() || n_parts >= static_cast<int64_t>(kMostParts) || !hire(n_parts - 1)) {
      for (int64_t part = 0; part < n_parts; ++part) work(context, part);
      return;
    }
    work_ = work;
    context_ = context;
    waited_for_.store(n_parts - 1, std::memory_order_relaxed);
    {
      const std::lock_guard<std::mutex> lock(sleep_);
      call_.store(++round_ << 32 | static_cast<uint64_t>(n_parts) << 16 | 1, std::memory_order_release);
    }
    if (sleepers_.load() > 0) wake_.notify_all();
    work(context, 0);
    take_parts();
    for (int looks = 0; waited_for_.load(std::memory_order_acquire) > 0; ++looks) {
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
        std::thread(&Crew::serve, this).detach();
      } catch (const std::system_error&) {
        break;
      }
      ++n_hands_;
    }
    return n_hands_ > 0;
  }

  // Whoever has taken a part may look at the work: the round does not end before the part is done.
  void take_parts() {
    uint64_t call = call_.load(std::memory_order_acquire);
    while (next_in(call) < parts_in(call)) {
      if (!call_.compare_exchange_weak(call, call + 1, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      work_(context_, static_cast<int64_t>(next_in(call)));
      waited_for_.fetch_sub(1, std::memory_order_release);
      call = call_.load(std::memory_order_acquire);
    }
  }

  [[noreturn]] void serve() {
    for (;;) {
      await_parts();
      take_parts();
    }
  }

  bool has_parts() const {
    const uint64_t call = call_.load(std::memory_order_acquire);
    return next_in(call) < parts_in(call);
  }

  void await_parts() {
    for (int looks = 0; looks < kLooks; ++looks) {
      if (has_parts()) return;
      PAUSE();
    }
    std::unique_lock<std::mutex> lock(sleep_);
    ++sleepers_;
    wake_.wait(lock, [&] { return has_parts(); });
    --sleepers_;
  }

  std::mutex in_use_, sleep_;
  std::condition_variable wake_;
  std::atomic<uint64_t> call_{0};
  std::atomic<int64_t> waited_for_{0};
  std::atomic<int> sleepers_{0};
  uint64_t round_ = 0;
  int64_t n_hands_ = 0;
  CrewWork work_ = nullptr;
  void* context_ = nullptr;
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
