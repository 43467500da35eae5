// RequestRecord: what is kept of one finished request, as it travels through the shared buffer from
// I/O threads to the writer of the CSV file.
// Threads: a value. Memory: 136 bytes, trivially copyable. Errors: never.
#pragma once

#include <lumen/telemetry/stages.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace lumen::telemetry {

// What the response cache did for a request; in the order of kCacheUseNames.
enum class CacheUse : uint8_t {
  kNone,    // its model has no cache, or the request wanted none
  kHit,     // answered from the cache
  kShared,  // answered by the run of another request like it
  kMiss,    // it ran, or was refused or late before
};
inline constexpr std::array<std::string_view, 4> kCacheUseNames = {"", "hit", "shared", "miss"};

struct RequestRecord {
  static constexpr uint64_t kAbsent = UINT64_MAX;  // the stage did not happen
  static constexpr uint16_t kNone = UINT16_MAX;    // no model, no worker: refused before that
  static constexpr size_t kMaxIdBytes = 40;

  uint64_t sequence = 0;         // unique in this process
  int64_t received_wall_ns = 0;  // since the epoch
  std::array<uint64_t, kStageCount> stage_ns{kAbsent, kAbsent, kAbsent, kAbsent,
                                             kAbsent, kAbsent, kAbsent, kAbsent};
  uint32_t rows = 0;   // of this request
  uint16_t model = 0;  // engine::Model::index()
  uint16_t worker = 0;
  uint16_t status = 0;     // of HTTP
  uint8_t queue_type = 0;  // position in TraceLogOptions::queue_types
  uint8_t allocator_type = 0;
  uint8_t id_bytes = 0;  // of the client's own id; 0: it gave none, or one that is too long
  std::array<char, kMaxIdBytes> id{};
  CacheUse cache_use = CacheUse::kNone;
};

static_assert(std::is_trivially_copyable_v<RequestRecord> && sizeof(RequestRecord) == 136);

}  // namespace lumen::telemetry
