// See the header for threads, memory and errors.
#include "answers/block_region.h"

#include <lumen/base/check.h>

#include <bit>
#include <new>
#include <utility>

namespace lumen::answers {

Result<BlockRegion> BlockRegion::create(size_t bytes) {
  LUMEN_CHECK(bytes / kUnitBytes < kFree && bytes >= kUnitBytes);
  Result<Mapping> memory = Mapping::create(bytes);
  if (!memory.ok()) return memory.status();
  return BlockRegion(std::move(*memory));
}

BlockRegion::BlockRegion(Mapping memory) noexcept
    : memory_(std::move(memory)), units_(static_cast<uint32_t>(memory_.size() / kUnitBytes)) {
  first_.fill(kNone);
  at(0).units_before = 0;
  add(0, units_);
}

BlockRegion::Block& BlockRegion::at(uint32_t block) noexcept {
  return *std::launder(reinterpret_cast<Block*>(memory_.data() + block * kUnitBytes));
}

// Up to kSteps units have a list each; above, an octave has kSteps lists.
BlockRegion::List BlockRegion::list_of(uint32_t units) noexcept {
  const auto width = static_cast<uint32_t>(std::bit_width(units));
  if (width <= kStepBits) return {0, units};
  const uint32_t shift = width - kStepBits - 1;
  return {shift + 1, (units >> shift) & (kSteps - 1)};
}

std::optional<uint32_t> BlockRegion::find(uint32_t units) const noexcept {
  // Up to the next list's begin: all blocks of that list, and of those above, are large enough.
  const auto width = static_cast<uint32_t>(std::bit_width(units));
  const uint64_t wanted =
      width <= kStepBits + 1 ? units : units + (uint64_t{1} << (width - kStepBits - 1)) - 1;
  List list = list_of(static_cast<uint32_t>(wanted));
  uint32_t steps = steps_[list.octave] & (~uint32_t{0} << list.step);
  if (steps == 0) {
    const uint32_t octaves = octaves_ & (~uint32_t{0} << (list.octave + 1));
    if (octaves == 0) return std::nullopt;
    list.octave = static_cast<uint32_t>(std::countr_zero(octaves));
    steps = steps_[list.octave];
  }
  list.step = static_cast<uint32_t>(std::countr_zero(steps));
  return first_[list.octave * kSteps + list.step];
}

std::optional<uint32_t> BlockRegion::allocate(uint32_t units) noexcept {
  if (units > free_units_) return std::nullopt;
  std::optional<uint32_t> block = find(units);
  if (!block) {
    // One of the list that the size itself belongs to may be just large enough.
    const List list = list_of(units);
    const uint32_t first = first_[list.octave * kSteps + list.step];
    if (first == kNone || (at(first).units & ~kFree) < units) return std::nullopt;
    block = first;
  }
  const uint32_t has = at(*block).units & ~kFree;
  remove(*block);
  at(*block).units = units;
  if (has > units) {
    at(*block + units).units_before = units;
    add(*block + units, has - units);
  }
  return block;
}

void BlockRegion::free(uint32_t block) noexcept {
  uint32_t units = at(block).units;
  const uint32_t next = block + units;
  if (next < units_ && (at(next).units & kFree) != 0) {
    units += at(next).units & ~kFree;
    remove(next);
  }
  const uint32_t before = at(block).units_before;
  if (before != 0 && (at(block - before).units & kFree) != 0) {
    block -= before;
    units += before;
    remove(block);
  }
  add(block, units);
}

void BlockRegion::add(uint32_t block, uint32_t units) noexcept {
  const List list = list_of(units);
  uint32_t& first = first_[list.octave * kSteps + list.step];
  Block& head = at(block);
  head.units = units | kFree;
  head.next = first;
  head.previous = kNone;
  if (first != kNone) at(first).previous = block;
  first = block;
  steps_[list.octave] = static_cast<uint8_t>(steps_[list.octave] | 1u << list.step);
  octaves_ |= 1u << list.octave;
  free_units_ += units;
  tell_next(block);
}

void BlockRegion::remove(uint32_t block) noexcept {
  const Block& head = at(block);
  const uint32_t units = head.units & ~kFree;
  const List list = list_of(units);
  uint32_t& first = first_[list.octave * kSteps + list.step];
  (head.previous != kNone ? at(head.previous).next : first) = head.next;
  if (head.next != kNone) at(head.next).previous = head.previous;
  if (first == kNone) {
    steps_[list.octave] = static_cast<uint8_t>(steps_[list.octave] & ~(1u << list.step));
    if (steps_[list.octave] == 0) octaves_ &= ~(1u << list.octave);
  }
  free_units_ -= units;
}

void BlockRegion::tell_next(uint32_t block) noexcept {
  const uint32_t units = at(block).units & ~kFree;
  if (block + units < units_) at(block + units).units_before = units;
}

}  // namespace lumen::answers
