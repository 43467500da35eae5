// The bounds of ServerOptions, value by value, and what must hold between values. Control plane; no
// memory. Says no by a Status that begins with the key.
#include "serve/settings_check.h"

#include <lumen/net/socket.h>

#include <algorithm>
#include <string>

namespace lumen::serve {
namespace {

constexpr uint64_t kNsPerMs = 1'000'000;
constexpr uint64_t kMaxTimeoutMs = limits::kMaxTimeoutUs / 1000;
// A rotation a request or two would be renames and nothing else.
constexpr uint64_t kMinCsvBytes = 64 * 1024;

Status within(const char* key, uint64_t got, uint64_t low, uint64_t high) {
  if (got >= low && got <= high) return {};
  return Status::error(Code::kInvalidArgument, "%s: got %llu, wanted %llu to %llu", key,
                       static_cast<unsigned long long>(got), static_cast<unsigned long long>(low),
                       static_cast<unsigned long long>(high));
}

Status check_timeouts(const ServerOptions& options) noexcept {
  const auto within_ms = [](const char* key, uint64_t ns, uint64_t low_ms) {
    return within(key, ns / kNsPerMs, low_ms, kMaxTimeoutMs);
  };
  LUMEN_RETURN_IF_ERROR(within_ms("head_timeout_ms", options.timeouts.head_ns, 1));
  LUMEN_RETURN_IF_ERROR(within_ms("write_timeout_ms", options.timeouts.write_stall_ns, 1));
  LUMEN_RETURN_IF_ERROR(within_ms("idle_timeout_ms", options.timeouts.idle_ns, 1));
  return within_ms("drain_timeout_ms", options.drain_timeout_ns, 0);
}

}  // namespace

Status check_bounds(const ServerOptions& options) noexcept {
  LUMEN_RETURN_IF_ERROR(options.engine.check());
  LUMEN_RETURN_IF_ERROR(within("telemetry_csv_max_bytes", options.telemetry_csv_max_bytes,
                               kMinCsvBytes, uint64_t{1} << 40));
  LUMEN_RETURN_IF_ERROR(within("telemetry_csv_keep", options.telemetry_csv_keep, 0, 1000));
  LUMEN_RETURN_IF_ERROR(within("io_threads", options.io_thread_count, 1, limits::kMaxIoThreads));
  if (options.overload_status != 429 && options.overload_status != 503) {
    return Status::error(Code::kInvalidArgument, "overload_status: got %u, wanted 429 or 503",
                         options.overload_status);
  }
  LUMEN_RETURN_IF_ERROR(within("max_body_bytes", options.max_body_bytes, 1024, uint64_t{16} << 30));
  LUMEN_RETURN_IF_ERROR(within("max_connections", options.max_connections, 1, 1u << 20));
  LUMEN_RETURN_IF_ERROR(
      within("max_active_requests", options.max_active_requests, 0, kMaxActiveRequests));
  LUMEN_RETURN_IF_ERROR(
      within("region_prefault_bytes", options.regions.prefault_bytes, 0, size_t{16} << 30));
  return check_timeouts(options);
}

size_t enough_active_requests(const engine::EngineConfig& config) noexcept {
  const size_t held = engine::most_requests_held(config);
  return std::min(held + held / 4, kMaxActiveRequests);
}

std::string overload_note(const ServerOptions& options, const engine::EngineConfig& config) {
  const size_t active = options.max_active_requests != 0 ? options.max_active_requests
                                                         : enough_active_requests(options.engine);
  const size_t held = engine::most_requests_held(config);
  if (active > held) return {};
  return "max_active_requests " + std::to_string(active) +
         ": the queue and the workers hold up to " + std::to_string(held) +
         ", so the queue can't fill; clients that are too many wait unread and are not answered " +
         std::to_string(options.overload_status) +
         " (wanted: more than that, or a smaller "
         "queue_capacity)";
}

Status validate_options(const ServerOptions& options) {
  LUMEN_RETURN_IF_ERROR(check_bounds(options));
  if (options.http_address != kOff) return {};
  if (options.unix_path == kOff) {
    return Status::error(Code::kInvalidArgument,
                         "http and unix are both off: nothing would listen; wanted one of them");
  }
  if (options.unix_path.empty() && net::default_unix_path().empty()) {
    return Status::error(Code::kInvalidArgument,
                         "http is off and unix has no path, as $XDG_RUNTIME_DIR is not set: "
                         "nothing would listen; wanted --unix PATH");
  }
  return {};
}

}  // namespace lumen::serve
