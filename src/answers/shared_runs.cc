// See the header for threads, memory and errors.
#include "answers/shared_runs.h"

#include <lumen/base/check.h>
#include <lumen/base/idle_strategy.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace lumen::answers {
namespace {

// Looks at a door, some 10 ns each; the thread inside needs as much, unless it has lost its CPU.
constexpr int kLooks = 64;

}  // namespace

SharedRuns::Bucket::Bucket() noexcept {
  for (Run& run : runs) {
    run.head.store(kClosed, std::memory_order_relaxed);  // relaxed: nobody else knows it yet
  }
}

// Twice as many runs as there are calls, so that a bucket of eight is hardly ever full; and twice
// as many nodes, since that of a call which has left stays until the run's end.
SharedRuns::SharedRuns(size_t calls)
    : buckets_(std::bit_ceil(std::max<size_t>(2 * calls / kWays, 1))),
      waiters_(2 * std::bit_ceil(std::max<size_t>(calls, 1))),
      free_(std::bit_ceil(waiters_.size())) {
  for (uint32_t i = 0; i < waiters_.size(); ++i) free(i);
}

void SharedRuns::free(uint32_t node) noexcept {
  uint32_t number = node;
  LUMEN_CHECK(free_.try_push(std::move(number)));  // it has a place for each
}

bool SharedRuns::try_enter(Bucket& bucket) noexcept {
  for (int look = 0; look < kLooks; ++look) {
    // relaxed: a look; the exchange orders
    if (!bucket.is_inside.load(std::memory_order_relaxed) &&
        // sync[shared_run.door]: acquire; the keys of the bucket's runs
        !bucket.is_inside.exchange(true, std::memory_order_acquire)) {
      return true;
    }
    cpu_pause();
  }
  return false;
}

SharedRuns::Joined SharedRuns::join(const HashPair& key, uint64_t ttl_ns,
                                    service::Call& call) noexcept {
  Bucket& bucket = buckets_[key.key.high & (buckets_.size() - 1)];
  if (!try_enter(bucket)) return {Role::kAlone, nullptr, 0};
  const Joined joined = join_inside(bucket, key, ttl_ns, call);
  // sync[shared_run.door]: release; the keys
  bucket.is_inside.store(false, std::memory_order_release);
  return joined;
}

// While the door is held no run of the bucket gets another key, even if one ends meanwhile.
SharedRuns::Joined SharedRuns::join_inside(Bucket& bucket, const HashPair& key, uint64_t ttl_ns,
                                           service::Call& call) noexcept {
  Run* free_run = nullptr;
  for (Run& run : bucket.runs) {
    // sync[shared_run.head]: acquire; its last leader is through with it
    if (run.head.load(std::memory_order_acquire) == kClosed) {
      free_run = &run;
      continue;
    }
    if (run.key != key) continue;
    uint32_t node = 0;
    if (!free_.try_pop(node)) return {Role::kAlone, nullptr, 0};
    // relaxed, all: push() publishes it with the waiter
    uint64_t least = run.ttl_ns.load(std::memory_order_relaxed);
    while (ttl_ns < least &&
           !run.ttl_ns.compare_exchange_weak(least, ttl_ns, std::memory_order_relaxed,
                                             std::memory_order_relaxed)) {
    }
    // sync[shared_run.waiter]: release; the call as it is
    waiters_[node].call.store(&call, std::memory_order_release);
    call.cache_node = node;
    if (push(run, node, node)) return {Role::kWaits, nullptr, node};
    free(node);  // it has just ended
    free_run = &run;
    break;
  }
  if (free_run == nullptr) return {Role::kAlone, nullptr, 0};
  free_run->key = key;
  free_run->ttl_ns.store(ttl_ns, std::memory_order_relaxed);  // relaxed: the door orders
  // sync[shared_run.head]: release; those that wait here push onto it
  free_run->head.store(kOpen, std::memory_order_release);
  return {Role::kLeads, free_run, 0};
}

// Nodes `first` to `last`, which are linked.
bool SharedRuns::push(Run& run, uint32_t first, uint32_t last) noexcept {
  uint32_t head = run.head.load(std::memory_order_relaxed);  // relaxed: the exchange orders
  do {
    if (head == kClosed) return false;
    waiters_[last].next = head;
    // sync[shared_run.head]: release; the nodes. relaxed: on failure only looked at once more
  } while (!run.head.compare_exchange_weak(head, first, std::memory_order_release,
                                           std::memory_order_relaxed));
  return true;
}

uint32_t SharedRuns::turned(uint32_t newest) noexcept {
  uint32_t oldest = kOpen;
  while (newest != kOpen) {
    const uint32_t next = waiters_[newest].next;
    waiters_[newest].next = oldest;
    oldest = newest;
    newest = next;
  }
  return oldest;
}

bool SharedRuns::leave(uint32_t node, service::Call& call) noexcept {
  service::Call* mine = &call;
  // sync[shared_run.waiter]: acquire and release; a thread that takes the node finds no call.
  // relaxed: it was taken
  return waiters_[node].call.compare_exchange_strong(mine, nullptr, std::memory_order_acq_rel,
                                                     std::memory_order_relaxed);
}

service::Call* SharedRuns::hand_over(Run& run) noexcept {
  for (;;) {
    uint32_t open = kOpen;
    // sync[shared_run.head]: acquire and release; the run is over. relaxed: somebody waits
    if (run.head.compare_exchange_strong(open, kClosed, std::memory_order_acq_rel,
                                         std::memory_order_relaxed)) {
      return nullptr;
    }
    // sync[shared_run.head]: acquire; the waiters and their nodes
    const uint32_t newest = run.head.exchange(kOpen, std::memory_order_acquire);
    uint32_t node = turned(newest);
    while (node != kOpen) {
      const uint32_t next = waiters_[node].next;
      // sync[shared_run.waiter]: acquire; the call as it was when it came
      service::Call* const heir = waiters_[node].call.exchange(nullptr, std::memory_order_acq_rel);
      free(node);
      if (heir != nullptr) {
        put_back(run, next);
        return heir;
      }
      node = next;
    }
  }
}

// The rest of a list that was taken, its oldest first; others may have come meanwhile.
void SharedRuns::put_back(Run& run, uint32_t oldest) noexcept {
  if (oldest == kOpen) return;
  LUMEN_CHECK(push(run, turned(oldest), oldest));  // only the leader closes it
}

bool SharedRuns::is_empty() const noexcept {
  return free_.size_was() == waiters_.size() &&
         std::ranges::all_of(buckets_, [](const Bucket& bucket) {
           return std::ranges::all_of(bucket.runs, [](const Run& run) {
             // relaxed: no other thread is here
             return run.head.load(std::memory_order_relaxed) == kClosed;
           });
         });
}

}  // namespace lumen::answers
