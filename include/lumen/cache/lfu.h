// Lfu: W-TinyLFU. A newcomer stays only if it was seen more often than the entry that would go for
// it.
// Threads, Memory, Errors: as eviction.h says.
// 24 to 32 bytes an entry: a record of 16, and 8 of the sketch, whose size is a power of two.
//
// After Einziger, Friedman, Manes: "TinyLFU: A Highly Efficient Cache Admission Policy" (ACM TOS
// 2017), with the adaptive window of window_climber.h.
//
//   new key ──> window (1 %, LRU) ── its oldest, the candidate ──> probation ── used ──> protected
//                                                                   │    ^               (80 % of
//                           the rarer one of it and the candidate <─┘    └── its oldest ── the rest)
//
// The frequencies are those of frequency_sketch.h. A candidate that is as frequent as the victim
// goes, and so does one that was seen less than three times: in a sketch of this size the counts of
// others make a new key look like a second visit, and a loop over more keys than fit would then
// evict all. Both together let a scan evict nothing but itself. An attacker that knows the hash of
// a victim could keep it in for ever by making its counters high; so of 128 warm candidates that
// lose, one is admitted.
#pragma once

#include <lumen/cache/detail/frequency_sketch.h>
#include <lumen/cache/detail/record_list.h>
#include <lumen/cache/detail/window_climber.h>

namespace lumen::cache {

class Lfu {
 public:
  static constexpr bool kKeepsRecords = true;
  static constexpr bool kConcurrentHits = false;

  Lfu(std::pmr::memory_resource* memory, uint64_t capacity_weight,
      size_t /*capacity_entries_hint*/) noexcept
      : records_(memory),
        sketch_(memory),
        climber_(capacity_weight),
        capacity_(capacity_weight),
        window_target_(std::max<uint64_t>(capacity_weight / 100, 1)),
        protected_target_((capacity_weight - std::min(capacity_weight, window_target_)) / 5 * 4) {}

  void reserve(Handle h) {
    sketch_.reserve(size_t{h} + 1);
    records_.reserve(h);
  }

  void inserted(Handle h, uint64_t hash, uint64_t weight) noexcept {
    QueuedRecord& record = records_[h];
    record.hash = fold_hash(hash);
    record.set_weight(weight);
    // As random as the cache's hash, which is seeded.
    random_ = random_ * 6364136223846793005 + record.hash;
    sketch_.increment(record.hash);
    climber_.count_miss();
    window_.add_newest(records_, h);
    drain_window();
    adapt();
  }

  void reweighed(Handle h, uint64_t weight) noexcept {
    if (records_[h].queue == kWindow) window_.reweigh(records_, h, weight);
    if (records_[h].queue == kProbation) probation_.reweigh(records_, h, weight);
    if (records_[h].queue == kProtected) protected_.reweigh(records_, h, weight);
    used(h);
    drain_window();
  }

  void used(Handle h) noexcept {
    const QueuedRecord& record = records_[h];
    if (record.queue == QueuedRecord::kNoQueue) return;
    sketch_.increment(record.hash);
    climber_.count_hit();
    if (record.queue == kWindow) {
      window_.make_newest(records_, h);
    } else if (record.queue == kProtected) {
      protected_.make_newest(records_, h);
    } else if (record.weight <= protected_target_) {
      unlink(h);
      protected_.add_newest(records_, h);
      demote();
    } else {
      probation_.make_newest(records_, h);
    }
    adapt();
  }

  void erased(Handle h) noexcept { unlink(h); }

  [[nodiscard]] Handle victim() noexcept {
    is_full_ = true;
    const Handle candidate = candidate_ != kNoHandle ? candidate_ : window_.oldest();
    const Handle victim = !probation_.is_empty() ? probation_.oldest() : protected_.oldest();
    if (victim == kNoHandle || candidate == kNoHandle) {
      return victim == kNoHandle ? candidate : victim;
    }
    return admits(candidate, victim) ? victim : candidate;
  }

  [[nodiscard]] size_t bytes() const noexcept { return records_.bytes() + sketch_.bytes(); }
  [[nodiscard]] uint64_t window_target() const noexcept { return window_target_; }

 private:
  static constexpr uint32_t kWindow = 1;
  static constexpr uint32_t kProbation = 2;
  static constexpr uint32_t kProtected = 3;
  // Bounds the work that a change of the window adds to a call.
  static constexpr unsigned kMovesACall = 8;
  static constexpr uint32_t kSeenFrom = 3;
  static constexpr uint32_t kWarmFrom = 6;
  static constexpr unsigned kOneOf = 128;

  [[nodiscard]] bool admits(Handle candidate, Handle victim) noexcept {
    if (candidate == victim) return false;
    if (records_[candidate].weight > capacity_) return false;
    const uint32_t frequency = sketch_.estimate(records_[candidate].hash);
    if (frequency < kSeenFrom) return false;
    if (frequency > sketch_.estimate(records_[victim].hash)) return true;
    if (frequency < kWarmFrom) return false;
    random_ = random_ * 6364136223846793005 + 1442695040888963407;
    return (random_ >> 32) % kOneOf == 0;
  }

  // An entry that leaves the window is next to the newest of probation; the first to leave is the
  // candidate, and when it has gone the one that left after it.
  void drain_window() noexcept {
    candidate_ = kNoHandle;
    while (window_.weight() > window_target_ && !window_.is_empty()) {
      const Handle h = window_.oldest();
      window_.remove(records_, h);
      probation_.add_newest(records_, h);
      if (candidate_ == kNoHandle) candidate_ = h;
    }
  }

  void demote() noexcept {
    while (protected_.weight() > protected_target_) {
      const Handle h = protected_.oldest();
      protected_.remove(records_, h);
      probation_.add_newest(records_, h);
    }
  }

  void unlink(Handle h) noexcept {
    const QueuedRecord& record = records_[h];
    if (candidate_ == h) candidate_ = record.newer;
    if (record.queue == kWindow) {
      window_.remove(records_, h);
    } else if (record.queue == kProbation) {
      probation_.remove(records_, h);
    } else if (record.queue == kProtected) {
      protected_.remove(records_, h);
    }
  }

  // At the end of a period the climber says how far the window's part shifts; the entries then
  // follow a few at a time, each with its weight of the targets, so that all queues stay full.
  void adapt() noexcept {
    if (climber_.is_due(sketch_.period())) {
      if (is_full_) {
        to_shift_ = climber_.next_step(window_target_ > 1, protected_target_ > 0);
      } else {
        climber_.forget_period();
      }
    }
    if (to_shift_ > 0) {
      grow_window();
    } else if (to_shift_ < 0) {
      shrink_window();
    }
  }

  void grow_window() noexcept {
    for (unsigned move = 0; move < kMovesACall; ++move) {
      const bool from_probation = !probation_.is_empty();
      const Handle h = from_probation ? probation_.oldest() : protected_.oldest();
      const uint32_t weight = h == kNoHandle ? 0 : records_[h].weight;
      if (h == kNoHandle || weight > protected_target_ ||
          static_cast<int64_t>(weight) > to_shift_) {
        to_shift_ = 0;
        return;
      }
      unlink(h);
      window_.add_newest(records_, h);
      window_target_ += weight;
      protected_target_ -= weight;
      to_shift_ -= weight;
      demote();
    }
  }

  void shrink_window() noexcept {
    for (unsigned move = 0; move < kMovesACall; ++move) {
      const Handle h = window_.oldest();
      const uint32_t weight = h == kNoHandle ? 0 : records_[h].weight;
      if (h == kNoHandle || weight >= window_target_ || static_cast<int64_t>(weight) > -to_shift_) {
        to_shift_ = 0;
        return;
      }
      window_.remove(records_, h);
      probation_.add_newest(records_, h);
      window_target_ -= weight;
      protected_target_ += weight;
      to_shift_ += weight;
    }
  }

  RecordArray<QueuedRecord> records_;
  FrequencySketch sketch_;
  WindowClimber climber_;
  WeighedQueue<kWindow> window_;
  WeighedQueue<kProbation> probation_;
  WeighedQueue<kProtected> protected_;
  uint64_t capacity_;
  uint64_t window_target_;
  uint64_t protected_target_;
  uint64_t random_ = 0x9E3779B97F4A7C15;
  int64_t to_shift_ = 0;
  Handle candidate_ = kNoHandle;
  bool is_full_ = false;  // the first victim was asked for; before that nothing is to be learnt
};
static_assert(EvictionPolicy<Lfu>);

}  // namespace lumen::cache
