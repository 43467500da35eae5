// The table of settings: how each value is read from text and written as text. Control plane; the
// heap. Says no by a Status that begins with the key or goes behind it ("got ..., wanted ...").
#include <lumen/serve/settings.h>

#include "serve/host_check.h"
#include "serve/settings_check.h"

#include <lumen/base/nearest_name.h>
#include <lumen/net/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <type_traits>

namespace lumen::serve {
namespace {

using engine::EngineConfig;

constexpr uint64_t kNsPerMs = 1'000'000;

int width(std::string_view text) noexcept { return static_cast<int>(text.size()); }

// A member of the options, in whichever of their parts it lies.
template <typename Options, typename T>
auto& field(Options& options, T ServerOptions::* member) {
  return options.*member;
}
template <typename Options, typename T>
auto& field(Options& options, T EngineConfig::* member) {
  return options.engine.*member;
}
template <typename Options, typename T>
auto& field(Options& options, T TimeoutOptions::* member) {
  return options.timeouts.*member;
}

template <typename Options, typename T>
auto& field(Options& options, T RegionOptions::* member) {
  return options.regions.*member;
}

template <typename T>
Result<T> read_number(std::string_view value) {
  T number{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error == std::errc{} && end == value.data() + value.size()) return number;
  return Status::error(Code::kInvalidArgument, "got '%.*s', wanted a whole number from 0 to %llu",
                       width(value), value.data(),
                       static_cast<unsigned long long>(std::numeric_limits<T>::max()));
}

template <auto Member>
constexpr Setting number(std::string_view section, std::string_view key, SettingChange change,
                         std::string_view help) {
  return {section,
          key,
          SettingKind::kNumber,
          change,
          help,
          [](ServerOptions& options, std::string_view value) {
            auto& target = field(options, Member);
            const auto read = read_number<std::remove_reference_t<decltype(target)>>(value);
            if (read.ok()) target = *read;
            return read.status();
          },
          [](const ServerOptions& options) { return std::to_string(field(options, Member)); }};
}

template <auto Member>
constexpr Setting milliseconds(std::string_view key, std::string_view help) {
  return {"server",
          key,
          SettingKind::kNumber,
          SettingChange::kRestart,
          help,
          [](ServerOptions& options, std::string_view value) {
            const auto ms = read_number<uint64_t>(value);
            if (!ms.ok()) return ms.status();
            // Cut where the product would overflow; the bounds refuse that much anyway.
            field(options, Member) =
                std::min(*ms, std::numeric_limits<uint64_t>::max() / kNsPerMs) * kNsPerMs;
            return Status();
          },
          [](const ServerOptions& options) {
            return std::to_string(field(options, Member) / kNsPerMs);
          }};
}

std::string listed(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    if (!text.empty()) text.append(", ");
    text.append(name);
  }
  return text;
}

Status no_such_value(std::string_view value, std::span<const std::string_view> names) {
  const std::string_view nearest = nearest_name(value, names);
  const std::string meant =
      nearest.empty() ? "" : "; the nearest is '" + std::string(nearest) + "'";
  return Status::error(Code::kInvalidArgument, "got '%.*s', wanted one of %s%s", width(value),
                       value.data(), listed(names).c_str(), meant.c_str());
}

// An enum whose values are the places of their names in `Names`.
template <auto Member, const auto& Names>
constexpr Setting choice(std::string_view section, std::string_view key, std::string_view help,
                         SettingChange change = SettingChange::kLive) {
  return {section,
          key,
          SettingKind::kText,
          change,
          help,
          [](ServerOptions& options, std::string_view value) {
            auto& target = field(options, Member);
            const auto found = std::ranges::find(Names, value);
            if (found == Names.end()) return no_such_value(value, Names);
            target = static_cast<std::remove_reference_t<decltype(target)>>(found - Names.begin());
            return Status();
          },
          [](const ServerOptions& options) {
            return std::string(Names[static_cast<size_t>(field(options, Member))]);
          }};
}

Status set_http(ServerOptions& options, std::string_view value) {
  if (value != kOff) {
    const Result<net::TcpAddress> address = net::parse_tcp_address(value);
    if (!address.ok()) return address.status();
  }
  options.http_address = value;
  return {};
}

Status set_unix(ServerOptions& options, std::string_view value) {
  if (value != kOff && !value.empty()) LUMEN_RETURN_IF_ERROR(net::check_unix_path(value));
  options.unix_path = value;
  return {};
}

Status set_allowed_hosts(ServerOptions& options, std::string_view value) {
  if (!is_host_list(value)) {
    return Status::error(Code::kInvalidArgument,
                         "got '%.*s', wanted host names or addresses without ports, separated by "
                         "commas, or *",
                         width(value), value.data());
  }
  options.allowed_hosts = value;
  return {};
}

Status set_repository(ServerOptions& options, std::string_view value) {
  if (value.empty()) {
    return Status::error(Code::kInvalidArgument, "got '', wanted a directory");
  }
  options.model_repository = value;
  return {};
}

Status set_csv_path(ServerOptions& options, std::string_view value) {
  options.telemetry_csv_path = value == kOff ? std::string_view() : value;
  return {};
}

constexpr std::array<std::string_view, 2> kOffOn = {"off", "on"};

Status set_huge_pages(ServerOptions& options, std::string_view value) {
  const auto found = std::ranges::find(kOffOn, value);
  if (found == kOffOn.end()) return no_such_value(value, kOffOn);
  options.regions.huge_pages = found != kOffOn.begin();
  return {};
}

Status set_pin_threads(ServerOptions& options, std::string_view value) {
  const Result<PinThreads> parsed = parse_pin_threads(value);
  if (parsed.ok()) options.pin_threads = *parsed;
  return parsed.status();
}

constexpr std::string_view kAnyNode = "any";

Status set_numa_node(ServerOptions& options, std::string_view value) {
  if (value == kAnyNode) {
    options.regions.numa_node = -1;
    return {};
  }
  const Result<uint16_t> node = read_number<uint16_t>(value);
  if (!node.ok()) {
    return Status::error(Code::kInvalidArgument, "got '%.*s', wanted the number of a node, or any",
                         width(value), value.data());
  }
  options.regions.numa_node = *node;
  return {};
}

constexpr auto kLive = SettingChange::kLive;
constexpr auto kRestart = SettingChange::kRestart;
constexpr auto kText = SettingKind::kText;

constexpr Setting kSettings[] = {
    choice<&EngineConfig::queue_type, engine::kQueueTypeNames>(
        "engine", "queue_type",
        "how requests meet workers: mpmc, spsc, naive, batched, or inline (no workers)"),
    choice<&EngineConfig::allocator_type, engine::kAllocatorTypeNames>(
        "engine", "allocator_type", "where a request's bytes live: lumen_arena or standard"),
    number<&EngineConfig::thread_count>(
        "engine", "thread_count", kLive,
        "workers, each with an instance per model; 0: as many as CPUs may be used"),
    number<&EngineConfig::batch_size>("engine", "batch_size", kLive,
                                      "rows that batched and inline may pack into one inference"),
    number<&EngineConfig::max_queue_delay_us>(
        "engine", "max_queue_delay_us", kLive,
        "how long batched may hold a request back for others to join it"),
    number<&EngineConfig::queue_capacity>(
        "engine", "queue_capacity", kLive,
        "requests that may wait for a worker, a power of two; more are refused"),
    number<&EngineConfig::default_timeout_us>(
        "engine", "default_timeout_us", kLive,
        "a request not begun by then is answered 504; its own \"timeout\" wins; 0: none"),
    number<&EngineConfig::latency_budget_us>(
        "engine", "latency_budget_us", kLive,
        "a request that would wait longer is refused at once; 0: none"),
    {"engine", "pin_threads", kText, kRestart,
     "threads that run models, each on a CPU of its own: auto, on, off, or CPUs as 0,2-3",
     set_pin_threads, [](const ServerOptions& options) { return options.pin_threads.text(); }},
    choice<&ServerOptions::spin, kSpinModeNames>(
        "engine", "spin", "poll for work before sleeping: auto (while it pays), or off", kRestart),
    {"engine", "telemetry_csv_path", kText, kRestart,
     "a line a request is appended to this file; off: none", set_csv_path,
     [](const ServerOptions& options) {
       return options.telemetry_csv_path.empty() ? std::string(kOff)
                                                 : options.telemetry_csv_path.string();
     }},
    number<&ServerOptions::telemetry_csv_max_bytes>("engine", "telemetry_csv_max_bytes", kRestart,
                                                    "a longer file is renamed to PATH.1"),
    number<&ServerOptions::telemetry_csv_keep>("engine", "telemetry_csv_keep", kRestart,
                                               "renamed files kept, the oldest go first"),

    {"server", "http", kText, kRestart,
     "HOST:PORT to listen on; port 0 picks a free one; off: no TCP", set_http,
     [](const ServerOptions& options) { return options.http_address; }},
    {"server", "unix", kText, kRestart,
     "path of the unix socket; off: none; unset: $XDG_RUNTIME_DIR/lumen.sock", set_unix,
     [](const ServerOptions& options) { return options.unix_path; }},
    {"server", "allowed_hosts", kText, kRestart,
     "hosts beside this machine's own that a browser may ask for, by commas; *: all",
     set_allowed_hosts, [](const ServerOptions& options) { return options.allowed_hosts; }},
    {"server", "model_repository", kText, kRestart, "directory of <name>/<version>/model.onnx",
     set_repository,
     [](const ServerOptions& options) { return options.model_repository.string(); }},
    number<&ServerOptions::io_thread_count>("server", "io_threads", kRestart,
                                            "event loops, each with its own listener"),
    number<&ServerOptions::overload_status>("server", "overload_status", kRestart,
                                            "answer to a request too many: 429 or 503"),
    number<&ServerOptions::max_body_bytes>("server", "max_body_bytes", kRestart,
                                           "largest request body"),
    number<&ServerOptions::max_connections>("server", "max_connections", kRestart,
                                            "open connections an I/O thread"),
    number<&ServerOptions::max_active_requests>(
        "server", "max_active_requests", kRestart,
        "requests in memory an I/O thread; 0: more than the queue and the workers hold"),
    {"server", "region_huge_pages", kText, kRestart,
     "2 MiB pages for the regions that requests live in: off or on", set_huge_pages,
     [](const ServerOptions& options) {
       return std::string(kOffOn[options.regions.huge_pages ? 1 : 0]);
     }},
    number<&RegionOptions::prefault_bytes>(
        "server", "region_prefault_bytes", kRestart,
        "of each region, touched at start so that no request pays for the page faults"),
    {"server", "region_numa_node", kText, kRestart,
     "NUMA node of the regions; any: where the I/O thread runs", set_numa_node,
     [](const ServerOptions& options) {
       const int node = options.regions.numa_node;
       return node < 0 ? std::string(kAnyNode) : std::to_string(node);
     }},
    milliseconds<&TimeoutOptions::head_ns>("head_timeout_ms",
                                           "a request's head must be here within"),
    milliseconds<&TimeoutOptions::write_stall_ns>("write_timeout_ms",
                                                  "a reply must make progress within"),
    milliseconds<&TimeoutOptions::idle_ns>("idle_timeout_ms",
                                           "a connection at rest is closed after"),
    milliseconds<&ServerOptions::drain_timeout_ns>(
        "drain_timeout_ms", "after SIGTERM, requests in flight have this long"),
    choice<&ServerOptions::log_level, kLogLevelNames>("server", "log_level",
                                                      "trace, debug, info, warn, error or off"),
    choice<&ServerOptions::log_format, kLogFormatNames>("server", "log_format",
                                                        "text, or json: one object a line"),
};

}  // namespace

std::span<const Setting> settings() noexcept { return kSettings; }

std::string flag_name(const Setting& setting) {
  std::string name = "--";
  name += setting.key;
  std::ranges::replace(name, '_', '-');
  return name;
}

Status set_and_check(const Setting& setting, ServerOptions& options, std::string_view value,
                     std::string_view place) {
  Status status = setting.set(options, value);
  if (status.ok()) status = check_bounds(options);
  if (status.ok()) return status;
  // A bound's message begins with the key, which `place` names as its user wrote it.
  std::string_view reason = status.message();
  if (reason.starts_with(setting.key) && reason.substr(setting.key.size()).starts_with(": ")) {
    reason.remove_prefix(setting.key.size() + 2);
  }
  return Status::error(status.code(), "%.*s: %.*s", width(place), place.data(), width(reason),
                       reason.data());
}

Status apply_setting(const Setting& setting, ServerOptions& options, std::string_view value) {
  return set_and_check(setting, options, value, flag_name(setting));
}

std::vector<const Setting*> changed_settings(const ServerOptions& before,
                                             const ServerOptions& after) {
  std::vector<const Setting*> changed;
  for (const Setting& setting : kSettings) {
    if (setting.get(before) != setting.get(after)) changed.push_back(&setting);
  }
  return changed;
}

}  // namespace lumen::serve
