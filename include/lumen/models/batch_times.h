// BatchTimes: how often a model ran calls of each size, and the time that the parts of these took,
// for the statistics. The first kSizes sizes that a shard sees are counted by themselves, all later
// ones together: sizes are the clients' choice, and the memory is not.
// Threads: add() by any, without a lock; for_each() any. Memory: none allocated. Errors: none.
#pragma once

#include <lumen/base/cache_line.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lumen::models {

class BatchTimes {
 public:
  static constexpr size_t kSizes = 32;
  // The last one is shared by the writers of all further rows.
  static constexpr size_t kShards = 16;

  // Of one call, or of all calls of a size.
  struct Times {
    uint64_t rows = 0;  // the size; of all calls of other sizes 0
    uint64_t count = 0;
    uint64_t input_ns = 0;
    uint64_t infer_ns = 0;
    uint64_t output_ns = 0;
  };

  // `row`: of the CounterWriter of the calling thread, which has that row alone. Plain additions;
  // atomic ones in the last shard.
  void add(size_t row, const Times& call) noexcept {
    const bool is_alone = row < kShards - 1;
    Slot& slot = shards_[is_alone ? row : kShards - 1].find(call.rows);
    add_to(slot.count, call.count, is_alone);
    add_to(slot.input_ns, call.input_ns, is_alone);
    add_to(slot.infer_ns, call.infer_ns, is_alone);
    add_to(slot.output_ns, call.output_ns, is_alone);
  }

  // At most kSizes + 1 calls of `function`, by ascending size, those of other sizes last.
  template <typename Function>
  void for_each(Function&& function) const {
    std::array<Times, kSizes> sizes{};
    size_t used = 0;
    Times others;
    for (const Shard& shard : shards_) {
      for (const Slot& slot : shard.slots) {
        const Times times = slot.read();
        if (times.count == 0) continue;
        const auto end = sizes.begin() + static_cast<std::ptrdiff_t>(used);
        auto found = std::find_if(sizes.begin(), end,
                                  [&](const Times& one) { return one.rows == times.rows; });
        if (times.rows != 0 && found == end && used < kSizes) {
          sizes[used++].rows = times.rows;
          found = end;
        } else if (times.rows == 0 || found == end) {
          found = &others;
        }
        found->count += times.count;
        found->input_ns += times.input_ns;
        found->infer_ns += times.infer_ns;
        found->output_ns += times.output_ns;
      }
    }
    std::sort(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(used),
              [](const Times& a, const Times& b) { return a.rows < b.rows; });
    for (size_t i = 0; i < used; ++i) function(sizes[i]);
    if (others.count > 0) function(others);
  }

 private:
  using Sum = std::atomic<uint64_t>;
  static uint64_t now(const Sum& sum) noexcept {
    return sum.load(std::memory_order_relaxed);  // relaxed: a statistic, which orders nothing
  }
  static void add_to(Sum& sum, uint64_t value, bool is_alone) noexcept {
    if (is_alone) {
      sum.store(now(sum) + value, std::memory_order_relaxed);  // relaxed: as in now()
    } else {
      sum.fetch_add(value, std::memory_order_relaxed);  // relaxed: as in now()
    }
  }
  struct Slot {
    Sum rows{0};  // 0: free, or the one of all other sizes
    Sum count{0};
    Sum input_ns{0};
    Sum infer_ns{0};
    Sum output_ns{0};

    [[nodiscard]] Times read() const noexcept {
      return {now(rows), now(count), now(input_ns), now(infer_ns), now(output_ns)};
    }
  };
  struct alignas(kFalseSharingRange) Shard {
    std::array<Slot, kSizes + 1> slots;  // the last: all other sizes

    [[nodiscard]] Slot& find(uint64_t size) noexcept {
      for (size_t i = 0; i < kSizes; ++i) {
        // relaxed, both: a size is written once, and nothing else is published by it
        uint64_t rows = slots[i].rows.load(std::memory_order_relaxed);
        if (rows == 0 &&
            slots[i].rows.compare_exchange_strong(rows, size, std::memory_order_relaxed)) {
          return slots[i];
        }
        if (rows == size) return slots[i];
      }
      return slots[kSizes];
    }
  };

  std::array<Shard, kShards> shards_;
};

}  // namespace lumen::models
