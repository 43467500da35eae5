// RequestMemory: where one request (or one worker's batch) has its bytes: a region, or the heap for
// comparison. Both behind the Allocator face, changed between two requests.
// Threads: one at a time. Memory: the region is mapped at create() and costs nothing until touched;
// on the heap each allocate() is a call of malloc, each reset() frees them one by one.
// Says no: nullptr when `capacity_bytes` are used up, for both kinds.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>
#include <lumen/memory/arena.h>

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

  // What was used between two resets.
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
        kind_(other.kind_) {}
  RequestMemory& operator=(RequestMemory&& other) noexcept;
  ~RequestMemory() { free_blocks(); }

  // From the next allocate() on. What was allocated before lives until reset() all the same.
  void use(Kind kind) noexcept { kind_ = kind; }
  [[nodiscard]] Kind kind() const noexcept { return kind_; }

  [[nodiscard]] void* allocate(size_t bytes, size_t alignment) noexcept override {
    if (kind_ == Kind::kArena) return arena_.allocate(bytes, alignment);
    return allocate_block(bytes, alignment);
  }
  // Gives back what the last allocate() returned, but for its first `bytes`, which stay where they
  // are. On the heap nothing is given back before reset().
  void shrink_last(const void* memory, size_t bytes) noexcept;

  // What is in the region now stays over reset(): call once, before serving.
  void keep_what_is_there() noexcept;
  // Frees the rest; pages of the region above `keep_bytes` go back to the kernel.
  Usage reset(size_t keep_bytes) noexcept;

  [[nodiscard]] std::span<std::byte> region() const noexcept { return arena_.region(); }
  [[nodiscard]] size_t capacity_bytes() const noexcept { return arena_.capacity_bytes(); }
  [[nodiscard]] bool is_valid() const noexcept;

 private:
  struct Block;  // in front of what malloc gave

  void* allocate_block(size_t bytes, size_t alignment) noexcept;
  void free_blocks() noexcept;

  Arena arena_;
  Arena::Mark floor_{};
  size_t floor_bytes_ = 0;
  size_t prefaulted_bytes_ = 0;
  Block* blocks_ = nullptr;
  size_t heap_bytes_ = 0;
  uint64_t heap_calls_ = 0;
  Kind kind_ = Kind::kArena;
};

}  // namespace lumen
