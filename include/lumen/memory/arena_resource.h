// ArenaResource: an Arena as a std::pmr::memory_resource, for containers of the standard library.
// Threads: those of the arena, one at a time. Memory: the arena's.
// Errors: std::bad_alloc at the cap, because pmr asks for that; keep it off the data plane.
#pragma once

#include <lumen/memory/arena.h>

#include <memory_resource>
#include <new>

namespace lumen {

// The arena outlives the resource, and its reset() ends the life of everything allocated here:
// destroy the containers first. deallocate() gives nothing back; rewind() or reset() does.
class ArenaResource final : public std::pmr::memory_resource {
 public:
  explicit ArenaResource(Arena& arena) noexcept : arena_(&arena) {}
  [[nodiscard]] Arena& arena() const noexcept { return *arena_; }

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    void* memory = arena_->allocate(bytes, alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  void do_deallocate(void* memory, size_t bytes, size_t) override { poison(memory, bytes); }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    const auto* same = dynamic_cast<const ArenaResource*>(&other);
    return same != nullptr && same->arena_ == arena_;
  }

  Arena* arena_;
};

}  // namespace lumen
