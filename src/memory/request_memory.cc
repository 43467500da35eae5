// See the header for threads, memory and errors.
#include <lumen/memory/request_memory.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace lumen {
namespace {

// Taken from the budget at once if nothing was reserved: a call that allocates bit by bit shall not
// go there each time.
constexpr size_t kChargeStep = 64 * 1024;

}  // namespace

struct RequestMemory::Block {
  Block* next;
  size_t bytes;
};

Result<RequestMemory> RequestMemory::create(size_t capacity_bytes, const RegionOptions& options) {
  const MappingOptions mapping{.huge_pages = options.huge_pages, .numa_node = options.numa_node};
  Result<Arena> arena = Arena::create(capacity_bytes, mapping);
  if (!arena.ok()) return arena.status();
  RequestMemory memory;
  memory.page_bytes_ = options.huge_pages ? kHugePageBytes : kPageBytes;
  memory.prefaulted_bytes_ = std::min(options.prefault_bytes, arena->capacity_bytes());
  // By writing through the arena, since memory that it has not given out is poisoned under ASan.
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
  std::swap(budget_, other.budget_);
  std::swap(charged_bytes_, other.charged_bytes_);
  std::swap(base_bytes_, other.base_bytes_);
  std::swap(kept_bytes_, other.kept_bytes_);
  page_bytes_ = other.page_bytes_;
  kind_ = other.kind_;
  return *this;
}

RequestMemory::~RequestMemory() {
  free_blocks();
  if (budget_ != nullptr) budget_->give_back(charged_bytes_);
}

void RequestMemory::use(Kind kind) noexcept {
  if (kind == kind_) return;
  kind_ = kind;
  // The pages that the region keeps would stand beside the heap's, and only one of them is charged.
  if (kind == Kind::kHeap && budget_ != nullptr && std::exchange(kept_bytes_, 0) > 0) {
    arena_.release_pages_above(base_bytes_);
  }
}

bool RequestMemory::charge_to(MemoryBudget& budget, size_t base_bytes) noexcept {
  LUMEN_CHECK(budget_ == nullptr);
  const size_t base = whole_pages(std::max(arena_.used_bytes() + base_bytes, prefaulted_bytes_));
  if (!budget.try_take(base)) return false;
  budget_ = &budget;
  charged_bytes_ = base_bytes_ = base;
  limit_region();
  return true;
}

// Charged bytes that are not on the heap may be used of the region.
void RequestMemory::limit_region() noexcept {
  arena_.limit_to(std::max(charged_bytes_ - heap_bytes_, arena_.used_bytes()));
}

// The region ends with a whole page too, so that this is never more than it has, but for huge
// pages.
size_t RequestMemory::whole_pages(size_t bytes) const noexcept {
  return (bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_;
}

bool RequestMemory::charge(size_t bytes) noexcept {
  if (bytes <= charged_bytes_) return true;
  if (bytes > capacity_bytes()) return false;
  const size_t wanted = whole_pages(bytes);
  if (!budget_->try_take(wanted - charged_bytes_)) return false;
  charged_bytes_ = wanted;
  return true;
}

// A step more than it needs, so that not each small piece goes to the budget; else exactly its
// need.
bool RequestMemory::charge_step(size_t bytes) noexcept {
  if (bytes <= charged_bytes_) return true;
  const size_t step = std::min(charged_bytes_ + kChargeStep, capacity_bytes());
  if ((step > bytes && charge(step)) || charge(bytes)) return true;
  was_refused_ = true;
  return false;
}

size_t RequestMemory::uncharge_to(size_t bytes) noexcept {
  const size_t rest = std::max(whole_pages(bytes), base_bytes_);
  if (budget_ == nullptr || rest >= charged_bytes_) return 0;
  const size_t given_back = charged_bytes_ - rest;
  budget_->give_back(given_back);
  charged_bytes_ = rest;
  limit_region();
  return given_back;
}

bool RequestMemory::take_more(size_t bytes, size_t alignment) noexcept {
  if (bytes > arena_.capacity_bytes() - arena_.used_bytes()) return false;
  const size_t gap = alignment + Arena::kGranule + kRedzoneBytes;
  if (!charge_step(std::min(in_use_bytes() + bytes + gap, capacity_bytes()))) return false;
  limit_region();
  return true;
}

bool RequestMemory::reserve(size_t bytes) noexcept {
  if (budget_ == nullptr) return true;
  if (!charge(std::min(in_use_bytes() + std::min(bytes, capacity_bytes()), capacity_bytes()))) {
    return false;
  }
  limit_region();
  return true;
}

void RequestMemory::settle(size_t bytes) noexcept {
  LUMEN_DCHECK(!is_growing_);
  (void)uncharge_to(std::max(in_use_bytes() + std::min(bytes, capacity_bytes()), kept_bytes_));
}

void* RequestMemory::begin_growing(size_t most_bytes, size_t alignment) noexcept {
  if (budget_ == nullptr || kind_ == Kind::kHeap) return allocate(most_bytes, alignment);
  arena_.limit_to(arena_.capacity_bytes());
  void* const memory = arena_.allocate(most_bytes, alignment);
  is_growing_ = memory != nullptr;
  if (memory == nullptr) limit_region();
  return memory;
}

bool RequestMemory::grow_to(const void* end) noexcept {
  if (!is_growing_) return true;
  const auto used = static_cast<size_t>(static_cast<const std::byte*>(end) - region().data());
  return charge_step(used + heap_bytes_);
}

size_t RequestMemory::drop_kept_pages() noexcept {
  LUMEN_DCHECK(arena_.used_bytes() == floor_bytes_ && heap_bytes_ == 0);
  if (budget_ == nullptr || charged_bytes_ == base_bytes_) return 0;
  // The base is charged whether it is touched or not.
  arena_.release_pages_above(base_bytes_);
  kept_bytes_ = 0;
  return uncharge_to(base_bytes_);
}

void* RequestMemory::allocate_block(size_t bytes, size_t alignment) noexcept {
  if (bytes > capacity_bytes() - std::min(capacity_bytes(), heap_bytes_)) return nullptr;
  const size_t align = std::max({alignment, alignof(Block), sizeof(Block)});
  // The head takes a whole unit of alignment, so that the bytes behind it are aligned too.
  const size_t whole = align + (bytes + align - 1) / align * align;
  if (budget_ != nullptr && !charge_step(in_use_bytes() + whole)) return nullptr;
  void* memory = std::aligned_alloc(align, whole);  // alloc: kHeap is for that
  if (memory == nullptr) return nullptr;
  blocks_ = ::new (memory) Block{blocks_, whole};
  heap_bytes_ += whole;
  ++heap_calls_;
  if (budget_ != nullptr) limit_region();
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
  const bool was_growing = std::exchange(is_growing_, false);
  const Arena::Mark here = arena_.mark();
  auto* end = const_cast<std::byte*>(static_cast<const std::byte*>(memory)) + bytes;
  const auto address = reinterpret_cast<uintptr_t>(end);
  auto* cursor = end + (Arena::kGranule - address % Arena::kGranule) % Arena::kGranule;
  if (cursor < here.cursor) arena_.rewind({cursor, here.block});
  if (was_growing) limit_region();
}

void RequestMemory::keep_what_is_there() noexcept {
  floor_ = arena_.mark();
  floor_bytes_ = arena_.used_bytes();
}

RequestMemory::Usage RequestMemory::reset(size_t keep_bytes) noexcept {
  free_blocks();
  Usage usage{.heap_calls = std::exchange(heap_calls_, 0),
              .arena_bytes = arena_.used_bytes() - floor_bytes_};
  const bool has_pages = kept_bytes_ > 0 || arena_.used_bytes() > base_bytes_;
  arena_.rewind(floor_);
  arena_.trim(std::max(keep_bytes, prefaulted_bytes_));
  was_refused_ = false;
  if (budget_ == nullptr) return usage;
  if (std::exchange(is_growing_, false)) limit_region();
  (void)uncharge_to(keep_bytes);
  kept_bytes_ = has_pages ? charged_bytes_ : 0;
  return usage;
}

bool RequestMemory::is_valid() const noexcept {
  size_t bytes = 0;
  for (const Block* block = blocks_; block != nullptr; block = block->next) bytes += block->bytes;
  return arena_.is_valid() && bytes == heap_bytes_;
}

}  // namespace lumen
