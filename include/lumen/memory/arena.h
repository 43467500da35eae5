// Arena: a region of memory with O(1) bump allocation and O(1) reset; one block with a hard cap, or
// blocks linked as they fill, up to a cap.
// Threads: one at a time; it travels with its request from thread to thread.
// Memory: one Mapping at creation (virtual, cheap until touched). A growing arena maps one more
// block when one is full and keeps it over reset(); an arena with a hard cap never maps again.
// Errors: nullptr when the cap is reached (or the kernel has no more for a growing one).
//
// Cost: allocate() on an Arena (the class is final, so the call is not virtual) is two compares, an
// "and" and an add, one cycle from cursor to cursor; reset() moves two pointers, for any size.
// Under ASan memory that was allocated and given back is poisoned, and so are 16 bytes behind each
// allocation, which count as used; memory that was never allocated is not, for its shadow would
// cost an eighth of it.
// Invariants (is_valid() checks them): block_begin <= cursor <= block_end, in steps of kGranule;
// every block of the chain is owned, and used_before is the sum of the blocks before it as they
// were left.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/check.h>
#include <lumen/memory/mapping.h>
#include <lumen/memory/poison.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lumen {

struct ArenaStats {
  size_t used_bytes = 0;      // now, gaps of alignment and granule included
  size_t peak_bytes = 0;      // the most since creation or the last trim()
  size_t mapped_bytes = 0;    // address space held now
  size_t capacity_bytes = 0;  // the cap
  size_t blocks = 0;
  size_t resets = 0;
  size_t refusals = 0;  // allocate() that returned nullptr
};

class Arena final : public Allocator {
 private:
  struct Block;  // a linked block, its header at its own beginning

 public:
  // A place to rewind() to. It ends with the next reset() or the rewind to an older mark.
  struct Mark {
    std::byte* cursor = nullptr;
    Block* block = nullptr;
  };

  // One block of `capacity_bytes` (rounded up to pages) and not a byte more.
  [[nodiscard]] static Result<Arena> create(size_t capacity_bytes,
                                            const MappingOptions& options = {}) {
    Result<Mapping> mapping = Mapping::create(capacity_bytes, options);
    if (!mapping.ok()) return mapping.status();
    const size_t cap = mapping->size();
    return Arena(std::move(*mapping), cap, options);
  }
  // Starts with `first_block_bytes` and maps blocks of doubling size until `cap_bytes` are mapped.
  [[nodiscard]] static Result<Arena> create_growing(size_t first_block_bytes, size_t cap_bytes,
                                                    const MappingOptions& options = {}) {
    Result<Mapping> mapping = Mapping::create(first_block_bytes, options);
    if (!mapping.ok()) return mapping.status();
    const size_t cap = std::max(cap_bytes / kPageBytes * kPageBytes, mapping->size());
    return Arena(std::move(*mapping), cap, options);
  }

  Arena() noexcept = default;
  Arena(Arena&& other) noexcept
      : mapping_(std::move(other.mapping_)), s_(std::exchange(other.s_, State{})) {}
  Arena& operator=(Arena&& other) noexcept {
    mapping_ = std::move(other.mapping_);  // swaps: `other` frees our old mapping
    std::swap(s_, other.s_);
    return *this;
  }
  ~Arena();

  // Sizes are rounded up to it, so that the cursor is always aligned to it.
  static constexpr size_t kGranule = 16;

  // The bytes are not zeroed; zero bytes give a valid address that nothing may be written to.
  [[nodiscard]] void* allocate(size_t bytes, size_t alignment) noexcept override {
    // Rounding the size is off the chain from cursor to cursor; rounding the cursor would be two of
    // its three cycles.
    if (alignment > kGranule) return allocate_aligned(bytes, alignment);
    if (bytes > s_.end - s_.cursor) [[unlikely]]
      return allocate_slow(bytes, alignment);
    return take(s_.cursor, bytes);
  }

  [[nodiscard]] Mark mark() const noexcept {
    return {reinterpret_cast<std::byte*>(s_.cursor), s_.block};
  }
  // Frees all that was allocated since `mark`, in O(1). A default Mark means the beginning.
  void rewind(Mark mark) noexcept;
  void reset() noexcept {
    note_peak();
    ++s_.resets;
    if constexpr (kRedzoneBytes != 0) poison_from(nullptr, first_begin());
    enter(nullptr, first_begin());
  }
  // After reset(): gives pages above `keep_bytes` back if they were touched since the last trim;
  // unmaps the linked blocks that begin above it.
  void trim(size_t keep_bytes) noexcept;
  // As trim(), of one block, whenever the pages were touched.
  void release_pages_above(size_t keep_bytes) noexcept {
    mapping_.release_pages_from(std::max(keep_bytes, used_bytes()));
  }
  // Of an arena of one block: allocate() refuses memory beyond its first `bytes`, until the next
  // call. Not below used_bytes(); more than the capacity is the capacity.
  void limit_to(size_t bytes) noexcept {
    s_.first_bytes = std::min(bytes, mapping_.size()) & ~(kGranule - 1);  // as the cursor's steps
    LUMEN_DCHECK(s_.linked == nullptr && s_.first_bytes >= used_bytes());
    s_.end = first_begin() + s_.first_bytes;
  }

  [[nodiscard]] size_t used_bytes() const noexcept {
    return s_.used_before + (s_.cursor - s_.begin);
  }
  [[nodiscard]] size_t peak_bytes() const noexcept { return std::max(s_.peak, used_bytes()); }
  [[nodiscard]] size_t capacity_bytes() const noexcept { return s_.cap; }
  // The first block; with a hard cap that is all there is.
  [[nodiscard]] std::span<std::byte> region() const noexcept { return mapping_.bytes(); }
  [[nodiscard]] bool owns(const void* address) const noexcept;
  [[nodiscard]] ArenaStats stats() const noexcept;
  [[nodiscard]] bool is_valid() const noexcept;

 private:
  // Trivially copyable, so that a move is one exchange and a moved-from arena refuses everything.
  // Addresses are integers: pointer arithmetic past an object's end would be undefined.
  struct State {
    uintptr_t cursor = 0;
    uintptr_t end = 0;
    uintptr_t begin = 0;      // of the block that cursor is in
    size_t used_before = 0;   // in the blocks before it
    Block* block = nullptr;   // the block that cursor is in; nullptr: the first
    Block* linked = nullptr;  // chain of the blocks after the first
    size_t linked_bytes = 0;
    size_t cap = 0;
    size_t first_bytes = 0;  // of the first block: up to here it is given out
    size_t peak = 0;
    size_t resets = 0;
    size_t refusals = 0;
    uintptr_t furthest = 0;  // in the first block, ever; only under ASan, for its poison
    MappingOptions options;
  };

  Arena(Mapping mapping, size_t cap, const MappingOptions& options) noexcept
      : mapping_(std::move(mapping)) {
    s_.cap = cap;
    s_.first_bytes = mapping_.size();
    s_.options = options;
    enter(nullptr, first_begin());
  }

  [[nodiscard]] uintptr_t first_begin() const noexcept {
    return reinterpret_cast<uintptr_t>(mapping_.data());
  }
  void note_peak() noexcept {
    s_.peak = std::max(s_.peak, used_bytes());
    if (kRedzoneBytes != 0 && s_.block == nullptr) s_.furthest = std::max(s_.furthest, s_.cursor);
  }
  [[nodiscard]] void* take(uintptr_t begin, size_t bytes) noexcept {
    auto* memory = reinterpret_cast<std::byte*>(begin);
    const uintptr_t end = begin + ((bytes + kGranule - 1) & ~(kGranule - 1));
    if constexpr (kRedzoneBytes != 0) {
      s_.cursor = std::min(end + kRedzoneBytes, s_.end);
      unpoison(memory, bytes);
      poison(memory + bytes, s_.cursor - begin - bytes);
    } else {
      s_.cursor = end;
    }
    return memory;
  }
  [[nodiscard]] void* allocate_aligned(size_t bytes, size_t alignment) noexcept {
    const uintptr_t begin = (s_.cursor + alignment - 1) & ~(alignment - 1);
    // begin wraps below cursor only at the top of the address space, where nothing is mapped.
    if (begin > s_.end || bytes > s_.end - begin) [[unlikely]] {
      return allocate_slow(bytes, alignment);
    }
    return take(begin, bytes);
  }
  void enter(Block* block, uintptr_t cursor) noexcept;
  void poison_from(Block* block, uintptr_t cursor) noexcept;
  [[nodiscard]] void* allocate_slow(size_t bytes, size_t alignment) noexcept;
  [[nodiscard]] Block* next_block(size_t bytes, size_t alignment) noexcept;
  void unlink_after(Block* block) noexcept;

  Mapping mapping_;
  State s_;
};

}  // namespace lumen
