// ServerOptions: all settings of `lumen serve`, with their defaults and reasons.
// Threads: a value, read before the server starts. Memory: control plane.
// Errors: validate_options() names the option, the value got and the values wanted.
#pragma once

#include <lumen/base/cpu_pinning.h>
#include <lumen/base/limits.h>
#include <lumen/base/result.h>
#include <lumen/engine/engine_config.h>
#include <lumen/memory/request_memory.h>
#include <lumen/models/backend_choice.h>
#include <lumen/net/loop.h>
#include <lumen/net/socket.h>
#include <lumen/transports/http/options.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::service {
class Step;
}

namespace lumen::server {

enum class LogLevel : uint8_t { kTrace, kDebug, kInfo, kWarn, kError, kOff };
inline constexpr std::array<std::string_view, 6> kLogLevelNames = {"trace", "debug", "info",
                                                                   "warn",  "error", "off"};
enum class LogFormat : uint8_t {
  kText,
  kJson,  // one object a line
};
inline constexpr std::array<std::string_view, 2> kLogFormatNames = {"text", "json"};

enum class SpinMode : uint8_t {
  kAuto,  // while it gains more than it costs
  kOff,
};
inline constexpr std::array<std::string_view, 2> kSpinModeNames = {"auto", "off"};

[[nodiscard]] constexpr std::string_view name_of(LogLevel level) noexcept {
  return kLogLevelNames[static_cast<size_t>(level)];
}
[[nodiscard]] constexpr std::string_view name_of(LogFormat format) noexcept {
  return kLogFormatNames[static_cast<size_t>(format)];
}

using http::TimeoutOptions;

enum class ModelControl : uint8_t {
  kNone,      // those that are there at start
  kExplicit,  // by calls of clients
  kPoll,      // by those calls, and as the folders of the repository change
};
inline constexpr std::array<std::string_view, 3> kModelControlNames = {"none", "explicit", "poll"};

enum class ReadyWhen : uint8_t {
  kServing,  // whichever of its models can serve
  kAll,      // while all versions that are to be served can be
};
inline constexpr std::array<std::string_view, 2> kReadyWhenNames = {"serving", "all"};

struct ServerOptions {
  // "HOST:PORT", or "off". Loopback: opening to the network is a decision.
  std::string http_address = "127.0.0.1:8000";
  // The same, for clients that want gRPC on a port of its own. Both ports speak HTTP and gRPC.
  std::string grpc_address = "off";
  // A path, or "off". Empty: $XDG_RUNTIME_DIR/lumen.sock, or none where that is not set or taken.
  std::string unix_path;
  // A path where clients connect to the bus; empty: none.
  std::string bus_path;
  // Memory of each for tensors, taken from the machine when it connects.
  size_t bus_area_bytes = size_t{16} << 20;
  // Names and addresses beside this machine's own that a browser's request may have in its Host,
  // separated by commas; "*": all.
  std::string allowed_hosts;
  // Origins of the pages in a browser that may send requests and read the replies, separated by
  // commas; "*": all; empty: none.
  std::string cors_origins;
  std::filesystem::path model_repository = "models";
  // Symbolic links that lead out of the repository are followed.
  bool follow_links = false;
  // For the models whose config.json names no backend; "auto": the faster of those that can serve
  // it.
  std::string backend{models::kAutoBackend};
  // A list in JSON, as models::parse_execution_providers() takes it: the ways to devices that the
  // server has beside cuda and tensorrt, and how those two are set. (The program that starts the
  // server makes a backend of each.)
  std::string execution_providers{"[]"};
  // Whether model.py is served: "off", "on" (by the Python that `lumen` commands use) or an
  // interpreter. Off, since it is a program. (The program that starts the server makes the
  // backend.)
  std::string python{"off"};
  uint64_t backend_trial_ns = 1'000'000'000u;  // of measuring, for one model
  // Where those choices are kept, or "off". Empty: $XDG_CACHE_HOME/lumen/backends.json.
  std::string backend_choices;
  // The folder of models as compiled, or "off". Empty: $XDG_CACHE_HOME/lumen/compiled.
  std::string compiled_models;
  engine::EngineConfig engine{.queue_type = models::QueueType::kAuto};
  // The threads that run models.
  PinThreads pin_threads;
  SpinMode spin = SpinMode::kAuto;
  uint32_t io_thread_count = 1;
  net::LoopKind loop = net::LoopKind::kAuto;
  // One line a request is appended here; empty: none.
  std::filesystem::path telemetry_csv_path;
  // A longer file is renamed to PATH.1 (and that to .2, up to the number kept) before it goes on.
  uint64_t telemetry_csv_max_bytes = uint64_t{256} << 20;
  uint32_t telemetry_csv_keep = 4;
  // Requests of traces go to this OpenTelemetry collector as spans; empty: none.
  std::string otlp_endpoint;
  std::string otlp_service_name{"lumen"};
  // Of requests without a traceparent each such one begins a trace; 0: none.
  uint32_t otlp_one_in = 0;
  // Where the counters lie for other processes to read; "auto": default_counters_path(); or "off".
  std::string stats_path{"auto"};
  // Whether clients of the unix socket may record rows that others send (lumen record).
  bool allows_recording = false;
  // Of one recording, reserved while it lasts. 500 rows of 224 x 224 RGB in floats take 301 MB.
  uint64_t recording_bytes = uint64_t{512} << 20;
  // Whether clients that connect to a loopback address may do over TCP as those of the unix socket:
  // load and unload models and change settings, and have shared memory.
  bool tcp_control = false;
  bool tcp_shm = false;
  // Of regions of system shared memory: how their keys begin (without the slash), and how many
  // bytes those of one user may have together, 0: as many as the machine has memory.
  std::string shm_key_prefix;
  uint64_t shm_user_bytes = 0;
  // Of the replies to inferences; by a thread of its own.
  http::ReplyCompression reply_compression = http::ReplyCompression::kAuto;
  // A file of keys that clients of TCP need, each with a role (transports::ApiKeys); empty: none
  // are needed. Its owner's alone to read.
  std::filesystem::path api_key_file;
  // TLS on the TCP addresses: a certificate with its chain, and its key, in PEM; empty: none.
  // SIGHUP reads them again. tls_client_ca: clients show a certificate that one of these signed.
  std::filesystem::path tls_cert;
  std::filesystem::path tls_key;
  std::filesystem::path tls_client_ca;
  // How models come and go while the server serves.
  ReadyWhen ready_when = ReadyWhen::kServing;
  ModelControl model_control = ModelControl::kExplicit;
  uint64_t poll_interval_ns = 1'000'000'000u;  // with kPoll
  // Whether load calls may bring the files of their model along.
  bool load_files = false;
  // 429, or 503 as Triton answers when the queue is full.
  uint32_t overload_status = 429;
  size_t max_body_bytes = limits::kDefaultMaxBodyBytes;
  // Connections an I/O thread: each costs about 0.5 KiB until it has a request.
  size_t max_connections = 4096;
  // Infer requests that an I/O thread has in memory at once, each with a region of addresses (144
  // MiB with the default body limit; 7 KiB of it touched until a request comes); one beyond that
  // waits for timeouts.room_ns with its body unread, then it is refused. 0:
  // enough_active_requests().
  size_t max_active_requests = 0;
  // The bound of all requests together: receive buffers, bodies, decoded tensors, outputs and
  // replies, and the pages that idle regions keep. Each I/O thread has an equal share. 0: half of
  // the machine's memory, or of the control group's limit.
  size_t max_memory_bytes = 0;
  // Of the regions that requests (and the workers' batches) live in.
  RegionOptions regions;
  // How long the server serves on after SIGTERM, no longer ready, before it drains. Load balancers
  // and Kubernetes' endpoints send requests until they have noticed.
  uint64_t drain_delay_ns = 500'000'000;
  // How long drain() waits for requests in flight before it closes their connections.
  uint64_t drain_timeout_ns = 30'000'000'000u;
  TimeoutOptions timeouts;
  // Set by any thread while start() loads models: it returns then, between two models, backends or
  // trial runs (C++ only). nullptr: never.
  const std::atomic<bool>* stop_loading = nullptr;
  // Where a model is loaded for the first time, so that a crash of its backend leaves the server
  // alone (C++ only). It outlives the server. nullptr: in the server itself.
  models::LoadTrials* load_trials = nullptr;
  // Sockets that listen already (C++ only). One of TCP takes the place of `http_address`, a second
  // that of `grpc_address`, a unix socket that of `unix_path`. The server listens on duplicates:
  // clients that come between two servers wait in the caller's.
  std::vector<net::ListeningSocket> listening_sockets;
  // Look at each call before the engine does, in this order (C++ only). They outlive the server.
  std::vector<service::Step*> steps;
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
};

// The value that switches a listener (or the CSV) off.
inline constexpr std::string_view kOff = "off";
// The value that leaves a path to the server.
inline constexpr std::string_view kAuto = "auto";

// Enough for the queue to fill, so that one request too many is refused and not left unread: as
// many as it and the workers hold, and a quarter of that for bodies that arrive and replies that
// leave. At most kMaxActiveRequests.
inline constexpr size_t kMaxActiveRequests = size_t{1} << 16;
[[nodiscard]] size_t enough_active_requests(const engine::EngineConfig& config) noexcept;
// The least that max_memory_bytes may be: of each I/O thread all receive buffers, the largest
// request, and a few streams of HTTP/2 that wait.
[[nodiscard]] size_t least_memory_bytes(const ServerOptions& options) noexcept;
// Of max_memory_bytes, the part that streams of HTTP/2 may take of each I/O thread while they wait
// for a request.
[[nodiscard]] size_t backlog_bytes(const ServerOptions& options) noexcept;
// Addresses that the regions of all requests reserve, touched or not.
[[nodiscard]] size_t address_bytes(const ServerOptions& options) noexcept;
// The same of a request of each transport, but for the bus.
[[nodiscard]] size_t address_bytes_of_a_request(const ServerOptions& options) noexcept;
// How many descriptors a server with `options` has open at most: `open_now`, those that it opens
// beside its connections, and these.
[[nodiscard]] uint64_t most_descriptors(const ServerOptions& options, uint64_t open_now) noexcept;
// Clients of the bus that are connected at once.
inline constexpr uint32_t kMaxBusConnections = 64;
// Why the queue of `config` can't fill in a server that was started with `options`, so that nobody
// is refused with overload_status; empty: it can.
[[nodiscard]] std::string overload_note(const ServerOptions& options,
                                        const engine::EngineConfig& config);

[[nodiscard]] Status validate_options(const ServerOptions& options);

}  // namespace lumen::server
