// See the header for threads, memory and errors.
#include "answers/answer_store.h"

#include <lumen/base/check.h>
#include <lumen/base/idle_strategy.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace lumen::answers {
namespace {

// Looks at the door, some 10 ns each: about the time of an insert. The thread inside may have lost
// its CPU.
constexpr int kLooks = 64;

constexpr uint32_t generation_of(uint64_t state) noexcept {
  return static_cast<uint32_t>(state >> 32);
}

}  // namespace

void on_answer_removed(AnswerSlot& slot) noexcept { slot.store->let_go(slot); }

Result<std::unique_ptr<AnswerStore>> AnswerStore::create(
    const models::ResponseCacheOptions& options) {
  Result<BlockRegion> region = BlockRegion::create(options.max_bytes);
  if (!region.ok()) return region.status();
  return std::unique_ptr<AnswerStore>(new AnswerStore(std::move(*region), options));
}

AnswerStore::AnswerStore(BlockRegion region, const models::ResponseCacheOptions& options)
    : region_(std::move(region)), slots_(bytes() / kLeastBytes) {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    slots_[i].store = this;
    slots_[i].number = i;
    slots_[i].block = kNone;
    slots_[i].next = std::exchange(free_, i);
  }
  const uint64_t max_weight = region_.units() / 8 * kUsedOfEight;
  index_ = make_answer_index({.policy = options.policy,
                              .max_weight = max_weight,
                              .max_entries = max_weight / (kLeastBytes / kUnitBytes)});
}

AnswerStore::~AnswerStore() = default;

bool AnswerStore::try_enter() noexcept {
  for (int look = 0; look < kLooks; ++look) {
    // relaxed: a look; the exchange below orders
    if (!is_inside_.load(std::memory_order_relaxed) &&
        // sync[answers.inside]: acquire; its last owner's writes to lists and region
        !is_inside_.exchange(true, std::memory_order_acquire)) {
      return true;
    }
    cpu_pause();
  }
  return false;
}

void AnswerStore::leave() noexcept {
  // relaxed: a figure for readers that accept one a moment old
  used_units_.store(region_.units() - region_.free_units(), std::memory_order_relaxed);
  // sync[answers.inside]: release; pairs with try_enter()
  is_inside_.store(false, std::memory_order_release);
}

uint64_t AnswerStore::bytes_used() const noexcept {
  return used_units_.load(std::memory_order_relaxed) * kUnitBytes;  // relaxed: as in leave()
}

AnswerSlot* AnswerStore::find(const Hash128& key) noexcept {
  const std::optional<AnswerRef> found = index_->get(key);
  if (!found) return nullptr;
  std::atomic<uint64_t>& state = found->slot->state;
  uint64_t seen = state.load(std::memory_order_relaxed);  // relaxed: the exchange below orders
  do {
    const bool is_there =
        generation_of(seen) == found->generation && (seen & kReady) != 0 && (seen & kHolders) != 0;
    if (!is_there) return nullptr;
    // sync[answers.slot]: acquire; the answer's bytes. relaxed: on failure only looked at once more
  } while (!state.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire,
                                        std::memory_order_relaxed));
  return found->slot;
}

void AnswerStore::hold(AnswerSlot& slot) noexcept {
  // relaxed: the caller holds it already, so nothing is waited for and nothing can be freed
  slot.state.fetch_add(1, std::memory_order_relaxed);
}

void AnswerStore::let_go(AnswerSlot& slot) noexcept {
  // sync[answers.slot]: acquire and release; all that its holders have read, before it is freed
  const uint64_t before = slot.state.fetch_sub(1, std::memory_order_acq_rel);
  LUMEN_DCHECK((before & kHolders) != 0);
  if ((before & kHolders) != 1) return;
  uint32_t first = retired_.load(std::memory_order_relaxed);  // relaxed: the exchange below orders
  do {
    slot.next = first;
    // sync[answers.retired]: release; the slot's last use. relaxed: on failure only looked at once
    // more
  } while (!retired_.compare_exchange_weak(first, slot.number, std::memory_order_release,
                                           std::memory_order_relaxed));
}

void AnswerStore::free_retired() noexcept {
  // sync[answers.retired]: acquire; nobody uses these slots any more
  uint32_t next = retired_.exchange(kNone, std::memory_order_acquire);
  while (next != kNone) {
    AnswerSlot& slot = slots_[next];
    next = slot.next;
    free_slot(slot);
  }
}

void AnswerStore::free_slot(AnswerSlot& slot) noexcept {
  if (slot.block != kNone) region_.free(std::exchange(slot.block, kNone));
  // relaxed, both: no thread holds it, and one that still names the generation before finds no
  // holder, or another one
  const uint64_t generation = generation_of(slot.state.load(std::memory_order_relaxed)) + 1;
  slot.state.store(generation << 32, std::memory_order_relaxed);
  slot.next = std::exchange(free_, slot.number);
}

AnswerStore::Place AnswerStore::begin_put(const Hash128& key, uint64_t bytes,
                                          std::chrono::nanoseconds ttl) noexcept {
  const uint64_t units = BlockRegion::units_for(bytes);
  if (units > region_.units() / kLargestShare) return {PutOutcome::kTooLarge, nullptr};
  if (!try_enter()) return {PutOutcome::kBusy, nullptr};
  free_retired();
  const Place place = put_inside(key, static_cast<uint32_t>(units), ttl);
  leave();
  return place;
}

// First into the index, which makes room, then a block: an index that takes nothing more because
// there is no block would never evict the answers that are in the way.
AnswerStore::Place AnswerStore::put_inside(const Hash128& key, uint32_t units,
                                           std::chrono::nanoseconds ttl) noexcept {
  if (free_ == kNone) return {PutOutcome::kNoRoom, nullptr};
  AnswerSlot& slot = slots_[free_];
  free_ = slot.next;
  // relaxed, both: nobody else has it; the index publishes it, and publish() its bytes
  const uint32_t generation = generation_of(slot.state.load(std::memory_order_relaxed));
  slot.state.store(uint64_t{generation} << 32 | 2, std::memory_order_relaxed);
  const uint32_t weight = std::max<uint32_t>(units, kLeastBytes / kUnitBytes);
  if (!index_->try_put(key, {&slot, generation, weight}, ttl)) {
    // relaxed: only this thread and the index, which has let go of it if it ever had it, know the
    // slot
    const bool was_in = (slot.state.load(std::memory_order_relaxed) & kHolders) == 1;
    free_slot(slot);
    return {was_in ? PutOutcome::kNotAdmitted : PutOutcome::kBusy, nullptr};
  }
  free_retired();  // those that the index has just let go of
  const std::optional<uint32_t> block = region_.allocate(units);
  if (!block) {
    let_go(slot);  // the index keeps its place until the next answer of the key, or its time, comes
    return {PutOutcome::kNoRoom, nullptr};
  }
  slot.block = *block;
  return {PutOutcome::kStored, &slot};
}

void AnswerStore::publish(AnswerSlot& slot) noexcept {
  // sync[answers.slot]: release; the bytes, for find()
  slot.state.fetch_or(kReady, std::memory_order_release);
}

}  // namespace lumen::answers
