// The options of an I/O thread's HTTP transport. Threads: a value, read before the server starts.
// Memory: none. Errors: none; the server's options have been checked.
#pragma once

#include <lumen/base/limits.h>
#include <lumen/memory/request_memory.h>
#include <lumen/transports/common/access.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lumen::http {

struct TimeoutOptions {
  // A whole request head must arrive within this time of its first byte (slowloris).
  uint64_t head_ns = 10'000'000'000u;
  // Body bytes must keep coming: each period brings at least body_min_bytes or the request ends.
  uint64_t body_period_ns = 5'000'000'000u;
  uint64_t body_min_bytes = 5 * 1024;
  // A reply must make progress within this time.
  uint64_t write_stall_ns = 30'000'000'000u;
  // A connection without a request; nginx's default.
  uint64_t idle_ns = 75'000'000'000u;
  // After an error the rest of a body is read and dropped, so that the client reads our answer
  // instead of a reset; no longer than this.
  uint64_t linger_ns = 5'000'000'000u;
  // A request that finds no memory waits for it, its body unread, no longer than this.
  uint64_t room_ns = 5'000'000'000u;
};

// Of the replies to inferences, for clients whose Accept-Encoding names gzip or deflate.
enum class ReplyCompression : uint8_t {
  kOff,
  kAuto,  // where the client names nothing else
  kOn,
};
inline constexpr std::array<std::string_view, 3> kReplyCompressionNames = {"off", "auto", "on"};

struct Options {
  uint32_t io_thread_count;
  uint32_t overload_status;  // where a request finds the queue full, or no memory
  size_t max_body_bytes;
  // Of one I/O thread.
  size_t max_connections;
  size_t max_active_requests;
  transports::AccessRules access;
  ReplyCompression reply_compression = ReplyCompression::kAuto;
  RegionOptions regions;
  TimeoutOptions timeouts;
};

}  // namespace lumen::http
