// FrequencySketch: about how often a key was seen lately, from 0 to 15, without the keys.
// Threads: one at a time.
// Memory: in reserve() only: 8 bytes for each entry, rounded up to a power of two of entries.
// Errors: reserve() throws the resource's exception, and has then changed nothing.
//
// A count-min sketch of 4-bit counters (Cormode, Muthukrishnan 2005), aged as TinyLFU is (Einziger,
// Friedman, Manes: "TinyLFU: A Highly Efficient Cache Admission Policy", ACM TOS 2017). The four
// counters of a key lie in one block of a cache line, each in a row of 32 of its own: one miss of
// the CPU's cache a key instead of four, for a little more error.
//
//   block, 64 bytes:  | row 0: 2 words | row 1: 2 words | row 2: 2 words | row 3: 2 words |
//
// After 8 increments for each entry all counters are halved, so that keys popular long ago are
// forgotten. The halving goes a block at each increment: at once it would stop a put for
// milliseconds.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>

namespace lumen::cache {

class FrequencySketch {
 public:
  static constexpr uint32_t kLargestCount = 15;

  explicit FrequencySketch(std::pmr::memory_resource* memory) noexcept : memory_(memory) {}
  FrequencySketch(const FrequencySketch&) = delete;
  FrequencySketch& operator=(const FrequencySketch&) = delete;
  ~FrequencySketch() {
    if (table_ != nullptr) memory_->deallocate(table_, bytes(), alignof(Block));
  }

  // For a cache of so many entries. The counts stay.
  void reserve(size_t entries) {
    if (entries <= entries_) return;
    const size_t wanted = std::bit_ceil((entries + kEntriesPerBlock - 1) / kEntriesPerBlock);
    if (wanted > blocks_) grow(wanted);
    entries_ = entries;
  }

  // The increments of a period, at whose end all counters are halved.
  [[nodiscard]] uint64_t period() const noexcept { return uint64_t{8} * entries_; }

  void increment(uint32_t hash) noexcept {
    if (blocks_ == 0) return;
    Block& block = block_of(hash);
    const uint32_t choice = choice_of(hash);
    bool is_counted = false;
    for (unsigned row = 0; row < kRows; ++row) {
      const Counter counter = counter_of(choice, row);
      uint64_t& word = block.words[counter.word];
      if (((word >> counter.shift) & kLargestCount) == kLargestCount) continue;
      word += uint64_t{1} << counter.shift;
      is_counted = true;
    }
    if (is_counted) ++increments_;
    if (aged_blocks_ < blocks_) {
      age_next_block();
    } else if (increments_ >= period()) {
      aged_blocks_ = 0;
      increments_ /= 2;
    }
  }

  [[nodiscard]] uint32_t estimate(uint32_t hash) const noexcept {
    if (blocks_ == 0) return 0;
    const Block& block = block_of(hash);
    const uint32_t choice = choice_of(hash);
    uint64_t least = kLargestCount;
    for (unsigned row = 0; row < kRows; ++row) {
      const Counter counter = counter_of(choice, row);
      least = std::min(least, (block.words[counter.word] >> counter.shift) & kLargestCount);
    }
    return static_cast<uint32_t>(least);
  }

  [[nodiscard]] size_t bytes() const noexcept { return blocks_ * sizeof(Block); }

 private:
  static constexpr unsigned kRows = 4;
  static constexpr size_t kEntriesPerBlock = 8;
  struct alignas(64) Block {
    uint64_t words[8] = {};
  };
  static_assert(sizeof(Block) == 64);
  struct Counter {
    unsigned word;
    unsigned shift;
  };

  [[nodiscard]] Block& block_of(uint32_t hash) const noexcept {
    return table_[hash & (blocks_ - 1)];
  }
  // A byte a row, of which 5 bits count; from the upper half of a product, which all bits of the
  // hash decide, so that keys of one block differ.
  static uint32_t choice_of(uint32_t hash) noexcept {
    constexpr uint64_t kOdd = 0xD6E8FEB86659FD93;
    const uint64_t product = (hash ^ (uint64_t{hash} << 32)) * kOdd;
    return static_cast<uint32_t>(product >> 32);
  }
  static Counter counter_of(uint32_t choice, unsigned row) noexcept {
    const uint32_t bits = choice >> (8 * row);
    return {.word = 2 * row + (bits & 1), .shift = ((bits >> 1) & 15) * 4};
  }

  void age_next_block() noexcept {
    unsigned odd = 0;
    for (uint64_t& word : table_[aged_blocks_].words) {
      odd += static_cast<unsigned>(std::popcount(word & 0x1111'1111'1111'1111));
      word = (word >> 1) & 0x7777'7777'7777'7777;
    }
    // The halves that were rounded off, four counters an increment.
    increments_ -= std::min<uint64_t>(increments_, odd / (2 * kRows));
    ++aged_blocks_;
  }

  // A block number is the lower bits of a hash, so each old block becomes several equal ones, and
  // every key keeps its counts.
  void grow(size_t blocks) {
    auto* table = static_cast<Block*>(memory_->allocate(blocks * sizeof(Block), alignof(Block)));
    std::uninitialized_default_construct_n(table, blocks);
    while (aged_blocks_ < blocks_) age_next_block();
    for (size_t i = 0; blocks_ != 0 && i < blocks; ++i) table[i] = table_[i & (blocks_ - 1)];
    if (table_ != nullptr) memory_->deallocate(table_, bytes(), alignof(Block));
    table_ = table;
    blocks_ = blocks;
    aged_blocks_ = blocks;
  }

  std::pmr::memory_resource* memory_;
  Block* table_ = nullptr;
  size_t blocks_ = 0;
  size_t entries_ = 0;
  size_t aged_blocks_ = 0;  // equal to blocks_: no halving is under way
  uint64_t increments_ = 0;
};

}  // namespace lumen::cache
