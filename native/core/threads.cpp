// SPDX-License-Identifier: Apache-2.0
// A caller takes idle workers, posts its job to each, works itself, and takes back what a worker that sleeps
// has not begun, so that a thread that the system lets wait delays nobody. A fork leaves its child without
// threads; the child makes its own.
#include "core/threads.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace steepest {
namespace {

constexpr int kSpins = 4000;         // before a worker goes to sleep
constexpr int kBarrierSpins = 2000;  // before a thread yields
constexpr int64_t kMostWorkers = 256;

struct Job {
  const std::function<void(int64_t part, int64_t thread)>& work;
  const int64_t n_parts;
  const bool together;  // every thread has the part of its own number
  std::atomic<int64_t> next{0};
  std::mutex lock{};
  std::exception_ptr failure{};
  int64_t failed_part = 0;

  void run(int64_t thread) {
    if (together) return work(thread, thread);
    for (int64_t part = next.fetch_add(1); part < n_parts; part = next.fetch_add(1)) {
      try {
        work(part, thread);
      } catch (...) {
        const std::lock_guard<std::mutex> guard(lock);
        if (!failure || part < failed_part) {
          failure = std::current_exception();
          failed_part = part;
        }
      }
    }
  }
};

class Worker {
 public:
  Worker() { std::thread(&Worker::serve, this).detach(); }

  void post(Job* job, int64_t thread) {
    job_ = job;
    thread_ = thread;
    {
      const std::lock_guard<std::mutex> guard(lock_);
      state_.store(kPosted, std::memory_order_release);
    }
    if (sleeps_.load()) wake_.notify_one();
  }

  // Returns when the worker has nothing to do with the job any more. `needed`: it must have run.
  void finish(bool needed) {
    int posted = kPosted;
    if (!needed && state_.compare_exchange_strong(posted, kIdle)) return;
    for (int spins = 0; state_.load(std::memory_order_acquire) != kIdle; ++spins) {
      if (spins < kSpins) {
        PAUSE();
      } else {
        std::this_thread::yield();
      }
    }
  }

  bool taken = false;  // by a caller; guarded by the pool

 private:
  enum State { kIdle, kPosted, kWorking };

  [[noreturn]] void serve() {
    for (;;) {
      await();
      int posted = kPosted;
      if (!state_.compare_exchange_strong(posted, kWorking)) continue;  // it was taken back
      job_->run(thread_);
      state_.store(kIdle, std::memory_order_release);
    }
  }

  void await() {
    const auto is_posted = [this] { return state_.load(std::memory_order_acquire) == kPosted; };
    for (int spins = 0; spins < kSpins; ++spins) {
      if (is_posted()) return;
      PAUSE();
    }
    std::unique_lock<std::mutex> guard(lock_);
    sleeps_ = true;
    wake_.wait(guard, is_posted);
    sleeps_ = false;
  }

  std::atomic<int> state_{kIdle};
  std::atomic<bool> sleeps_{false};
  Job* job_ = nullptr;
  int64_t thread_ = 0;
  std::mutex lock_;
  std::condition_variable wake_;
};

class Pool {
 public:
  // Up to n workers that nobody else uses, the first ones first.
  std::vector<Worker*> take(int64_t n) {
    std::vector<Worker*> found;
    const std::lock_guard<std::mutex> guard(lock_);
    for (size_t k = 0; static_cast<int64_t>(found.size()) < n; ++k) {
      if (k == workers_.size() && !add_worker()) break;
      if (workers_[k]->taken) continue;
      workers_[k]->taken = true;
      found.push_back(workers_[k]);
    }
    return found;
  }

  void give_back(const std::vector<Worker*>& workers) {
    const std::lock_guard<std::mutex> guard(lock_);
    for (Worker* worker : workers) worker->taken = false;
  }

 private:
  bool add_worker() {
    if (static_cast<int64_t>(workers_.size()) >= kMostWorkers) return false;
    try {
      workers_.push_back(new Worker);     // never destroyed: its thread may outlive everything else
    } catch (const std::system_error&) {  // the system has no more threads
      return false;
    }
    return true;
  }

  std::mutex lock_;
  std::vector<Worker*> workers_;
};

Pool* the_pool = nullptr;
std::once_flag prepared;

Pool& pool() {
  std::call_once(prepared, [] {
    the_pool = new Pool;
#if !defined(_WIN32)
    pthread_atfork(nullptr, nullptr, [] { the_pool = new Pool; });
#endif
  });
  return *the_pool;
}

// Runs a job on this thread and on those workers.
void run(Job& job, const std::vector<Worker*>& workers) {
  for (size_t k = 0; k < workers.size(); ++k) workers[k]->post(&job, static_cast<int64_t>(k) + 1);
  job.run(0);
  for (Worker* worker : workers) worker->finish(job.together);
  pool().give_back(workers);
  if (job.failure) std::rethrow_exception(job.failure);
}

}  // namespace

void parallel_for(int64_t n_parts, int64_t n_threads,
                  const std::function<void(int64_t part, int64_t thread)>& work) {
  const int64_t n = std::min(n_parts, n_threads);
  Job job = {work, n_parts, false};
  run(job, n > 1 ? pool().take(n - 1) : std::vector<Worker*>{});
}

void parallel_for(int64_t n_parts, int64_t n_threads, const std::function<void(int64_t part)>& work) {
  parallel_for(n_parts, n_threads, [&](int64_t part, int64_t) { work(part); });
}

void Barrier::wait() {
  const int64_t round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins)
    if (spins > kBarrierSpins) std::this_thread::yield();
}

void run_together(int64_t n_threads, const std::function<void(int64_t thread, Barrier& barrier)>& work) {
  const std::vector<Worker*> workers = pool().take(n_threads - 1);
  Barrier barrier(static_cast<int64_t>(workers.size()) + 1);
  const std::function<void(int64_t, int64_t)> call = [&](int64_t, int64_t thread) { work(thread, barrier); };
  Job job = {call, barrier.size(), true};
  run(job, workers);
}

}  // namespace steepest
