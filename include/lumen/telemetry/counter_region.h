// counter_region: how counters and histograms lie in memory, so that another process can map and read them.
// docs/formats/counters.md says the same byte by byte. Fixed width, offsets, no pointers; where things
// are is read from the head, so that a table may grow without a new version.
// Threads, Memory: types only. Errors: a reader refuses another magic or version.
#pragma once

#include <lumen/telemetry/histogram.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lumen::telemetry {

// `count` entries, `stride` bytes from one to the next.
struct RegionTable {
  uint64_t offset = 0;
  uint32_t stride = 0;
  uint32_t count = 0;
};

struct RegionHead {
  static constexpr uint64_t kMagic = 0x3153'4e54'4e43'4d4cu;  // "LMCNTNS1", little-endian
  static constexpr uint32_t kVersion = 1;

  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t stages = 0;  // histograms of a model
  uint64_t bytes = 0;   // of the whole region
  RegionTable server_descriptors{};
  RegionTable model_descriptors{};
  RegionTable stage_names{};
  RegionTable models{};
  RegionTable states{};
  RegionTable blocks{};
  // Within a block: the server's slots, and for each model its slots.
  RegionTable server_slots{};
  RegionTable model_slots{};
  // For each shard, each model, each stage.
  RegionTable histograms{};
  uint32_t histogram_sub_bits = Histogram::kSubBits;
  uint32_t histogram_value_bits = Histogram::kValueBits;
};

struct RegionDescriptor {
  uint32_t kind = 0;  // CounterKind
  uint32_t reserved = 0;
  char name[32] = {};  // all texts end in at least one 0
  char series[64] = {};
  char unit[16] = {};
  char help[136] = {};
};

struct RegionStageName {
  char name[16] = {};
};

// Which model an index is.
struct RegionModel {
  // 0: none, and its counts are being cleared. Otherwise a number that differs from all before it, so
  // that a reader who finds the same before and after it has read counts of this model alone.
  std::atomic<uint64_t> generation{0};
  char name[136] = {};
  char version[24] = {};
  char reserved[24] = {};
};

enum class BlockState : uint32_t {
  kUnused = 0,  // never written: all zero
  kTaken = 1,   // a thread counts in it
  kFree = 2,    // it holds what its writers so far have counted; the next one goes on from there
};

static_assert(sizeof(RegionTable) == 16 && std::is_standard_layout_v<RegionHead>);
static_assert(offsetof(RegionHead, version) == 8 && offsetof(RegionHead, stages) == 12);
static_assert(offsetof(RegionHead, bytes) == 16 && offsetof(RegionHead, server_descriptors) == 24);
static_assert(offsetof(RegionHead, stage_names) == 56 && offsetof(RegionHead, models) == 72);
static_assert(offsetof(RegionHead, states) == 88 && offsetof(RegionHead, blocks) == 104);
static_assert(offsetof(RegionHead, server_slots) == 120 &&
              offsetof(RegionHead, model_slots) == 136);
static_assert(offsetof(RegionHead, histograms) == 152 && sizeof(RegionHead) == 176);
static_assert(sizeof(RegionDescriptor) == 256 && offsetof(RegionDescriptor, help) == 120);
static_assert(sizeof(RegionModel) == 192 && offsetof(RegionModel, version) == 144);
static_assert(sizeof(std::atomic<uint64_t>) == 8 && std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<BlockState>) == 4 && std::atomic<BlockState>::is_always_lock_free);

}  // namespace lumen::telemetry
