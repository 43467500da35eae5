// Where each part of the counters' region begins. docs/formats/counters.md describes the parts.
// Threads, Memory: none. Errors: none.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/limits.h>
#include <lumen/memory/mapping.h>
#include <lumen/telemetry/counter_region.h>
#include <lumen/telemetry/counter_table.h>
#include <lumen/telemetry/counters.h>
#include <lumen/telemetry/stages.h>

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace lumen::telemetry {

constexpr size_t round_up(size_t n, size_t to = kFalseSharingRange) {
  return (n + to - 1) / to * to;
}

struct RegionLayout {
  static constexpr size_t kMaxTypes = 16;  // queue types, and allocator types

  // These do not depend on the server. Slots of a writer begin on a line of their own.
  static constexpr size_t kServerSlotBytes =
      round_up(std::size(kServerCounters) * sizeof(uint64_t));
  static constexpr size_t kModelSlotBytes = round_up(std::size(kModelCounters) * sizeof(uint64_t));
  static constexpr size_t kServerDescriptors = round_up(sizeof(RegionHead));
  static constexpr size_t kModelDescriptors =
      kServerDescriptors + std::size(kServerCounters) * sizeof(RegionDescriptor);
  static constexpr size_t kStageNames =
      kModelDescriptors + std::size(kModelCounters) * sizeof(RegionDescriptor);
  static constexpr size_t kQueueTypes = kStageNames + kStageCount * sizeof(RegionName);
  static constexpr size_t kAllocatorTypes = kQueueTypes + kMaxTypes * sizeof(RegionName);
  static constexpr size_t kModels = round_up(kAllocatorTypes + kMaxTypes * sizeof(RegionName));
  static constexpr size_t kWriters = round_up(kModels + limits::kMaxModels * sizeof(RegionModel));
  static constexpr size_t kServerSlots =
      round_up(kWriters + Counters::kMaxWriters * sizeof(RegionWriter));
  static constexpr size_t kRecent =
      round_up(kServerSlots + Counters::kMaxWriters * kServerSlotBytes);
  static constexpr size_t kRecentStride = round_up(kRecentBytes);
  static constexpr size_t kSlowStride = round_up(kSlowBytes);
  // Within a section.
  static constexpr size_t kHistograms = Counters::kMaxWriters * kModelSlotBytes;

  explicit constexpr RegionLayout(size_t shards) noexcept
      : slow(kRecent + shards * kRecentStride),
        sections(round_up(slow + shards * kSlowStride, kPageBytes)),
        section_bytes(round_up(kHistograms + shards * kStageCount * sizeof(Histogram), kPageBytes)),
        bytes(sections + limits::kMaxModels * section_bytes) {}

  size_t slow;
  size_t sections;  // whole pages, as a file's room is taken by pages
  size_t section_bytes;
  size_t bytes;
};

}  // namespace lumen::telemetry
