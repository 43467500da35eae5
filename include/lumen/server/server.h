// Server: joins the loop, the codecs and the engine. The only place that wires things together.
// Threads: start(), drain() and the destructor from one control thread; it makes the I/O threads
// and (through the engine) the workers.
// Memory: everything at start(); serving allocates nothing of its own.
// Errors: start() returns why; afterwards each request gets its own error reply.
#pragma once

#include <lumen/base/result.h>
#include <lumen/engine/engine.h>
#include <lumen/models/model_repository.h>
#include <lumen/server/options.h>
#include <lumen/telemetry/counters.h>
#include <lumen/telemetry/counters_file.h>
#include <lumen/telemetry/trace_log.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lumen::server {

// A running server's reports: a process changed its engine, the CSV file can't be written. From
// threads of the control plane, one text at a time for each.
using Report = std::function<void(LogLevel, std::string_view)>;

class Server {
 public:
  // `backends` is normally backends::built_in(); tests bring their own. kCancelled:
  // `options.stop_loading` was set.
  [[nodiscard]] static Result<std::unique_ptr<Server>> start(
      const ServerOptions& options, models::Backends backends,
      Report report = [](LogLevel, std::string_view) {});
  virtual ~Server() = default;  // drains

  // "127.0.0.1:8000", with the port that the kernel chose for port 0; empty when off.
  [[nodiscard]] virtual const std::string& http_address() const noexcept = 0;
  [[nodiscard]] virtual const std::string& grpc_address() const noexcept = 0;
  // Empty when off, or when the default path could not be had: then unix_note() says why.
  [[nodiscard]] virtual const std::string& unix_path() const noexcept = 0;
  [[nodiscard]] virtual const std::string& unix_note() const noexcept = 0;
  // Of the bus; empty when off.
  [[nodiscard]] virtual const std::string& bus_path() const noexcept = 0;
  // Of the counters file; empty where there is none.
  [[nodiscard]] virtual std::string_view counters_path() const noexcept = 0;
  // Where the threads that run models are pinned, in words.
  [[nodiscard]] virtual std::string pinning() const = 0;
  // As it is now. Any thread.
  [[nodiscard]] virtual engine::EngineConfig engine_config() const = 0;
  // How a usual request of a ready model goes now, and why.
  [[nodiscard]] virtual engine::Engine::UsualLane usual_lane_of(
      const models::Model& model) const = 0;
  // How many instances of it there are now, and the memory of one.
  [[nodiscard]] virtual engine::Engine::Instances instances_of(
      const models::Model& model) const = 0;
  // Swaps the engine's configuration while requests are served; none is lost. Any thread but an I/O
  // thread; blocks until the one before is done.
  [[nodiscard]] virtual Status reconfigure(const engine::EngineConfig& config) = 0;
  // Serves one more version of the repository (`version` empty: the highest), or lets one go once
  // its last request is answered, while others are served. Any thread but an I/O thread; both
  // block.
  [[nodiscard]] virtual Status add_model(std::string_view name, std::string_view version) = 0;
  [[nodiscard]] virtual Status remove_model(std::string_view name, std::string_view version) = 0;
  // As clients' load and unload calls do: service::Catalog::reload() and unload(). In the same way.
  [[nodiscard]] virtual Status load_model(std::string_view name) = 0;
  [[nodiscard]] virtual Status unload_model(std::string_view name) = 0;
  // Of the CSV file; nullopt: none is written.
  [[nodiscard]] virtual std::optional<telemetry::TraceLogCounters> trace_counters() const = 0;
  // Goes on in the CSV file that has the name now. Ok where there is none.
  [[nodiscard]] virtual Status reopen_trace_log() = 0;
  // Reads api_key_file again: its keys count from the next request on. The keys stay if it can't be
  // read. Ok where there is none. Any thread but an I/O thread.
  [[nodiscard]] virtual Status reload_api_keys() = 0;
  // Reads the files of TLS again, for connections that begin after it. If one can't be read, those
  // in use stay. Ok where there are none. Any thread but an I/O thread.
  [[nodiscard]] virtual Status reload_tls() = 0;
  // As found at start, less those that were removed; not while one is.
  [[nodiscard]] virtual const models::ModelRepository& models() const noexcept = 0;
  [[nodiscard]] virtual const telemetry::Counters& counters() const noexcept = 0;
  // /v2/health/ready says that the server is not ready; everything is served as before. For the
  // time until load balancers have noticed.
  virtual void begin_leaving() noexcept = 0;
  // Stops accepting, answers the requests in flight, joins all threads. Idempotent.
  virtual void drain() noexcept = 0;
};

}  // namespace lumen::server
