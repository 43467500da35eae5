// Flights: the runs of one model that others may wait for, by key. The first call of a key leads its flight; those
// that come while it runs wait on a list that only grows, until the leader's end takes all of it.
//
//   bucket: door │ 8 flights: key, head of the list ─► waiter ─► waiter ...
//
// A waiter is a node of its own and not the call, since a call that is late or cancelled leaves at
// once: it takes itself out of its node, and the node stays on the list until the leader's end. The
// door of a bucket is held for the look through its flights; a call that does not get in after a
// few looks, or finds a bucket full or no node left, runs for itself: no thread waits for another.
//
// Threads: any. Memory: all of it when it is made. Errors: none.
#pragma once

#include "service/fingerprint.h"

#include <lumen/base/cache_line.h>
#include <lumen/queue/mpmc_queue.h>
#include <lumen/service/call.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lumen::service {

class Flights {
 public:
  struct Waiter {
    std::atomic<Call*> call{nullptr};  // nullptr: it has left
    uint32_t next = 0;
  };
  struct Flight {
    std::atomic<uint32_t> head;  // the newest waiter; kOpen: none; kClosed: the flight is over
    HashPair key;
    // The least age that one of them wants; by the leader, or through the list.
    std::atomic<uint64_t> ttl_ns;
  };

  // For so many calls at once, at least.
  explicit Flights(size_t calls);

  enum class Role : uint8_t { kLeads, kWaits, kAlone };
  struct Joined {
    Role role;
    Flight* flight;  // that it leads
    uint32_t node;   // by which it waits
  };
  // kWaits: from now on the call may be taken at any moment.
  [[nodiscard]] Joined join(const HashPair& key, uint64_t ttl_ns, Call& call) noexcept;
  // The call that waits by this node is taken off; false: it has been taken by the flight's end.
  [[nodiscard]] bool leave(uint32_t node, Call& call) noexcept;

  [[nodiscard]] static uint64_t least_ttl_ns(const Flight& flight) noexcept {
    // relaxed: a call that comes just now may have its wish met by the store's age alone
    return flight.ttl_ns.load(std::memory_order_relaxed);
  }
  // By the leader, at its end. All waiting calls, the first first, each by `served(call)`; the
  // flight is over.
  template <typename Served>
  void land(Flight& flight, Served&& served) noexcept;
  // A call that still waits leads from now on, an early one first; nullptr: none, and the flight is
  // over.
  [[nodiscard]] Call* hand_over(Flight& flight) noexcept;

  // Nobody waits and nothing runs; for tests, while no other thread is here.
  [[nodiscard]] bool is_empty() const noexcept;

 private:
  static constexpr uint32_t kOpen = UINT32_MAX;
  static constexpr uint32_t kClosed = UINT32_MAX - 1;
  static constexpr size_t kWays = 8;
  struct alignas(kCacheLine) Bucket {
    std::atomic<bool> is_inside{false};
    std::array<Flight, kWays> flights;
    Bucket() noexcept;
  };

  [[nodiscard]] static bool try_enter(Bucket& bucket) noexcept;
  [[nodiscard]] Joined join_inside(Bucket& bucket, const HashPair& key, uint64_t ttl_ns,
                                   Call& call) noexcept;
  [[nodiscard]] bool push(Flight& flight, uint32_t first, uint32_t last) noexcept;
  // The list of waiters, the oldest first.
  [[nodiscard]] uint32_t turned(uint32_t newest) noexcept;
  void put_back(Flight& flight, uint32_t oldest) noexcept;
  void free(uint32_t node) noexcept;

  std::vector<Bucket> buckets_;
  std::vector<Waiter> waiters_;
  MpmcQueue<uint32_t> free_;
};

template <typename Served>
void Flights::land(Flight& flight, Served&& served) noexcept {
  // sync[flight.head]: acquire and release; the waiters and their nodes; the flight's key is not read any more
  uint32_t node = turned(flight.head.exchange(kClosed, std::memory_order_acq_rel));
  while (node != kOpen) {
    const uint32_t next = waiters_[node].next;
    // sync[flight.waiter]: acquire; the call as it was when it came
    Call* const call = waiters_[node].call.exchange(nullptr, std::memory_order_acq_rel);
    free(node);
    if (call != nullptr) served(*call);
    node = next;
  }
}

}  // namespace lumen::service
