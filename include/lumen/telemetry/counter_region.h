// counter_region: how counters and histograms lie in memory, so that another process can map and
// read them. docs/formats/counters.md says the same byte by byte. Fixed width, offsets, no
// pointers; where things are is read from the head, so that a table may grow without a new version.
// Threads, Memory: types only. Errors: a reader refuses another magic or version.
#pragma once

#include <lumen/telemetry/histogram.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lumen::telemetry {

// The last requests of an I/O thread: at 100,000 requests a second 10 ms, at 1,000 a second.
inline constexpr uint32_t kRecentEntries = 1024;
// The slowest of them: of the server's life, and of the last minute in six pieces, so that one old
// outlier does not hide a slow request of now.
inline constexpr uint32_t kSlowWindows = 7;
inline constexpr uint64_t kSlowWindowNs = 10'000'000'000;
inline constexpr uint32_t kSlowEntries = 32;  // of one window: a screen
inline constexpr uint32_t kFlightEntryBytes = 192;
inline constexpr size_t kFlightHeadBytes = 64;  // in front of the entries of a ring or window
inline constexpr size_t kRecentBytes = kFlightHeadBytes + kRecentEntries * kFlightEntryBytes;
inline constexpr size_t kSlowBytes =
    kSlowWindows * (kFlightHeadBytes + kSlowEntries * kFlightEntryBytes);

// `count` entries, `stride` bytes from one to the next.
struct RegionTable {
  uint64_t offset = 0;
  uint32_t stride = 0;
  uint32_t count = 0;
};

struct RegionHead {
  static constexpr uint64_t kMagic = 0x3153'4e54'4e43'4d4cu;  // "LMCNTNS1", little-endian
  static constexpr uint32_t kVersion = 2;

  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t stages = 0;  // histograms of a model and shard
  uint64_t bytes = 0;   // of the whole region
  // Whose it is. The ticks tell whether the process of this id is still that one.
  uint32_t pid = 0;
  uint32_t shards = 0;  // I/O threads
  int64_t started_wall_ns = 0;
  uint64_t started_ns = 0;     // of CLOCK_MONOTONIC
  uint64_t started_ticks = 0;  // since boot: field 22 of /proc/PID/stat
  char lumen_version[24] = {};
  RegionTable server_descriptors{};
  RegionTable model_descriptors{};
  RegionTable stage_names{};
  RegionTable models{};
  RegionTable writers{};
  RegionTable server_slots{};  // for each writer
  RegionTable sections{};      // for each model
  // Within a section: the model's slots for each writer; histograms for each shard and stage.
  RegionTable section_slots{};
  RegionTable section_histograms{};
  uint32_t histogram_sub_bits = Histogram::kSubBits;
  uint32_t histogram_value_bits = Histogram::kValueBits;
  // The flight recorder: a ring and a set of windows for each shard.
  RegionTable recent{};
  RegionTable slow{};
  uint32_t recent_entries = kRecentEntries;
  uint32_t slow_windows = kSlowWindows;
  uint32_t slow_entries = kSlowEntries;
  uint32_t entry_bytes = kFlightEntryBytes;
  uint64_t slow_window_ns = kSlowWindowNs;
  RegionTable queue_types{};
  RegionTable allocator_types{};
};

struct RegionDescriptor {
  uint32_t kind = 0;  // CounterKind
  uint32_t reserved = 0;
  char name[32] = {};  // all texts end in at least one 0
  char series[64] = {};
  char unit[16] = {};
  char help[136] = {};
};

// Of a stage, a queue type or an allocator type.
struct RegionName {
  char name[16] = {};
};

// Which model an index is.
struct RegionModel {
  // 0: none, and its counts are being cleared. Otherwise a number that differs from all before it,
  // so that a reader that finds the same before and after it has read counts of this model alone.
  std::atomic<uint64_t> generation{0};
  char name[136] = {};
  char version[24] = {};
  // A number of the models' module, docs/formats/counters.md; 0: not known, until it is loaded.
  std::atomic<uint32_t> precision{0};
  char reserved0[4] = {};
  // Of a model that keeps states: its sequences now.
  std::atomic<uint64_t> live_sequences{0};
  char reserved1[8] = {};
};

enum class WriterState : uint32_t {
  kUnused = 0,  // never written: all zero
  kTaken = 1,   // a thread counts in it
  kFree = 2,    // it holds the counts of its threads so far; the next one goes on from there
};

enum class WriterRole : uint32_t {
  kMoment = 0,  // counts but for a moment: a backend's thread, the control plane
  kIoThread = 1,
  kWorker = 2,
};

// Whose slots they are.
struct RegionWriter {
  std::atomic<WriterState> state{WriterState::kUnused};
  std::atomic<WriterRole> role{WriterRole::kMoment};
  std::atomic<uint32_t> number{0};  // among those of its role
  std::atomic<uint32_t> tid{0};     // as /proc/PID/task has it; 0: not known
};

static_assert(sizeof(RegionTable) == 16 && std::is_standard_layout_v<RegionHead>);
static_assert(offsetof(RegionHead, version) == 8 && offsetof(RegionHead, stages) == 12);
static_assert(offsetof(RegionHead, bytes) == 16 && offsetof(RegionHead, pid) == 24);
static_assert(offsetof(RegionHead, shards) == 28 && offsetof(RegionHead, started_wall_ns) == 32);
static_assert(offsetof(RegionHead, started_ns) == 40 && offsetof(RegionHead, started_ticks) == 48);
static_assert(offsetof(RegionHead, lumen_version) == 56);
static_assert(offsetof(RegionHead, server_descriptors) == 80);
static_assert(offsetof(RegionHead, stage_names) == 112 && offsetof(RegionHead, models) == 128);
static_assert(offsetof(RegionHead, writers) == 144 && offsetof(RegionHead, server_slots) == 160);
static_assert(offsetof(RegionHead, sections) == 176 && offsetof(RegionHead, section_slots) == 192);
static_assert(offsetof(RegionHead, section_histograms) == 208);
static_assert(offsetof(RegionHead, histogram_sub_bits) == 224 &&
              offsetof(RegionHead, recent) == 232);
static_assert(offsetof(RegionHead, slow) == 248 && offsetof(RegionHead, recent_entries) == 264);
static_assert(offsetof(RegionHead, entry_bytes) == 276 &&
              offsetof(RegionHead, slow_window_ns) == 280);
static_assert(offsetof(RegionHead, queue_types) == 288 && sizeof(RegionHead) == 320);
static_assert(sizeof(RegionDescriptor) == 256 && offsetof(RegionDescriptor, help) == 120);
static_assert(sizeof(RegionModel) == 192 && offsetof(RegionModel, version) == 144 &&
              offsetof(RegionModel, precision) == 168 &&
              offsetof(RegionModel, live_sequences) == 176);
static_assert(sizeof(RegionWriter) == 16 && sizeof(RegionName) == 16);
static_assert(sizeof(std::atomic<uint64_t>) == 8 && std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace lumen::telemetry
