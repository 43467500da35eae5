// See the header.
#include "transports/grpc/session_memory.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

namespace lumen::grpc {

Status SessionMemory::create(size_t bytes) {
  Result<RequestMemory> memory = RequestMemory::create(bytes);
  if (!memory.ok()) return memory.status();
  memory_ = std::move(*memory);
  functions_.mem_user_data = this;
  functions_.malloc = [](size_t size, void* self) {
    return static_cast<SessionMemory*>(self)->allocate(size);
  };
  functions_.free = [](void* block, void* self) { static_cast<SessionMemory*>(self)->free(block); };
  functions_.calloc = [](size_t count, size_t size, void* self) -> void* {
    size_t all = 0;
    if (__builtin_mul_overflow(count, size, &all)) return nullptr;
    void* const block = static_cast<SessionMemory*>(self)->allocate(all);
    if (block != nullptr) std::memset(block, 0, all);
    return block;
  };
  functions_.realloc = [](void* block, size_t size, void* self) {
    return static_cast<SessionMemory*>(self)->reallocate(block, size);
  };
  return {};
}

void* SessionMemory::allocate(size_t bytes) noexcept {
  const size_t number = std::bit_width((std::max(bytes, kLeastBytes) - 1) / kLeastBytes);
  if (number >= kSizes) return nullptr;
  Block* block = free_[number];
  if (block != nullptr) {
    free_[number] = block->next;
  } else {
    block = static_cast<Block*>(
        memory_.allocate(sizeof(Block) + (kLeastBytes << number), alignof(std::max_align_t)));
    if (block == nullptr) return nullptr;
    block->number = number;
  }
  return block + 1;
}

void SessionMemory::free(void* memory) noexcept {
  if (memory == nullptr) return;
  Block* const block = static_cast<Block*>(memory) - 1;
  block->next = std::exchange(free_[block->number], block);
}

void* SessionMemory::reallocate(void* memory, size_t bytes) noexcept {
  if (memory == nullptr) return allocate(bytes);
  const size_t had = kLeastBytes << (static_cast<Block*>(memory) - 1)->number;
  if (bytes <= had) return memory;
  void* const larger = allocate(bytes);
  if (larger == nullptr) return nullptr;
  std::memcpy(larger, memory, had);
  free(memory);
  return larger;
}

}  // namespace lumen::grpc
