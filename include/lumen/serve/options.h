// ServerOptions: everything that `lumen serve` can be told, with its defaults and reasons.
// Threads: a value, read before the server starts. Memory: control plane.
// Says no: validate_options() names the option, what it got and what it wanted.
#pragma once

#include <lumen/base/limits.h>
#include <lumen/base/result.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace lumen::serve {

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
};

struct ServerOptions {
  std::string http_address = "127.0.0.1:8000";  // loopback: opening to the network is a decision
  std::filesystem::path model_repository = "models";
  uint32_t worker_count = 1;
  uint32_t io_thread_count = 1;
  size_t queue_capacity = limits::kDefaultQueueCapacity;
  size_t max_body_bytes = limits::kDefaultMaxBodyBytes;
  // Connections an I/O thread: each costs about 0.5 KiB until it has a request.
  size_t max_connections = 4096;
  // Requests that an I/O thread has open at once, each with a region of virtual memory; a
  // connection beyond that waits until one is free.
  size_t max_active_requests = 1024;
  // How long drain() waits for requests in flight before it closes their connections.
  uint64_t drain_timeout_ns = 30'000'000'000u;
  TimeoutOptions timeouts;
};

[[nodiscard]] Status validate_options(const ServerOptions& options);

}  // namespace lumen::serve
