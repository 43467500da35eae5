// JobStack: jobs that I/O threads leave for a thread of the control plane, without a lock. `Job`
// has a pointer `next`.
// Threads: push() from any; take_all() from the one thread that answers them; stop() from its
// owner. Memory: none, the jobs are linked. Errors: none.
#pragma once

#include <lumen/base/doorbell.h>

#include <atomic>
#include <utility>

namespace lumen {

template <typename Job>
class JobStack {
 public:
  void push(Job& job) noexcept {
    job.next = newest_.load(std::memory_order_relaxed);  // relaxed: the exchange looks again
    // sync[job_stack.jobs]: seq_cst, the job, against the sleeper's announcement of itself
    while (!newest_.compare_exchange_weak(job.next, &job, std::memory_order_seq_cst,
                                          std::memory_order_relaxed)) {
    }
    bell_.wake_published();
  }

  // Sleeps until there are jobs; the oldest first, linked by `next`. nullptr: stopped, and none is
  // left.
  [[nodiscard]] Job* take_all() noexcept {
    for (;;) {
      const Doorbell::Ticket ticket = bell_.prepare();
      // sync[job_stack.jobs]: seq_cst, the look between announcing oneself and sleeping
      Job* const newest = newest_.exchange(nullptr, std::memory_order_seq_cst);
      // sync[job_stack.stop]: seq_cst, as above
      if (newest == nullptr && !stop_.load(std::memory_order_seq_cst)) {
        (void)bell_.wait(ticket);
        continue;
      }
      bell_.cancel();
      return oldest_first(newest);
    }
  }

  void stop() noexcept {
    // sync[job_stack.stop]: seq_cst, against the sleeper's announcement of itself
    stop_.store(true, std::memory_order_seq_cst);
    bell_.wake_published();
  }

 private:
  static Job* oldest_first(Job* job) noexcept {
    Job* oldest = nullptr;
    while (job != nullptr) {
      Job* const next = std::exchange(job->next, oldest);
      oldest = std::exchange(job, next);
    }
    return oldest;
  }

  std::atomic<Job*> newest_{nullptr};
  std::atomic<bool> stop_{false};
  Doorbell bell_;  // woken when one of these has changed
};

}  // namespace lumen
