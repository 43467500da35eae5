// The table of settings, and how a value of each type is read and written. Control plane; the heap.
// Errors: a Status that goes behind the name of the setting: "got ..., wanted ...".
#include <lumen/server/settings.h>

#include <lumen/base/nearest_name.h>
#include <lumen/base/unix_socket.h>
#include <lumen/models/execution_provider.h>
#include <lumen/net/socket.h>
#include <lumen/otlp/endpoint.h>
#include <lumen/transports/http/cors.h>
#include <lumen/transports/http/host_check.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <type_traits>

namespace lumen::server {
namespace {

using E = engine::EngineConfig;
using S = ServerOptions;
using T = TimeoutOptions;
constexpr auto kLive = SettingChange::kLive;
constexpr auto kRestart = SettingChange::kRestart;

Status wanted(std::string_view value, const std::string& what) {
  return Status::error(Code::kInvalidArgument, "got '%.*s', wanted %s",
                       static_cast<int>(value.size()), value.data(), what.c_str());
}

Result<uint64_t> index_of_word(const Setting& setting, std::string_view value) {
  const auto words = setting.values.words;
  const auto found = std::ranges::find(words, value);
  if (found != words.end()) return static_cast<uint64_t>(found - words.begin());
  const std::string_view nearest = nearest_name(value, words);
  std::string what = "one of " + setting.values_text();
  if (!nearest.empty()) what.append("; the nearest is '").append(nearest).append("'");
  return wanted(value, what);
}

Result<uint64_t> number_of(const Setting& setting, std::string_view value) {
  const auto& [words, bounds, unit, form, check, none, is_list] = setting.values;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (!words.empty()) {
    LUMEN_RETURN_IF_ERROR(index_of_word(setting, value).status());
  } else if (error != std::errc{} || end != value.data() + value.size()) {
    return wanted(value, "a whole number, " + setting.values_text());
  } else {
    LUMEN_RETURN_IF_ERROR(bounds.check(number));
  }
  return number * unit;
}

// A member of the options, in whichever of their parts it lies.
template <typename M, typename Part>
constexpr auto& at(auto& options, M Part::* member) noexcept {
  if constexpr (std::is_same_v<Part, E>) {
    return options.engine.*member;
  } else if constexpr (std::is_same_v<Part, RegionOptions>) {
    return options.regions.*member;
  } else if constexpr (std::is_same_v<Part, T>) {
    return options.timeouts.*member;
  } else {
    return options.*member;
  }
}

// A type whose values are indices of the row's words.
template <typename M>
constexpr bool kIsWord = std::is_enum_v<M> || std::is_same_v<M, bool>;

template <auto kMember>
std::string read(const Setting& setting, const S& options) {
  const auto& value = at(options, kMember);
  using M = std::remove_cvref_t<decltype(value)>;
  const auto& [words, bounds, unit, form, check, none, is_list] = setting.values;
  if constexpr (kIsWord<M>) {
    return std::string(words[static_cast<size_t>(value)]);
  } else if constexpr (std::is_integral_v<M>) {
    const bool is_none = !none.empty() && value == static_cast<M>(-1);
    return is_none ? std::string(none) : std::to_string(static_cast<uint64_t>(value) / unit);
  } else if constexpr (std::is_same_v<M, PinThreads>) {
    return value.text();
  } else {
    return value.empty() ? std::string(none) : std::string(value);
  }
}

template <auto kMember>
Status write(const Setting& setting, S& options, std::string_view value) {
  auto& member = at(options, kMember);
  using M = std::remove_cvref_t<decltype(member)>;
  const bool is_none = !setting.values.none.empty() && value == setting.values.none;
  if constexpr (std::is_same_v<M, PinThreads>) {
    const Result<PinThreads> parsed = parse_pin_threads(value);
    if (parsed.ok()) member = *parsed;
    return parsed.status();
  } else if constexpr (kIsWord<M> || std::is_integral_v<M>) {
    const Result<uint64_t> number = is_none      ? Result<uint64_t>(uint64_t{0} - 1)
                                    : kIsWord<M> ? index_of_word(setting, value)
                                                 : number_of(setting, value);
    if (number.ok()) member = static_cast<M>(*number);
    return number.status();
  } else {
    if (setting.values.check != nullptr) {
      LUMEN_RETURN_IF_ERROR(setting.values.check(setting, value));
    }
    member = is_none ? std::string_view() : value;
    return {};
  }
}

// `name` is "section.key".
template <auto kMember>
constexpr Setting row(std::string_view name, SettingChange change, Setting::Values values,
                      std::string_view help) {
  using M = std::remove_cvref_t<decltype(at(std::declval<S&>(), kMember))>;
  const size_t point = name.find('.');
  const bool is_number = std::is_integral_v<M> && !kIsWord<M> && values.none.empty();
  return {name.substr(0, point), name.substr(point + 1), change, help, values, is_number,
          read<kMember>,         write<kMember>};
}

constexpr Setting::Values words(std::span<const std::string_view> words) {
  return {.words = words};
}
constexpr Setting::Values numbers(uint64_t low, uint64_t high) { return {.bounds = {low, high}}; }
constexpr Setting::Values milliseconds(uint64_t low) {
  return {.bounds = {low, limits::kMaxTimeoutUs / 1000}, .unit = 1'000'000};
}

Status check_http(const Setting&, std::string_view value) {
  return value == kOff ? Status() : net::parse_tcp_address(value).status();
}
Status check_unix(const Setting&, std::string_view value) {
  return value == kOff || value.empty() ? Status() : check_unix_path(value);
}
Status check_bus(const Setting&, std::string_view value) {
  return value == kOff ? Status() : check_unix_path(value);
}
Status check_hosts(const Setting& setting, std::string_view value) {
  return http::is_host_list(value) ? Status() : wanted(value, setting.values_text());
}
Status check_origins(const Setting& setting, std::string_view value) {
  return http::is_origin_list(value) ? Status() : wanted(value, setting.values_text());
}
Status check_providers(const Setting&, std::string_view value) {
  return models::parse_execution_providers(value).status();
}
Status check_otlp(const Setting&, std::string_view value) {
  return value == kOff ? Status() : otlp::check_endpoint(value);
}
Status check_not_empty(const Setting& setting, std::string_view value) {
  return value.empty() ? wanted(value, setting.values_text()) : Status();
}

constexpr std::array<std::string_view, 2> kOffOn = {"off", "on"};
constexpr std::array<std::string_view, 2> kOverloadStatuses = {"429", "503"};

// docs/configuration.md has the same texts; a test compares them.
constexpr Setting kSettings[] = {
    row<&E::queue_type>("engine.queue_type", kLive, words(models::kQueueTypeNames),
                        "how requests get from I/O threads to workers"),
    row<&E::allocator_type>(
        "engine.allocator_type", kLive, words(models::kAllocatorTypeNames),
        "where a request's memory comes from: a region that is reset at once, or the heap"),
    row<&E::thread_count>("engine.thread_count", kLive, {.bounds = E::kThreadCount},
                          "workers, each with its own instance of each model; 0: as many as CPUs "
                          "may be used; inline has none"),
    row<&E::batch_size>(
        "engine.batch_size", kLive, {.bounds = E::kBatchSize},
        "rows that batched and inline may pack into one inference; 1: they never pack"),
    row<&E::max_queue_delay_us>(
        "engine.max_queue_delay_us", kLive, {.bounds = E::kMaxQueueDelayUs},
        "how long batched may hold a request back so that others can join it; 0: not at all"),
    row<&E::queue_capacity>(
        "engine.queue_capacity", kLive, {.bounds = E::kQueueCapacity},
        "requests of one model (with spsc and naive: of all) that may wait for a worker; one more "
        "is refused at once with overload_status"),
    row<&E::policy>(
        "engine.policy", kLive, words(engine::kPolicyNames),
        "which request a free worker takes: fair shares the workers' time among models, "
        "deadline takes the earliest, fifo the oldest; spsc and naive are always fifo"),
    row<&E::default_timeout_us>(
        "engine.default_timeout_us", kLive, {.bounds = E::kTimeoutUs},
        "a request whose run has not begun this long after its first byte is answered 504 and "
        "never runs; its own parameter timeout wins; 0: none"),
    row<&E::latency_budget_us>("engine.latency_budget_us", kLive, {.bounds = E::kTimeoutUs},
                               "a request is refused at once if its reply is not expected this "
                               "soon after its first byte; 0: none"),
    row<&S::pin_threads>("engine.pin_threads", kRestart,
                         {.form = "auto, on, off, or CPUs as 0,2-3"},
                         "pins each thread that runs models to a CPU of its own"),
    row<&S::spin>("engine.spin", kRestart, words(kSpinModeNames),
                  "whether threads poll for work before they sleep; auto: while that pays"),
    row<&S::telemetry_csv_path>(
        "engine.telemetry_csv_path", kRestart, {.form = "a path", .none = kOff},
        "one line for each request is appended to this file; missing folders are made"),
    // With less, every few requests would rename the file.
    row<&S::telemetry_csv_max_bytes>(
        "engine.telemetry_csv_max_bytes", kRestart, numbers(64 * 1024, uint64_t{1} << 40),
        "a longer CSV file is renamed to PATH.1, that one to PATH.2, and so on"),
    row<&S::telemetry_csv_keep>("engine.telemetry_csv_keep", kRestart, numbers(0, 1000),
                                "how many renamed CSV files are kept"),
    row<&S::otlp_endpoint>(
        "engine.otlp_endpoint", kRestart, {.form = "a URL", .check = check_otlp, .none = kOff},
        "requests whose traceparent is sampled go to this OpenTelemetry collector as spans "
        "(OTLP/HTTP), as http://127.0.0.1:4318"),
    row<&S::otlp_service_name>("engine.otlp_service_name", kRestart,
                               {.form = "a name", .check = check_not_empty},
                               "the service.name of these spans"),
    row<&S::otlp_one_in>("engine.otlp_one_in", kRestart, numbers(0, 4'294'967'295),
                         "of requests that come without a traceparent one in so many begins a "
                         "trace; 0: none"),
    row<&S::stats_path>("engine.stats", kRestart,
                        {.form = "a path, auto or off", .check = check_not_empty},
                        "file with the counters, for lumen top and others; auto: "
                        "$XDG_RUNTIME_DIR/lumen-PID.counters, or /dev/shm/lumen-UID-PID.counters"),
    row<&S::http_address>(
        "server.http", kRestart, {.form = "HOST:PORT, or off", .check = check_http},
        "where to listen for TCP: an IPv4 address, [IPv6] or localhost; port 0 takes a free one"),
    row<&S::grpc_address>(
        "server.grpc", kRestart, {.form = "HOST:PORT, or off", .check = check_http},
        "a second address, for clients that want gRPC on a port of its own; both speak HTTP and "
        "gRPC"),
    row<&S::unix_path>("server.unix", kRestart, {.form = "a path, or off", .check = check_unix},
                       "where to listen as a unix socket; not set: $XDG_RUNTIME_DIR/lumen.sock"),
    row<&S::bus_path>("server.bus", kRestart, {.form = "a path", .check = check_bus, .none = kOff},
                      "where clients of this machine connect to the bus, over which requests and "
                      "replies need no copy and no system call"),
    row<&S::bus_area_bytes>("server.bus_area_bytes", kRestart, numbers(4096, uint64_t{1} << 30),
                            "shared memory for the tensors of each client of the bus"),
    row<&S::allowed_hosts>(
        "server.allowed_hosts", kRestart,
        {.form = "names and addresses without ports, separated by commas, or *",
         .check = check_hosts},
        "hosts that a browser's request may name beside the names and addresses of this machine"),
    row<&S::cors_origins>(
        "server.cors_origins", kRestart,
        {.form = "origins as https://app.example:8443, separated by commas, or *",
         .check = check_origins},
        "origins of the pages in a browser that may send requests and read the replies (CORS); not "
        "set: none"),
    row<&S::model_repository>("server.model_repository", kRestart,
                              {.form = "a directory", .check = check_not_empty},
                              "holds the models as <name>/<version>/model.onnx or model.xml"),
    row<&S::follow_links>("server.follow_links", kRestart, words(kOffOn),
                          "symbolic links that lead out of the model repository; links within it "
                          "are always followed"),
    row<&S::backend>("server.backend", kRestart,
                     {.form = "auto, or a backend's name", .check = check_not_empty},
                     "runs the models whose config.json names no backend; auto: of those that can "
                     "serve a model and agree on its answers, the faster on this machine"),
    row<&S::backend_trial_ns>("server.backend_trial_ms", kRestart,
                              {.bounds = {0, 60'000}, .unit = 1'000'000},
                              "how long auto may measure for one model, loading not counted"),
    row<&S::execution_providers>(
        "server.execution_providers", kRestart,
        {.form = "a list in JSON of {\"name\", \"library\", \"device_id\", \"options\"}",
         .check = check_providers,
         .is_list = true},
        "ways of ONNX Runtime to devices, each a backend by its name: plugins, and options of cuda "
        "and tensorrt"),
    row<&S::python>(
        "server.python", kRestart, {.form = "on, off, or an interpreter", .check = check_not_empty},
        "serves model.py, which is a program, in a process of its own; on: by the Python "
        "that lumen's own commands use"),
    row<&S::backend_choices>("server.backend_choices", kRestart, {.form = "a path, or off"},
                             "where the choices of auto are kept for the next start; not set: "
                             "$XDG_CACHE_HOME/lumen/backends.json"),
    row<&S::compiled_models>("server.compiled_models", kRestart, {.form = "a path, or off"},
                             "the folder where models as compiled are kept for the next start; not "
                             "set: $XDG_CACHE_HOME/lumen/compiled"),
    row<&S::io_thread_count>("server.io_threads", kRestart, numbers(1, limits::kMaxIoThreads),
                             "event loops, each with its own listener"),
    row<&S::loop>("server.loop", kRestart, words(net::kLoopNames),
                  "the kernel's interface that the event loops use; auto: the faster one here, by "
                  "a trial of 10 ms at start"),
    row<&S::allows_recording>("server.recording", kRestart, words(kOffOn),
                              "whether lumen record may take a sample of the rows that clients "
                              "send, by the unix socket"),
    row<&S::recording_bytes>("server.recording_bytes", kRestart, numbers(4096, uint64_t{1} << 40),
                             "the most memory of one recording, reserved while it lasts"),
    row<&S::tcp_control>("server.tcp_control", kRestart, words(kOffOn),
                         "whether clients that connect to a loopback address may load and unload "
                         "models and change settings over TCP, as those of the unix socket may"),
    row<&S::tcp_shm>("server.tcp_shm", kRestart, words(kOffOn),
                     "whether clients that connect to a loopback address may have system shared "
                     "memory over TCP, as those of the unix socket may"),
    row<&S::shm_key_prefix>("server.shm_key_prefix", kRestart, {.form = "a text"},
                            "how the keys of regions of system shared memory begin; not set: any "
                            "that does not begin with lumen"),
    row<&S::shm_user_bytes>("server.shm_user_bytes", kRestart, numbers(0, uint64_t{1} << 50),
                            "how many bytes the regions of one user may have together; 0: as many "
                            "as the machine has memory"),
    row<&S::reply_compression>(
        "server.reply_compression", kRestart, words(http::kReplyCompressionNames),
        "which replies of inferences are compressed for clients whose Accept-Encoding names gzip "
        "or deflate; auto: where it names nothing else; on: all"),
    row<&S::api_key_file>("server.api_key_file", kRestart, {.form = "a path"},
                          "keys that clients of TCP need, in lines infer KEY or control KEY, sent "
                          "as Authorization: Bearer KEY; SIGHUP reads the file again"),
    row<&S::tls_cert>("server.tls_cert", kRestart, {.form = "a path"},
                      "the certificate for TLS on the TCP addresses, then those of its chain, in "
                      "PEM; SIGHUP reads the files again"),
    row<&S::tls_key>("server.tls_key", kRestart, {.form = "a path"},
                     "the certificate's private key in PEM; not set: it stands in tls_cert"),
    row<&S::tls_client_ca>(
        "server.tls_client_ca", kRestart, {.form = "a path"},
        "clients of TCP show a certificate that one of these has signed, in PEM; "
        "not set: none is asked for"),
    row<&S::ready_when>("server.ready_when", kRestart, words(kReadyWhenNames),
                        "when /v2/health/ready and its like over gRPC say yes: once the server "
                        "serves; or only while all versions of models that it is to serve can be"),
    row<&S::model_control>(
        "server.model_control", kRestart, words(kModelControlNames),
        "how models come and go: none; explicit: by load and unload calls; poll: "
        "also when a folder of the repository has changed"),
    row<&S::poll_interval_ns>("server.poll_interval_ms", kRestart, milliseconds(10),
                              "how often model_control poll looks at the repository; a change is "
                              "taken once two looks find the same files"),
    row<&S::load_files>("server.load_files", kRestart, words(kOffOn),
                        "whether load calls may bring the files of their model along, as base64 in "
                        "the body; they are kept in a folder of their own below $TMPDIR"),
    row<&S::overload_status>("server.overload_status", kRestart, words(kOverloadStatuses),
                             "HTTP status of the reply to one request too many"),
    row<&S::max_body_bytes>("server.max_body_bytes", kRestart, numbers(1024, uint64_t{16} << 30),
                            "the largest request body"),
    row<&S::max_connections>("server.max_connections", kRestart, numbers(1, 1u << 20),
                             "open connections of one I/O thread"),
    row<&S::max_active_requests>("server.max_active_requests", kRestart,
                                 numbers(0, kMaxActiveRequests),
                                 "infer requests that one I/O thread has in memory; 0: as many as "
                                 "the queue and the workers can hold, and a quarter more"),
    row<&S::max_memory_bytes>("server.max_memory_bytes", kRestart, numbers(0, uint64_t{1} << 50),
                              "the most memory of all requests together; 0: half of the "
                              "machine's memory, or of its control group's limit (a container's)"),
    row<&RegionOptions::huge_pages>("server.region_huge_pages", kRestart, words(kOffOn),
                                    "2 MiB pages for the regions that requests live in"),
    row<&RegionOptions::prefault_bytes>(
        "server.region_prefault_bytes", kRestart, numbers(0, uint64_t{16} << 30),
        "how much of each region is touched at start, so that no request pays for the page faults"),
    row<&RegionOptions::numa_node>("server.region_numa_node", kRestart,
                                   {.bounds = {0, UINT16_MAX}, .none = "any"},
                                   "the NUMA node whose memory the regions prefer; any: that of "
                                   "the CPU where the I/O thread first touches them"),
    row<&T::head_ns>("server.head_timeout_ms", kRestart, milliseconds(1),
                     "a whole request head must arrive within this time of its first byte"),
    row<&T::write_stall_ns>(
        "server.write_timeout_ms", kRestart, milliseconds(1),
        "a reply must make progress within this time, or its connection is reset"),
    row<&T::idle_ns>("server.idle_timeout_ms", kRestart, milliseconds(1),
                     "a connection without a request is closed after this time"),
    row<&S::drain_delay_ns>("server.drain_delay_ms", kRestart, milliseconds(0),
                            "how long after SIGTERM requests are served on, while "
                            "/v2/health/ready already says no; raise it to the time that your load "
                            "balancer takes to notice. SIGINT and a second signal don't wait"),
    row<&S::drain_timeout_ns>("server.drain_timeout_ms", kRestart, milliseconds(0),
                              "how long requests in flight have after SIGTERM"),
    row<&S::log_level>("server.log_level", kLive, words(kLogLevelNames),
                       "the least severe messages that are logged"),
    row<&S::log_format>("server.log_format", kLive, words(kLogFormatNames),
                        "form of the log on stderr; json: one object a line"),
};
}  // namespace

std::string Setting::flag() const {
  std::string name = "--" + std::string(key);
  std::ranges::replace(name, '_', '-');
  return name;
}

std::string Setting::values_text() const {
  std::string text(values.form);
  for (const std::string_view word : values.words) {
    text.append(text.empty() ? "" : ", ").append(word);
  }
  if (text.empty()) text = values.bounds.text();
  return values.none.empty() ? text : text.append(", or ").append(values.none);
}

std::span<const Setting> settings() noexcept { return kSettings; }

std::vector<const Setting*> changed_settings(const ServerOptions& before,
                                             const ServerOptions& after) {
  std::vector<const Setting*> changed;
  for (const Setting& setting : kSettings) {
    if (setting.get(before) != setting.get(after)) changed.push_back(&setting);
  }
  return changed;
}

Status validate_options(const ServerOptions& options) {
  ServerOptions taken;
  for (const Setting& setting : kSettings) {
    LUMEN_RETURN_IF_ERROR(setting.set(taken, setting.get(options)).at(setting.key));
  }
  const size_t least = least_memory_bytes(options);
  if (options.max_memory_bytes != 0 && options.max_memory_bytes < least) {
    return Status::error(Code::kInvalidArgument,
                         "max_memory_bytes: got %zu, wanted at least %zu: %u I/O threads "
                         "need so much for their receive buffers and a request of max_body_bytes "
                         "each; raise it, or lower max_body_bytes or max_active_requests",
                         options.max_memory_bytes, least, options.io_thread_count);
  }
  if (!options.listening_sockets.empty() || options.http_address != kOff ||
      options.grpc_address != kOff || !options.bus_path.empty()) {
    return {};
  }
  const bool has_default = options.unix_path.empty() && !default_unix_path().empty();
  if (has_default || (options.unix_path != kOff && !options.unix_path.empty())) return {};
  return Status::error(
      Code::kInvalidArgument,
      "http is off and unix %s: nothing would listen; wanted "
      "one of them, as by --unix PATH",
      options.unix_path == kOff ? "too" : "has no path, as $XDG_RUNTIME_DIR is not set");
}

}  // namespace lumen::server
