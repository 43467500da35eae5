// Hazard pointers (Michael 2004): how a reader keeps a node that it has found from being freed.
//
// A reader stores the node's address in a slot of its thread, then looks whether the node is still
// in the table. A writer that has taken a node out frees it once no slot holds its address. So a
// reader that is stopped in the middle keeps the few nodes in its own slots, and nothing else waits
// for it. The store and the look must not swap. The reader pays a compiler barrier for that and the
// writer a membarrier, once for many nodes; where the kernel has none each pays a fence.
//
// Threads: any. Memory: 128 bytes a thread that reads, used again by later threads; never more than
// there were threads at once. Errors: std::bad_alloc when a thread reads for the first time.
#pragma once

#include <lumen/memory/asymmetric_fence.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <new>

namespace lumen::cache {

// How deep reads may be nested: a visit() whose function reads on.
inline constexpr size_t kHazardsAThread = 8;

struct alignas(128) HazardRecord {
  std::array<std::atomic<const void*>, kHazardsAThread> slots{};
  size_t depth = 0;  // its thread's own
  std::atomic<bool> taken{true};
  HazardRecord* next = nullptr;
};

class HazardRecords {
 public:
  [[nodiscard]] static HazardRecords& all() noexcept {
    static HazardRecords records;
    return records;
  }
  // The calling thread's, until it ends.
  [[nodiscard]] static HazardRecord& mine() {
    thread_local Owner owner;
    return *owner.record;
  }
  [[nodiscard]] size_t count() const noexcept {
    return count_.load(std::memory_order_relaxed);  // relaxed: a bound for lists, an old one does
  }
  [[nodiscard]] bool by_membarrier() const noexcept { return by_membarrier_; }

  // After the nodes were taken out of their table, before look_at_all().
  void order_before_look() const noexcept {
    if (by_membarrier_) {
      heavy_fence();
    } else {
      // fence: sync[cache.hazard] seq_cst, with the readers'; no store of ours could stand for it
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
  template <typename F>
  void look_at_all(F&& f) const {
    // sync[cache.hazard_record]: acquire, pairs with the exchange in add().
    for (const HazardRecord* record = first_.load(std::memory_order_acquire); record != nullptr;
         record = record->next) {
      for (const std::atomic<const void*>& slot : record->slots) {
        // sync[cache.hazard]: acquire, pairs with the release that clears a slot or puts another
        // node there: the reader is done.
        const void* node = slot.load(std::memory_order_acquire);
        if (node != nullptr) f(node);
      }
    }
  }

 private:
  struct Owner {
    Owner() : record(&all().take()) {}
    // sync[cache.hazard_record]: release, pairs with the exchange in take().
    ~Owner() { record->taken.store(false, std::memory_order_release); }
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
    HazardRecord* record;
  };

  HazardRecords() noexcept : by_membarrier_(asymmetric_fence_available()) {}
  [[nodiscard]] HazardRecord& take() {
    // sync[cache.hazard_record]: acquire, pairs with the exchange in add().
    for (HazardRecord* record = first_.load(std::memory_order_acquire); record != nullptr;
         record = record->next) {
      // sync[cache.hazard_record]: acquire, pairs with the release of the thread that had it.
      if (!record->taken.exchange(true, std::memory_order_acquire)) return *record;
    }
    return add();
  }
  [[nodiscard]] HazardRecord& add() {
    auto* record = new HazardRecord();
    count_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a number
    // relaxed: the exchange checks it.
    record->next = first_.load(std::memory_order_relaxed);
    // sync[cache.hazard_record]: release, so that a thread that finds the record sees its slots.
    while (!first_.compare_exchange_weak(record->next, record, std::memory_order_release,
                                         std::memory_order_relaxed)) {
    }
    return *record;
  }

  std::atomic<HazardRecord*> first_{nullptr};
  std::atomic<size_t> count_{0};
  const bool by_membarrier_;
};

// One slot for the length of a read.
class Hazard {
 public:
  Hazard() : record_(HazardRecords::mine()), depth_(record_.depth) {
    if (depth_ == kHazardsAThread) throw std::bad_alloc();
    ++record_.depth;
  }
  ~Hazard() {
    clear();
    --record_.depth;
  }
  Hazard(const Hazard&) = delete;
  Hazard& operator=(const Hazard&) = delete;

  // From here on the node is not freed, if a look at the table that follows still finds it there.
  void protect(const void* node) noexcept {
    // sync[cache.hazard]: release, since it replaces an address, too: a search that goes on from
    // node to node has read the node before. The fence orders it before the look, and the writer's
    // makes it seen.
    record_.slots[depth_].store(node, std::memory_order_release);
    if (HazardRecords::all().by_membarrier()) {
      light_fence();
    } else {
      // fence: sync[cache.hazard] seq_cst, with the writer's. A seq_cst store would not do: the
      // look that follows is an acquire, which may come before it (as AArch64's ldapr before an
      // stlr).
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
  void clear() noexcept {
    // sync[cache.hazard]: release, so that the reader's reads come before the node is freed.
    record_.slots[depth_].store(nullptr, std::memory_order_release);
  }

 private:
  HazardRecord& record_;
  const size_t depth_;
};

}  // namespace lumen::cache
