// EventDoorbell: a doorbell that an event loop can wait on beside its sockets, by an eventfd.
// Threads: any number of ringers; one waiter, the thread that owns the loop.
// Memory: one file descriptor. Errors: open() gives the errno; ring() never fails and never
// blocks.
//
// Use: register fd() for reading, level-triggered. Each turn: prepare(), look for work once more;
// if there is none, epoll_wait() and then drain(), which also takes the announcement back;
// if there is some, cancel(). No system call on either side while the loop is busy.
//
// One word, 1 while the loop sleeps or is about to. The ringer that takes the 1 away does the
// write (6.7 µs when it wakes a sleeper), all others go on: one write a sleep, not one a ring.
// A ringer that dies between taking the 1 away and the write loses that wake-up.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <atomic>
#include <cstdint>

namespace lumen {

class alignas(kCacheLine) EventDoorbell {
 public:
  // Call once, before all else.
  [[nodiscard]] Status open() noexcept;
  [[nodiscard]] int fd() const noexcept { return event_.get(); }

  void prepare() noexcept {
    // sync[event_doorbell.sleeping]: store-load order against ring(), both sides are seq_cst
    sleeping_.store(1, std::memory_order_seq_cst);
  }
  void cancel() noexcept {
    sleeping_.store(0, std::memory_order_relaxed);  // relaxed: at worst one wake-up too many
  }
  // After the sleep. True: it was rung.
  bool drain() noexcept;

  // Call after publishing work.
  void ring() noexcept {
    // sync[event_doorbell.sleeping]: pairs with prepare(); a read-modify-write in place of a fence
    if (sleeping_.fetch_add(0, std::memory_order_seq_cst) != 0) ring_slow();
  }
  // The same where the publishing operation was itself seq_cst: a plain load on x86.
  void ring_published() noexcept {
    // sync[event_doorbell.sleeping]: pairs with prepare(), by the total order of seq_cst
    if (sleeping_.load(std::memory_order_seq_cst) != 0) ring_slow();
  }

 private:
  void ring_slow() noexcept;

  std::atomic<uint32_t> sleeping_{0};
  UniqueFd event_;
};

}  // namespace lumen
