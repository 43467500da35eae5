// The slow ways of Arena: linking, rewinding and unmapping blocks. One owner at a time.
// Memory: a growing arena maps a block in allocate_slow(). Errors: nullptr; never throws.
#include <lumen/memory/arena.h>

#include <lumen/base/cache_line.h>

#include <new>

namespace lumen {

// Lies at the beginning of its own mapping, so that linking a block needs no heap.
struct alignas(kCacheLine) Arena::Block {
  Mapping mapping;
  Block* next = nullptr;
  size_t used_before = 0;  // bytes used in the blocks before, when this one was entered

  [[nodiscard]] uintptr_t begin() const noexcept {
    return reinterpret_cast<uintptr_t>(this) + sizeof(Block);
  }
  [[nodiscard]] uintptr_t end() const noexcept {
    return reinterpret_cast<uintptr_t>(this) + mapping.size();
  }
};

Arena::~Arena() {
  unlink_after(nullptr);
  // ASan's shadow outlives munmap: the next owner of these addresses must find them clean. Only as
  // far as it was ever used: the shadow of a thousand regions of 144 MiB would be 18 GB to write.
  note_peak();
  if (s_.furthest > first_begin()) unpoison(mapping_.data(), s_.furthest - first_begin());
}

void Arena::enter(Block* block, uintptr_t cursor) noexcept {
  s_.block = block;
  s_.begin = block == nullptr ? first_begin() : block->begin();
  s_.end = block == nullptr ? first_begin() + s_.first_bytes : block->end();
  s_.used_before = block == nullptr ? 0 : block->used_before;
  s_.cursor = cursor;
}

// Poisons all that was used from `cursor` in `block` to where the arena is now.
void Arena::poison_from(Block* block, uintptr_t cursor) noexcept {
  uintptr_t from = cursor;
  for (Block* b = block; b != s_.block;) {
    const uintptr_t end = b == nullptr ? first_begin() + mapping_.size() : b->end();
    poison(reinterpret_cast<void*>(from), end - from);
    b = b == nullptr ? s_.linked : b->next;
    from = b->begin();
  }
  poison(reinterpret_cast<void*>(from), s_.cursor - from);
}

void Arena::rewind(Mark mark) noexcept {
  note_peak();
  const auto cursor = reinterpret_cast<uintptr_t>(mark.cursor);
  const uintptr_t target = cursor == 0 ? first_begin() : cursor;
  if constexpr (kRedzoneBytes != 0) poison_from(mark.block, target);
  enter(mark.block, target);
  LUMEN_DCHECK(is_valid());
}

void* Arena::allocate_slow(size_t bytes, size_t alignment) noexcept {
  Block* block = next_block(bytes, alignment);
  if (block == nullptr) {
    ++s_.refusals;
    return nullptr;
  }
  if (kRedzoneBytes != 0 && s_.block == nullptr) s_.furthest = s_.end;  // a rewind poisons it whole
  block->used_before = used_bytes();
  enter(block, block->begin());
  return take((s_.cursor + alignment - 1) & ~(alignment - 1), bytes);
}

// The block after the current one if it is large enough, else a new one linked in before it: those
// behind stay for later, and the chain is never searched.
Arena::Block* Arena::next_block(size_t bytes, size_t alignment) noexcept {
  const size_t overhead = sizeof(Block) + alignment + kGranule + kRedzoneBytes;
  if (bytes > SIZE_MAX / 4 || alignment > SIZE_MAX / 4) return nullptr;
  const size_t wanted = bytes + overhead;
  Block** link = s_.block == nullptr ? &s_.linked : &s_.block->next;
  if (*link != nullptr && (*link)->mapping.size() >= wanted) return *link;

  const size_t mapped = mapping_.size() + s_.linked_bytes;
  if (mapped >= s_.cap || wanted > s_.cap - mapped) return nullptr;
  const size_t current = s_.block == nullptr ? mapping_.size() : s_.block->mapping.size();
  const size_t size = std::min(std::max(wanted, 2 * current), s_.cap - mapped);
  Result<Mapping> mapping = Mapping::create(size, s_.options);
  if (!mapping.ok()) return nullptr;
  auto* block = ::new (static_cast<void*>(mapping->data())) Block;
  block->mapping = std::move(*mapping);
  block->next = *link;
  *link = block;
  s_.linked_bytes += block->mapping.size();
  return block;
}

void Arena::unlink_after(Block* block) noexcept {
  Block** link = block == nullptr ? &s_.linked : &block->next;
  while (*link != nullptr) {
    Block* gone = *link;
    *link = gone->next;
    s_.linked_bytes -= gone->mapping.size();
    unpoison(gone, gone->mapping.size());
    // The mapping moves out of the memory that it owns before that memory goes.
    const Mapping mapping = std::move(gone->mapping);
  }
}

void Arena::trim(size_t keep_bytes) noexcept {
  if (peak_bytes() > keep_bytes) mapping_.release_pages_from(std::max(keep_bytes, used_bytes()));
  size_t before = mapping_.size();
  Block* last = s_.block;
  for (Block* b = s_.linked; b != nullptr && b != s_.block; b = b->next) {
    before += b->mapping.size();
  }
  for (Block* b = last == nullptr ? s_.linked : last->next; b != nullptr && before < keep_bytes;
       b = b->next) {
    before += b->mapping.size();
    last = b;
  }
  unlink_after(last);
  s_.peak = used_bytes();
}

bool Arena::owns(const void* address) const noexcept {
  const auto p = reinterpret_cast<uintptr_t>(address);
  if (p >= first_begin() && p < first_begin() + mapping_.size()) return true;
  for (const Block* b = s_.linked; b != nullptr; b = b->next) {
    if (p >= b->begin() && p < b->end()) return true;
  }
  return false;
}

ArenaStats Arena::stats() const noexcept {
  ArenaStats stats;
  stats.used_bytes = used_bytes();
  stats.peak_bytes = peak_bytes();
  stats.mapped_bytes = mapping_.size() + s_.linked_bytes;
  stats.capacity_bytes = s_.cap;
  stats.blocks = mapping_.size() == 0 ? 0 : 1;
  for (const Block* b = s_.linked; b != nullptr; b = b->next) ++stats.blocks;
  stats.resets = s_.resets;
  stats.refusals = s_.refusals;
  return stats;
}

bool Arena::is_valid() const noexcept {
  if (s_.begin > s_.cursor || s_.cursor > s_.end || s_.cursor % kGranule != 0) return false;
  size_t linked_bytes = 0;
  bool found = s_.block == nullptr;
  for (const Block* b = s_.linked; b != nullptr; b = b->next) {
    linked_bytes += b->mapping.size();
    if (b == s_.block) {
      found = s_.begin == b->begin() && s_.end == b->end() && s_.used_before == b->used_before;
      if (!found) return false;
    }
  }
  if (s_.block == nullptr) {
    found = s_.begin == first_begin() && s_.end == first_begin() + s_.first_bytes;
  }
  return found && linked_bytes == s_.linked_bytes && mapping_.size() + linked_bytes <= s_.cap;
}

}  // namespace lumen
