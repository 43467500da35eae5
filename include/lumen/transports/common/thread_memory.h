// ThreadMemory: the memory of all requests of one I/O thread, those of all its transports: one
// bound for them together. A request that has ended keeps some pages for the next one; where
// memory is short, the idle ones of all transports give theirs back.
// Threads: its I/O thread; the budget's users any. Memory: a few words, all at start.
// Errors: none.
#pragma once

#include <lumen/memory/memory_budget.h>

#include <cstddef>
#include <vector>

namespace lumen::transports {

// A transport that has memory of the budget.
class MemoryHolder {
 public:
  // Its idle requests give back the pages that they kept. Returns how many bytes.
  virtual size_t drop_kept_pages() noexcept = 0;
  // A request of it waits for memory; one that refuses such requests need not say it.
  [[nodiscard]] virtual bool awaits_memory() const noexcept { return false; }
  // Memory has come free. It looks after its requests that wait in its next turn.
  virtual void on_memory_freed() noexcept {}
  // Of its requests, taken from the budget.
  [[nodiscard]] virtual size_t charged_bytes() const noexcept = 0;

 protected:
  MemoryHolder() = default;
  ~MemoryHolder() = default;
  MemoryHolder(const MemoryHolder&) = default;
  MemoryHolder& operator=(const MemoryHolder&) = default;
};

class ThreadMemory {
 public:
  explicit ThreadMemory(size_t bytes) noexcept : budget_(bytes) {}

  [[nodiscard]] MemoryBudget& budget() noexcept { return budget_; }
  [[nodiscard]] const MemoryBudget& budget() const noexcept { return budget_; }
  // Before serving; it lives as long.
  void add(MemoryHolder& holder) { holders_.push_back(&holder); }

  // `take` tries to take memory, and says whether it could. Where it can't, idle requests give back
  // their pages, and it tries once more.
  template <typename Take>
  [[nodiscard]] bool take(Take&& take) noexcept {
    return take() || (drop_kept_pages() > 0 && take());
  }
  size_t drop_kept_pages() noexcept {
    size_t bytes = 0;
    for (MemoryHolder* const holder : holders_) bytes += holder->drop_kept_pages();
    return bytes;
  }
  // Then a request that ends keeps nothing.
  [[nodiscard]] bool is_awaited() const noexcept {
    for (const MemoryHolder* const holder : holders_) {
      if (holder->awaits_memory()) return true;
    }
    return false;
  }
  // By the thread whose request has given memory back.
  void on_freed() noexcept {
    for (MemoryHolder* const holder : holders_) holder->on_memory_freed();
  }
  // While no request is there, each byte that is taken is that of a holder.
  [[nodiscard]] bool is_accounted_for() const noexcept {
    size_t charged = 0;
    for (const MemoryHolder* const holder : holders_) charged += holder->charged_bytes();
    return charged == budget_.total_bytes() - budget_.free_was();
  }

 private:
  MemoryBudget budget_;
  std::vector<MemoryHolder*> holders_;
};

}  // namespace lumen::transports
