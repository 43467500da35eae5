// IndexLooks: when one side of a SpscQueue waits before it looks at the other side's index; and
// fetch_ahead(), which asks for the slots that it will use soon.
// Threads: an IndexLooks belongs to one. Memory: none. Errors: never.
//
// The other side writes its index for each item. A look takes that line away from it: its next
// store to the line waits for a transfer, and so do all its later stores, which a core publishes in
// order. If both sides are as quick, the one that looks has soon caught up, finds an item or two
// each time, and every look costs both sides a transfer. So a side that has used up a run of items
// (of free places) waits for some transfers before the next look, and then finds a longer run. 8
// bytes, 1,024 slots: 71 -> 260 M/s where a transfer takes 300 ns, 780 -> 1,060 where it takes 55;
// before, it waited only after a look that had found nothing. That wait remains: it is the only one
// in small rings. A side that polls for a single item has no run behind it and sees the item at
// once.
#pragma once

#include <lumen/base/backoff.h>
#include <lumen/base/cache_line.h>
#include <lumen/base/core_distance.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace lumen {

class IndexLooks {
 public:
  // After a shorter run there is no wait: the next item may be a single one, and late.
  static constexpr size_t kLeastRun = 8;
  // After a longer run, in parts of the ring, the look is a small part of the run's time.
  static constexpr size_t kLongestRunParts = 4;
  // In a smaller ring the other side would be stuck before the wait is over.
  static constexpr size_t kLeastSlots = 256;
  // The wait, and how many slots it takes for each transfer of it.
  static constexpr uint64_t kMostTransfers = 8;
  static constexpr size_t kSlotsATransfer = 64;
  // A timed look at a near line may be quicker than its transfer: the core begins it before it
  // reads the clock.
  static constexpr uint64_t kLeastTransferNs = 2 * kNearUnitNs;

  // The wait after a run of `run` items in a ring of `capacity` slots; 0: none.
  [[nodiscard]] static constexpr uint64_t wait_ns(const CoreDistance& distance, size_t run,
                                                  size_t capacity) noexcept {
    if (capacity < kLeastSlots || run < kLeastRun) return 0;
    if (run > std::min(capacity / kLongestRunParts, kLongestBurst)) return 0;
    const uint64_t transfers = std::min<uint64_t>(capacity / kSlotsATransfer, kMostTransfers);
    return std::min(transfers * std::max(distance.transfer_ns(), kLeastTransferNs), kMostWaitNs);
  }

  // This side is at `position` and has used up all that it knew of. Calls look(), which reads the
  // other side's index and says whether there is more, once or twice, perhaps after a wait.
  template <typename Look>
  [[nodiscard]] bool look_again(size_t position, size_t capacity, Look&& look) noexcept {
    const uint64_t ns =
        wait_ns(distance_, position - std::exchange(looked_at_, position), capacity);
    if (ns != 0) wait_for(ns);
    if (ns != 0 ? look_after_wait(look) : look()) return true;
    const size_t burst = position - std::exchange(stuck_at_, position);
    return keep_distance(distance_, burst, capacity) && look_after_wait(look);
  }
  [[nodiscard]] const CoreDistance& distance() const noexcept { return distance_; }

 private:
  // The other side has worked on its line meanwhile, so a look that finds something costs a
  // transfer, which is timed now and then.
  template <typename Look>
  bool look_after_wait(Look& look) noexcept {
    if (!distance_.is_sampled()) return look();
    bool found = false;
    const uint64_t took_ns = time_of([&] { found = look(); });
    if (found) distance_.took(took_ns);
    return found;
  }

  size_t looked_at_ = 0;  // the position of the last look
  size_t stuck_at_ = 0;   // the position of the last look that found nothing
  CoreDistance distance_ = start_core_distance();
};

enum class Fetch : uint8_t { kToRead, kToWrite };

// Asks for the line that lies kFetchLines after the slot of `position`, once for each line, if the
// slots before `end` are this side's to use: no other thread is at work there. 8 bytes, 65,536
// slots, near cores: 940 -> 1,180 M/s, 64 bytes: 390 -> 460; 4 to 24 lines are alike. Not in a ring
// of few lines, where they are wanted back at once: 128 slots of 8 bytes, far cores, 64 -> 86 M/s.
inline constexpr size_t kFetchLines = 6;
inline constexpr size_t kLeastRingLines = 4 * kFetchLines;
template <Fetch kFetch, typename Slot>
void fetch_ahead(const Slot* slots, size_t mask, size_t position, size_t end) noexcept {
  constexpr size_t kSlotsALine = std::max<size_t>(kCacheLine / sizeof(Slot), 1);
  const size_t ahead = position + kFetchLines * kSlotsALine;
  if (position % kSlotsALine == 0 && mask >= kLeastRingLines * kSlotsALine &&
      static_cast<intptr_t>(end - ahead) > 0) {
    __builtin_prefetch(slots + (ahead & mask), kFetch == Fetch::kToWrite ? 1 : 0);
  }
}

}  // namespace lumen
