// RequestRecord: the record of one finished request, as it travels through the shared buffer from
// I/O threads to the writer of the CSV file.
// Threads: a value. Memory: 160 bytes, trivially copyable; it is a part of an entry of the flight
// recorder, which other processes read (docs/formats/counters.md), and so each offset is asserted.
// Errors: never.
#pragma once

#include <lumen/base/traceparent.h>
#include <lumen/telemetry/stages.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace lumen::telemetry {

// The response cache's part in a request; in the order of kCacheUseNames.
enum class CacheUse : uint8_t {
  kNone,    // its model has no cache, or the request wanted none
  kHit,     // answered from the cache
  kShared,  // answered by the run of another request like it
  kMiss,    // it ran, or was refused or late before
};
inline constexpr std::array<std::string_view, 4> kCacheUseNames = {"", "hit", "shared", "miss"};

// How a request came; in the order of kTransportNames.
enum class TransportKind : uint8_t {
  kHttp,   // HTTP/1.1
  kHttp2,  // REST over HTTP/2
  kGrpc,
  kBus,
};
inline constexpr std::array<std::string_view, 4> kTransportNames = {"http", "http2", "grpc", "bus"};

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
  uint16_t status = 0;  // of HTTP
  // One byte, positions in TraceLogOptions::queue_types: as configured, and how it really went (of
  // `auto`: inline, mpmc or batched).
  uint8_t queue_type : 4 = 0;
  uint8_t lane : 4 = 0;
  // One byte. `is_step`: of a step of an ensemble; the request has the same sequence.
  uint8_t allocator_type : 4 = 0;
  uint8_t is_step : 4 = 0;
  uint8_t id_bytes = 0;  // of the client's own id; 0: it gave none, or one that is too long
  std::array<char, kMaxIdBytes> id{};
  // One byte: the cache's in its lower half.
  CacheUse cache_use : 4 = CacheUse::kNone;
  TransportKind transport : 4 = TransportKind::kHttp;
  Traceparent traceparent{};
};

static_assert(std::is_trivially_copyable_v<RequestRecord> && sizeof(RequestRecord) == 160);
static_assert(offsetof(RequestRecord, received_wall_ns) == 8);
static_assert(offsetof(RequestRecord, stage_ns) == 16 && offsetof(RequestRecord, rows) == 80);
static_assert(offsetof(RequestRecord, model) == 84 && offsetof(RequestRecord, worker) == 86);
static_assert(offsetof(RequestRecord, status) == 88);
static_assert(offsetof(RequestRecord, id_bytes) == 92);
static_assert(offsetof(RequestRecord, id) == 93 && offsetof(RequestRecord, traceparent) == 134);

}  // namespace lumen::telemetry
