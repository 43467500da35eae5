// SharedRuns: the runs of one model that others may wait for, by key. The first call of a key leads
// its run; those that come while it runs wait on a list that only grows, until the leader's end
// takes all of it.
//
//   bucket: door │ 8 runs: key, head of the list ─► waiter ─► waiter ...
//
// A waiter is a node of its own and not the call, since a call that is late or cancelled leaves at
// once: it takes itself out of its node, and the node stays on the list until the leader's end. The
// door of a bucket is held for the look through its runs; a call that does not get in after a
// few looks, or finds a bucket full or no node left, runs for itself: no thread waits for another.
//
// Threads: any. Memory: all of it when it is made. Errors: none.
#pragma once

#include "answers/fingerprint.h"

#include <lumen/base/cache_line.h>
#include <lumen/queue/mpmc_queue.h>
#include <lumen/service/call.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lumen::answers {

class SharedRuns {
 public:
  struct Waiter {
    std::atomic<service::Call*> call{nullptr};  // nullptr: it has left
    uint32_t next = 0;
  };
  struct Run {
    std::atomic<uint32_t> head;  // the newest waiter; kOpen: none; kClosed: the run is over
    HashPair key;
    // The least age that one of them wants; by the leader, or through the list.
    std::atomic<uint64_t> ttl_ns;
  };

  // For so many calls at once, at least.
  explicit SharedRuns(size_t calls);

  enum class Role : uint8_t { kLeads, kWaits, kAlone };
  struct Joined {
    Role role;
    Run* run;       // that it leads
    uint32_t node;  // by which it waits
  };
  // kWaits: from now on the call may be taken at any moment.
  [[nodiscard]] Joined join(const HashPair& key, uint64_t ttl_ns, service::Call& call) noexcept;
  // The call that waits by this node is taken off; false: it has been taken by the run's end.
  [[nodiscard]] bool leave(uint32_t node, service::Call& call) noexcept;

  [[nodiscard]] static uint64_t least_ttl_ns(const Run& run) noexcept {
    // relaxed: a call that comes just now may have its wish met by the store's age alone
    return run.ttl_ns.load(std::memory_order_relaxed);
  }
  // By the leader, at its end. All waiting calls, the first first, each by `served(call)`; the
  // run is over.
  template <typename Served>
  void end_run(Run& run, Served&& served) noexcept;
  // A call that still waits leads from now on, an early one first; nullptr: none, and the run is
  // over.
  [[nodiscard]] service::Call* hand_over(Run& run) noexcept;

  // Nobody waits and nothing runs; for tests, while no other thread is here.
  [[nodiscard]] bool is_empty() const noexcept;

 private:
  static constexpr uint32_t kOpen = UINT32_MAX;
  static constexpr uint32_t kClosed = UINT32_MAX - 1;
  static constexpr size_t kWays = 8;
  struct alignas(kCacheLine) Bucket {
    std::atomic<bool> is_inside{false};
    std::array<Run, kWays> runs;
    Bucket() noexcept;
  };

  [[nodiscard]] static bool try_enter(Bucket& bucket) noexcept;
  [[nodiscard]] Joined join_inside(Bucket& bucket, const HashPair& key, uint64_t ttl_ns,
                                   service::Call& call) noexcept;
  [[nodiscard]] bool push(Run& run, uint32_t first, uint32_t last) noexcept;
  // The list of waiters, the oldest first.
  [[nodiscard]] uint32_t turned(uint32_t newest) noexcept;
  void put_back(Run& run, uint32_t oldest) noexcept;
  void free(uint32_t node) noexcept;

  std::vector<Bucket> buckets_;
  std::vector<Waiter> waiters_;
  MpmcQueue<uint32_t> free_;
};

template <typename Served>
void SharedRuns::end_run(Run& run, Served&& served) noexcept {
  // sync[shared_run.head]: acquire and release; the waiters and their nodes; the run's key is not
  // read any more
  uint32_t node = turned(run.head.exchange(kClosed, std::memory_order_acq_rel));
  while (node != kOpen) {
    const uint32_t next = waiters_[node].next;
    // sync[shared_run.waiter]: acquire; the call as it was when it came
    service::Call* const call = waiters_[node].call.exchange(nullptr, std::memory_order_acq_rel);
    free(node);
    if (call != nullptr) served(*call);
    node = next;
  }
}

}  // namespace lumen::answers
