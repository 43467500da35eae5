// Sleepers: a word of bits that says which workers sleep, and a doorbell for each. A doorbell
// shared by all would let one worker take the wake-up that was meant for another, which is no
// matter for a request (either may run it) but is for a worker's own news (room in its instance).
//
//   park                                        wake(), or a worker that has taken a request
//     prepare the doorbell                        (the request is published)
//     set the bit                                 any bit?
//     look once more                              more requests than workers on the way?
//     sleep                                       clear a bit: a worker is on the way, wake it
//     clear the bit; was it cleared already:
//       no longer on the way, look once more
//
// Invariant: a request that can be taken never lies beside a sleeping worker that may take it while
// no thread is on the way to it: a worker that polls or was woken, or a submitter before its
// wake().
//   The doorbell before the bit: a thread that finds a bit finds a doorbell that works. The other
//   way round a worker once slept for ever, its bit cleared by a wake that came between the two.
//   A worker that takes a request and sees another wakes one more sleeper: the wake for that other
//   may have been spent on a worker that had found a request by itself, or that could take none
//   yet because the one before it was claimed and not published.
// tests/spin/sleepers.pml proves it, statement by statement.
//
// `Queue` has try_pop() of a worker (nullptr: nothing there) and size_was() of requests that any
// worker may take. Requests that only some may take are none of this: each of these workers is told
// with wake_one(). Threads: park() and the searches by the worker with that number, the others any.
// Memory: at construction. Errors: none.
#pragma once

#include "engine/work_source.h"

#include <lumen/base/cache_line.h>
#include <lumen/base/doorbell.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <vector>

namespace lumen::engine {

// Where a test holds a thread; nothing in the product.
enum class ParkSpot : uint8_t { kPrepared, kAnnounced, kLooked };
struct NoHooks {
  static void at(ParkSpot, uint32_t) noexcept {}
};

template <typename Queue, typename Hooks = NoHooks>
class Sleepers {
 public:
  Sleepers(Queue& queue, uint32_t workers)
      : queue_(queue),
        groups_((workers + 63) / 64),
        places_(workers),
        most_searchers_(std::max(1u, workers / 2)) {}

  // Of the sleepers that may take a request, at most so many, and none where others are on the way
  // already.
  void wake(uint32_t most) noexcept {
    for (size_t i = 0; i < groups_.size(); ++i) {
      std::atomic<uint64_t>& word = groups_[i].bits;
      // sync[work_source.sleepers]: a read-modify-write, as in park(): one of the two comes first,
      // so either the bit is seen here or the push is seen there
      uint64_t bits = word.fetch_or(0, std::memory_order_acq_rel);
      while (bits != 0) {
        if (most == 0 || !is_short_of_workers()) return;
        const auto bit = static_cast<uint32_t>(std::countr_zero(bits));
        const uint64_t mask = uint64_t{1} << bit;
        bits &= ~mask;
        // sync[work_source.sleepers]: as above; the thread that clears the bit wakes
        if ((word.fetch_and(~mask, std::memory_order_acq_rel) & mask) == 0) continue;
        // The worker may have taken one off before this adds it: then the count is too low for a
        // moment and a sleeper too many is woken; too high it never is.
        // sync[work_source.searching]: as in end_search()
        searching_.fetch_add(1, std::memory_order_acq_rel);
        places_[i * 64 + bit].doorbell.wake();
        --most;
      }
    }
  }
  // After a request was taken. Nobody asleep, as under load: a load of a line that nobody writes.
  void pass_on() noexcept {
    for (const Group& group : groups_) {
      // relaxed: a thread that must see a bit was itself woken after it was set; for others it is a
      // hint
      if (group.bits.load(std::memory_order_relaxed) != 0) return wake(1);
    }
  }

  [[nodiscard]] models::InferRequest* try_take(uint32_t worker) noexcept {
    models::InferRequest* const request = queue_.try_pop(worker);
    if (request != nullptr) pass_on();
    return request;
  }

  // As in WorkSource.
  [[nodiscard]] bool begin_search() noexcept {
    if (places_.size() == 1) return true;  // nobody else could sleep meanwhile
    // sync[work_source.searching]: see end_search()
    if (searching_.fetch_add(1, std::memory_order_acq_rel) < most_searchers_) return true;
    // A wake() that counted on this worker is seen by the look of park(), which follows.
    // sync[work_source.searching]: as above
    searching_.fetch_sub(1, std::memory_order_acq_rel);
    return false;
  }
  [[nodiscard]] models::InferRequest* end_search(uint32_t worker) noexcept {
    // sync[work_source.searching]: a read-modify-write, as in is_short_of_workers(): one of the two
    // comes first, so either the waker does not count on this worker or its push is seen below
    if (places_.size() > 1) searching_.fetch_sub(1, std::memory_order_acq_rel);
    return try_take(worker);
  }

  [[nodiscard]] models::InferRequest* park(uint32_t worker, bool may_take, uint64_t deadline_ns,
                                           WakeReason& reason) noexcept {
    Doorbell& doorbell = places_[worker].doorbell;
    std::atomic<uint64_t>& word = groups_[worker / 64].bits;
    const uint64_t mask = uint64_t{1} << (worker % 64);
    const Doorbell::Ticket ticket = doorbell.prepare();
    Hooks::at(ParkSpot::kPrepared, worker);
    // sync[work_source.sleepers]: pairs with wake(). Only a worker that can take a request is woken
    // for one.
    if (may_take) word.fetch_or(mask, std::memory_order_acq_rel);
    Hooks::at(ParkSpot::kAnnounced, worker);
    models::InferRequest* const request = may_take ? queue_.try_pop(worker) : nullptr;
    Hooks::at(ParkSpot::kLooked, worker);
    if (request != nullptr || reason.has_reason()) {
      doorbell.cancel();
    } else {
      (void)doorbell.wait(ticket, deadline_ns);
    }
    if (!may_take) return nullptr;
    // sync[work_source.sleepers]: awake; the thread that cleared the bit counts on this worker
    const bool woken = (word.fetch_and(~mask, std::memory_order_acq_rel) & mask) == 0;
    // sync[work_source.searching]: as in end_search()
    if (woken) searching_.fetch_sub(1, std::memory_order_acq_rel);
    if (woken && request == nullptr) return try_take(worker);
    // Not pass_on(), whose look at the bits is relaxed: this worker may have hidden a queue for a
    // moment from a thread that counted the requests to wake others for them (ModelQueues::tidy()),
    // and was itself not woken.
    if (request != nullptr) wake(1);
    return request;
  }
  // That worker has a reason to look.
  void wake_one(uint32_t worker) noexcept { places_[worker].doorbell.wake(); }
  // Racy: it was asleep, might take a request, and was not woken for one.
  [[nodiscard]] bool slept(uint32_t worker) const noexcept {
    // relaxed: a statistic
    return (groups_[worker / 64].bits.load(std::memory_order_relaxed) >> (worker % 64) & 1) != 0;
  }

 private:
  struct alignas(kFalseSharingRange) Group {
    std::atomic<uint64_t> bits{0};
  };
  struct alignas(kFalseSharingRange) Place {
    Doorbell doorbell;
  };

  // More requests in the queue than workers on the way to it. The requests are counted first: one
  // that is taken in between only wakes a sleeper too many.
  [[nodiscard]] bool is_short_of_workers() noexcept {
    const auto requests = static_cast<int64_t>(queue_.size_was());
    // sync[work_source.searching]: see end_search()
    return requests > searching_.fetch_add(0, std::memory_order_acq_rel);
  }

  Queue& queue_;
  std::vector<Group> groups_;
  std::vector<Place> places_;
  // Each poller takes a CPU, and a second one only helps against a burst.
  const int64_t most_searchers_;
  // Workers on the way to the queue, which will look before they sleep: that poll it or were woken.
  alignas(kFalseSharingRange) std::atomic<int64_t> searching_{0};
};

}  // namespace lumen::engine
