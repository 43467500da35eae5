// How many requests and descriptors a server has at once, and how much memory it needs at least.
// Any thread; control plane.
#include <lumen/server/options.h>
#include <lumen/transports/grpc/memory_limits.h>
#include <lumen/transports/http/memory_limits.h>

#include <algorithm>

namespace lumen::server {
namespace {

// The descriptors of an I/O thread beside its connections: epoll, eventfd, the loop's reserve, two
// listeners, and the connection that is accepted while the oldest is closed for it.
constexpr uint64_t kDescriptorsOfAnIoThread = 6;
// Files that are opened now and then: the CSV's next file, a model's files, /proc.
constexpr uint64_t kSpareDescriptors = 16;
// A client of the bus has two bells, a socket and a pidfd.
constexpr uint64_t kDescriptorsOfABusConnection = 4;

// Each I/O thread has as many requests of gRPC as contexts.
static_assert(grpc::kSpareRequests == http::kHeadContexts);

size_t active_requests(const ServerOptions& options, const engine::EngineConfig& config) noexcept {
  return options.max_active_requests != 0 ? options.max_active_requests
                                          : enough_active_requests(config);
}

}  // namespace

uint64_t most_descriptors(const ServerOptions& options, uint64_t open_now) noexcept {
  const uint64_t threads = options.io_thread_count;
  const uint64_t bus =
      options.bus_path.empty() ? 0 : kMaxBusConnections * kDescriptorsOfABusConnection;
  return open_now + kSpareDescriptors + bus +
         threads * (kDescriptorsOfAnIoThread + options.max_connections);
}

size_t enough_active_requests(const engine::EngineConfig& config) noexcept {
  const size_t held = engine::most_requests_held(config);
  return std::min(held + held / 4, kMaxActiveRequests);
}

size_t least_memory_bytes(const ServerOptions& options) noexcept {
  const RegionOptions& regions = options.regions;
  const size_t base =
      RequestMemory::in_pages(std::max(http::kContextBytes, regions.prefault_bytes), regions);
  const size_t contexts = active_requests(options, options.engine) + http::kHeadContexts;
  return options.io_thread_count * (contexts * (base + grpc::kRequestBaseBytes) +
                                    http::most_request_bytes(options.max_body_bytes) +
                                    grpc::kLeastBacklogs * grpc::kBacklogBytes);
}

size_t backlog_bytes(const ServerOptions& options) noexcept {
  const size_t more = options.max_memory_bytes - least_memory_bytes(options);
  return grpc::kLeastBacklogs * grpc::kBacklogBytes + more / options.io_thread_count / 8;
}

size_t address_bytes_of_a_request(const ServerOptions& options) noexcept {
  return http::most_request_bytes(options.max_body_bytes) +
         grpc::most_request_bytes(options.max_body_bytes);
}

size_t address_bytes(const ServerOptions& options) noexcept {
  const size_t contexts = active_requests(options, options.engine) + http::kHeadContexts;
  return options.io_thread_count * contexts * address_bytes_of_a_request(options);
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
