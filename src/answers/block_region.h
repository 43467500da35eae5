// BlockRegion: one mapping, given out in blocks of any size: two-level segregated lists of free
// blocks, with neighbours joined as they are freed (TLSF). Each call takes the same few steps,
// however full the region is.
//
//   block: units │ units of the one before │ next free │ previous free │ the caller's bytes ...
//
// Threads: one at a time. Memory: the mapping at create(), virtual until touched. Errors: nullopt
// where no block is large enough; create() says why there is no mapping.
#pragma once

#include <lumen/memory/mapping.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace lumen::answers {

class BlockRegion {
 public:
  static constexpr size_t kUnitBytes = 64;    // blocks begin on a line of their own
  static constexpr size_t kHeaderBytes = 16;  // of a block, before the caller's bytes
  // Header included.
  [[nodiscard]] static constexpr uint64_t units_for(uint64_t bytes) noexcept {
    return (bytes + kHeaderBytes + kUnitBytes - 1) / kUnitBytes;
  }

  [[nodiscard]] static Result<BlockRegion> create(size_t bytes);

  // Where the block begins, in units; its bytes are at data().
  [[nodiscard]] std::optional<uint32_t> allocate(uint32_t units) noexcept;
  void free(uint32_t block) noexcept;
  [[nodiscard]] std::byte* data(uint32_t block) noexcept {
    return memory_.data() + block * kUnitBytes + kHeaderBytes;
  }
  [[nodiscard]] uint32_t units() const noexcept { return units_; }
  [[nodiscard]] uint32_t free_units() const noexcept { return free_units_; }

 private:
  struct Block {
    uint32_t units;         // with kFree
    uint32_t units_before;  // of the block before it; 0: it is the first
    uint32_t next;          // of its list, while it is free
    uint32_t previous;
  };
  static_assert(sizeof(Block) == kHeaderBytes);
  static constexpr uint32_t kFree = uint32_t{1} << 31;
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kStepBits = 3;  // lists an octave, as a power of two
  static constexpr uint32_t kSteps = 1 << kStepBits;
  static constexpr uint32_t kOctaves = 32 - kStepBits;

  struct List {
    uint32_t octave;
    uint32_t step;
  };
  [[nodiscard]] static List list_of(uint32_t units) noexcept;
  explicit BlockRegion(Mapping memory) noexcept;
  [[nodiscard]] std::optional<uint32_t> find(uint32_t units) const noexcept;
  [[nodiscard]] Block& at(uint32_t block) noexcept;
  void add(uint32_t block, uint32_t units) noexcept;
  void remove(uint32_t block) noexcept;
  void tell_next(uint32_t block) noexcept;

  Mapping memory_;
  uint32_t units_ = 0;
  uint32_t free_units_ = 0;
  uint32_t octaves_ = 0;                   // a bit for each that has a list that is not empty
  std::array<uint8_t, kOctaves> steps_{};  // the same for the lists of an octave
  std::array<uint32_t, kOctaves * kSteps> first_{};
};

}  // namespace lumen::answers
