// MemoryBudget: how much memory the requests of one I/O thread may take together. Code that gives
// out memory takes its bytes from here first, so that the sum stays below the bound for any
// requests.
// Threads: any; one that takes and one that gives back need not know of each other.
// Memory: two words. Errors: try_take() returns false when the rest is smaller than the wanted
// bytes.
#pragma once

#include <lumen/base/check.h>

#include <atomic>
#include <cstddef>

namespace lumen {

class MemoryBudget {
 public:
  explicit MemoryBudget(size_t bytes) noexcept : total_(bytes), free_(bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  [[nodiscard]] bool try_take(size_t bytes) noexcept {
    // relaxed, all of them: a number that orders nothing; the memory itself is its owner's
    size_t free = free_.load(std::memory_order_relaxed);
    do {
      if (free < bytes) return false;
    } while (!free_.compare_exchange_weak(free, free - bytes, std::memory_order_relaxed,
                                          std::memory_order_relaxed));
    return true;
  }
  void give_back(size_t bytes) noexcept {
    const size_t before = free_.fetch_add(bytes, std::memory_order_relaxed);  // relaxed: as above
    LUMEN_DCHECK(before + bytes <= total_);
    (void)before;
  }

  [[nodiscard]] size_t total_bytes() const noexcept { return total_; }
  // Racy: the free bytes of a moment ago.
  [[nodiscard]] size_t free_was() const noexcept {
    return free_.load(std::memory_order_relaxed);  // relaxed: a statistic
  }

 private:
  const size_t total_;
  std::atomic<size_t> free_;
};

}  // namespace lumen
