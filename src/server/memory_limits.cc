// How many requests a server has in memory, and how much of it they need at least. Any thread; control plane.
#include <lumen/server/options.h>
#include <lumen/transports/http/memory_limits.h>

#include <algorithm>

namespace lumen::server {
namespace {

size_t active_requests(const ServerOptions& options, const engine::EngineConfig& config) noexcept {
  return options.max_active_requests != 0 ? options.max_active_requests
                                          : enough_active_requests(config);
}

}  // namespace

size_t enough_active_requests(const engine::EngineConfig& config) noexcept {
  const size_t held = engine::most_requests_held(config);
  return std::min(held + held / 4, kMaxActiveRequests);
}

size_t least_memory_bytes(const ServerOptions& options) noexcept {
  const RegionOptions& regions = options.regions;
  const size_t base =
      RequestMemory::in_pages(std::max(http::kContextBytes, regions.prefault_bytes), regions);
  const size_t contexts = active_requests(options, options.engine) + http::kHeadContexts;
  return options.io_thread_count *
         (contexts * base + http::most_request_bytes(options.max_body_bytes));
}

std::string overload_note(const ServerOptions& options, const engine::EngineConfig& config) {
  // As at start: a live change of `config` does not change how many are in memory.
  const size_t active = active_requests(options, options.engine);
  const size_t held = engine::most_requests_held(config);
  if (active > held) return {};
  return "max_active_requests " + std::to_string(active) +
         ": the queue and the workers hold up to " + std::to_string(held) +
         " requests, so the queue can't fill; a request too many waits unread for seconds before "
         "it is "
         "answered " +
         std::to_string(options.overload_status) +
         " (wanted: a larger max_active_requests, or a smaller queue_capacity)";
}

}  // namespace lumen::server
