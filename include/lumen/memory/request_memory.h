// RequestMemory: where one request (or one worker's batch) has its bytes: a region, or the heap for
// comparison. Both behind the Allocator face, changed between two requests.
// Threads: one at a time. Memory: the region is mapped at create() and costs nothing until touched;
// on the heap each allocate() is a call of malloc, each reset() frees them one by one.
// With a MemoryBudget nothing is given out that was not taken from there before: ahead of time by
// reserve(), else with each allocation. Memory that reset() keeps stays taken.
// Errors: nullptr when `capacity_bytes` or the budget are used up, for both kinds.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>
#include <lumen/memory/arena.h>
#include <lumen/memory/memory_budget.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace lumen {

// How regions are mapped.
struct RegionOptions {
  bool huge_pages = false;    // ask for 2 MiB pages: fewer TLB misses, more memory a region
  size_t prefault_bytes = 0;  // touched at creation and kept, so that no request pays for them
  int numa_node = -1;         // -1: where they are first touched, that is by the I/O thread
};

class RequestMemory final : public Allocator {
 public:
  enum class Kind : uint8_t { kArena, kHeap };

  // The memory used between two resets.
  struct Usage {
    uint64_t heap_calls = 0;  // malloc and free
    uint64_t arena_bytes = 0;
  };

  [[nodiscard]] static Result<RequestMemory> create(size_t capacity_bytes,
                                                    const RegionOptions& options = {});
  RequestMemory() noexcept = default;
  RequestMemory(RequestMemory&& other) noexcept
      : arena_(std::move(other.arena_)),
        floor_(other.floor_),
        floor_bytes_(other.floor_bytes_),
        prefaulted_bytes_(other.prefaulted_bytes_),
        blocks_(std::exchange(other.blocks_, nullptr)),
        heap_bytes_(std::exchange(other.heap_bytes_, 0)),
        heap_calls_(std::exchange(other.heap_calls_, 0)),
        budget_(std::exchange(other.budget_, nullptr)),
        charged_bytes_(std::exchange(other.charged_bytes_, 0)),
        base_bytes_(other.base_bytes_),
        kept_bytes_(other.kept_bytes_),
        page_bytes_(other.page_bytes_),
        kind_(other.kind_) {}
  RequestMemory& operator=(RequestMemory&& other) noexcept;
  ~RequestMemory();

  // From the next allocate() on. Earlier allocations live until reset() all the same.
  void use(Kind kind) noexcept;
  [[nodiscard]] Kind kind() const noexcept { return kind_; }

  [[nodiscard]] void* allocate(size_t bytes, size_t alignment) noexcept override {
    if (kind_ == Kind::kHeap) return allocate_block(bytes, alignment);
    void* const memory = arena_.allocate(bytes, alignment);
    if (memory != nullptr || budget_ == nullptr) [[likely]]
      return memory;
    return take_more(bytes, alignment) ? arena_.allocate(bytes, alignment) : nullptr;
  }
  // Gives back the last allocation, but for its first `bytes`, which stay where they are. On the
  // heap nothing is given back before reset().
  void shrink_last(const void* memory, size_t bytes) noexcept;

  // --- with a budget ----------------------------------------------------------------------------
  // Once, before serving: from now on `budget` bounds it, and outlives it. The present bytes,
  // prefaulted ones and `base_bytes` more stay taken for good. False: the budget has not that much.
  [[nodiscard]] bool charge_to(MemoryBudget& budget, size_t base_bytes) noexcept;
  // `bytes` more than are in use can be allocated for certain. False: the budget has not that much
  // now; nothing has changed.
  [[nodiscard]] bool reserve(size_t bytes) noexcept;
  // Gives back the reservation, but for `bytes` more than are in use, and for pages that requests
  // before have left there.
  void settle(size_t bytes) noexcept;
  // Room for the longest possible data, of which only the bytes that grow_to() has granted may be
  // touched: for data that says its size only at its end. shrink_last() ends it. On the heap all of
  // it is taken at once.
  [[nodiscard]] void* begin_growing(size_t most_bytes, size_t alignment) noexcept;
  [[nodiscard]] bool grow_to(const void* end) noexcept;
  // Gives the pages back that reset() kept, but for the base; returns their bytes. Nothing may be
  // in use.
  size_t drop_kept_pages() noexcept;
  // How much `bytes` of a region take of the machine: whole pages.
  [[nodiscard]] static constexpr size_t in_pages(size_t bytes,
                                                 const RegionOptions& options) noexcept {
    const size_t page = options.huge_pages ? kHugePageBytes : kPageBytes;
    return (bytes + page - 1) / page * page;
  }
  // Since the last reset() something was refused because the budget was used up.
  [[nodiscard]] bool was_refused() const noexcept { return was_refused_; }
  [[nodiscard]] size_t charged_bytes() const noexcept { return charged_bytes_; }

  // The present content of the region stays over reset(): call once, before serving.
  void keep_what_is_there() noexcept;
  // Frees the rest; pages of the region above `keep_bytes` go back to the kernel.
  Usage reset(size_t keep_bytes) noexcept;

  [[nodiscard]] std::span<std::byte> region() const noexcept { return arena_.region(); }
  [[nodiscard]] size_t capacity_bytes() const noexcept { return arena_.capacity_bytes(); }
  [[nodiscard]] bool is_valid() const noexcept;

 private:
  struct Block;  // in front of malloc's memory

  void* allocate_block(size_t bytes, size_t alignment) noexcept;
  void free_blocks() noexcept;
  [[nodiscard]] size_t in_use_bytes() const noexcept { return arena_.used_bytes() + heap_bytes_; }
  [[nodiscard]] size_t whole_pages(size_t bytes) const noexcept;
  [[nodiscard]] bool take_more(size_t bytes, size_t alignment) noexcept;
  [[nodiscard]] bool charge(size_t bytes) noexcept;
  [[nodiscard]] bool charge_step(size_t bytes) noexcept;
  size_t uncharge_to(size_t bytes) noexcept;
  void limit_region() noexcept;

  Arena arena_;
  Arena::Mark floor_{};
  size_t floor_bytes_ = 0;
  size_t prefaulted_bytes_ = 0;
  Block* blocks_ = nullptr;
  size_t heap_bytes_ = 0;
  uint64_t heap_calls_ = 0;
  MemoryBudget* budget_ = nullptr;
  size_t charged_bytes_ = 0;  // taken from the budget: in use, reserved or kept
  size_t base_bytes_ = 0;     // of these for good
  size_t kept_bytes_ = 0;  // of the region, no page behind these is there; 0: no more than the base
  size_t page_bytes_ = kPageBytes;
  Kind kind_ = Kind::kArena;
  bool was_refused_ = false;
  bool is_growing_ = false;
};

}  // namespace lumen
