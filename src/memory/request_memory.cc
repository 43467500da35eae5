// See the header for threads, memory and refusals.
#include <lumen/memory/request_memory.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace lumen {

struct RequestMemory::Block {
  Block* next;
  size_t bytes;
};

Result<RequestMemory> RequestMemory::create(size_t capacity_bytes, const RegionOptions& options) {
  const MappingOptions mapping{.huge_pages = options.huge_pages, .numa_node = options.numa_node};
  Result<Arena> arena = Arena::create(capacity_bytes, mapping);
  if (!arena.ok()) return arena.status();
  RequestMemory memory;
  memory.prefaulted_bytes_ = std::min(options.prefault_bytes, arena->capacity_bytes());
  // By writing through the arena, since what it has not given out is poisoned under ASan.
  if (memory.prefaulted_bytes_ > 0) {
    const Arena::Mark begin = arena->mark();
    if (void* pages = arena->allocate(memory.prefaulted_bytes_, kPageBytes); pages != nullptr) {
      std::memset(pages, 0, memory.prefaulted_bytes_);
    }
    arena->rewind(begin);
  }
  memory.arena_ = std::move(*arena);
  memory.floor_ = memory.arena_.mark();
  return memory;
}

RequestMemory& RequestMemory::operator=(RequestMemory&& other) noexcept {
  arena_ = std::move(other.arena_);
  floor_ = other.floor_;
  floor_bytes_ = other.floor_bytes_;
  prefaulted_bytes_ = other.prefaulted_bytes_;
  std::swap(blocks_, other.blocks_);
  std::swap(heap_bytes_, other.heap_bytes_);
  std::swap(heap_calls_, other.heap_calls_);
  kind_ = other.kind_;
  return *this;
}

void* RequestMemory::allocate_block(size_t bytes, size_t alignment) noexcept {
  if (bytes > capacity_bytes() - std::min(capacity_bytes(), heap_bytes_)) return nullptr;
  const size_t align = std::max({alignment, alignof(Block), sizeof(Block)});
  // The head takes a whole unit of alignment, so that the bytes behind it are aligned too.
  const size_t whole = align + (bytes + align - 1) / align * align;
  void* memory = std::aligned_alloc(align, whole);  // alloc: that is what kHeap is for
  if (memory == nullptr) return nullptr;
  blocks_ = ::new (memory) Block{blocks_, whole};
  heap_bytes_ += whole;
  ++heap_calls_;
  return static_cast<std::byte*>(memory) + align;
}

void RequestMemory::free_blocks() noexcept {
  while (blocks_ != nullptr) {
    Block* next = blocks_->next;
    std::free(blocks_);  // alloc: as in allocate_block()
    blocks_ = next;
    ++heap_calls_;
  }
  heap_bytes_ = 0;
}

void RequestMemory::shrink_last(const void* memory, size_t bytes) noexcept {
  if (!arena_.owns(memory)) return;
  const Arena::Mark here = arena_.mark();
  auto* end = const_cast<std::byte*>(static_cast<const std::byte*>(memory)) + bytes;
  const auto address = reinterpret_cast<uintptr_t>(end);
  auto* cursor = end + (Arena::kGranule - address % Arena::kGranule) % Arena::kGranule;
  if (cursor < here.cursor) arena_.rewind({cursor, here.block});
}

void RequestMemory::keep_what_is_there() noexcept {
  floor_ = arena_.mark();
  floor_bytes_ = arena_.used_bytes();
}

RequestMemory::Usage RequestMemory::reset(size_t keep_bytes) noexcept {
  free_blocks();
  Usage usage{.heap_calls = std::exchange(heap_calls_, 0),
              .arena_bytes = arena_.used_bytes() - floor_bytes_};
  arena_.rewind(floor_);
  arena_.trim(std::max(keep_bytes, prefaulted_bytes_));
  return usage;
}

bool RequestMemory::is_valid() const noexcept {
  size_t bytes = 0;
  for (const Block* block = blocks_; block != nullptr; block = block->next) bytes += block->bytes;
  return arena_.is_valid() && bytes == heap_bytes_;
}

}  // namespace lumen
