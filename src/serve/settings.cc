// The table of settings, and what a row does with a value. Control plane; the heap.
// Errors: a Status that goes behind the name of what was set: "got ..., wanted ...".
#include <lumen/serve/settings.h>

#include "serve/host_check.h"
#include "serve/memory_limits.h"

#include <lumen/base/nearest_name.h>
#include <lumen/net/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>
#include <type_traits>

namespace lumen::serve {
namespace {

using engine::EngineConfig;

int width(std::string_view text) noexcept { return static_cast<int>(text.size()); }

std::optional<uint64_t> read_number(std::string_view value) noexcept {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size()) return std::nullopt;
  return number;
}

Status wanted(std::string_view value, const char* what) {
  return Status::error(Code::kInvalidArgument, "got '%.*s', wanted %s", width(value), value.data(),
                       what);
}

Result<uint64_t> number_within(const Setting::Bounds& bounds, std::string_view value) {
  const std::optional<uint64_t> number = read_number(value);
  const std::string range = std::to_string(bounds.low) + " to " + std::to_string(bounds.high);
  if (!number) return wanted(value, ("a whole number from " + range).c_str());
  const bool is_within = *number >= bounds.low && *number <= bounds.high;
  if (is_within && (!bounds.is_power_of_two || std::has_single_bit(*number))) return *number;
  return Status::error(Code::kInvalidArgument, "got %.*s, wanted %s%s", width(value), value.data(),
                       bounds.is_power_of_two ? "a power of two from " : "", range.c_str());
}

Status no_such_word(std::string_view value, std::span<const std::string_view> words) {
  std::string what = "one of ";
  for (const std::string_view word : words) {
    what.append(word == words.front() ? "" : ", ").append(word);
  }
  const std::string_view nearest = nearest_name(value, words);
  if (!nearest.empty()) what.append("; the nearest is '").append(nearest).append("'");
  return wanted(value, what.c_str());
}

// A member of the options, in whichever of their parts it lies.
template <typename T, typename Part>
constexpr auto& at(auto& options, T Part::* member) noexcept {
  if constexpr (std::is_same_v<Part, EngineConfig>) {
    return options.engine.*member;
  } else if constexpr (std::is_same_v<Part, RegionOptions>) {
    return options.regions.*member;
  } else if constexpr (std::is_same_v<Part, TimeoutOptions>) {
    return options.timeouts.*member;
  } else {
    return options.*member;
  }
}

template <auto kMember>
constexpr Setting::Number kNumberAt = {
    [](const ServerOptions& options) { return static_cast<uint64_t>(at(options, kMember)); },
    [](ServerOptions& options, uint64_t number) {
      auto& member = at(options, kMember);
      member = static_cast<std::remove_reference_t<decltype(member)>>(number);
    }};

// `name` is "section.key".
constexpr Setting row(std::string_view name, SettingChange change, std::string_view help,
                      SettingKind kind) {
  const size_t point = name.find('.');
  return {name.substr(0, point), name.substr(point + 1), change, help, kind};
}

template <auto kMember>
constexpr Setting number(std::string_view name, SettingChange change, Setting::Bounds bounds,
                         std::string_view help) {
  Setting setting = row(name, change, help, SettingKind::kNumber);
  setting.number = kNumberAt<kMember>;
  setting.bounds = bounds;
  return setting;
}

template <auto kMember, const auto& kWords>
constexpr Setting word(std::string_view name, SettingChange change, std::string_view help) {
  Setting setting = row(name, change, help, SettingKind::kText);
  setting.number = kNumberAt<kMember>;
  setting.words = kWords;
  return setting;
}

constexpr Setting text(std::string_view name, Setting::Text value, std::string_view help,
                       SettingKind kind = SettingKind::kText) {
  Setting setting = row(name, SettingChange::kRestart, help, kind);
  setting.text = value;
  return setting;
}

// A text that is kept as it is once `kCheck` has nothing against it.
template <auto kMember, Status (*kCheck)(std::string_view)>
constexpr Setting::Text kTextAt = {
    [](const ServerOptions& options) -> std::string { return options.*kMember; },
    [](ServerOptions& options, std::string_view value) {
      Status status = kCheck(value);
      if (status.ok()) options.*kMember = value;
      return status;
    }};

Status check_http(std::string_view value) {
  return value == kOff ? Status() : net::parse_tcp_address(value).status();
}
Status check_unix(std::string_view value) {
  return value == kOff || value.empty() ? Status() : net::check_unix_path(value);
}
Status check_hosts(std::string_view value) {
  if (is_host_list(value)) return {};
  return wanted(value, "host names or addresses without ports, separated by commas, or *");
}
Status check_repository(std::string_view value) {
  return value.empty() ? wanted(value, "a directory") : Status();
}

constexpr Setting::Text kCsvPath = {[](const ServerOptions& options) {
                                      const std::string path = options.telemetry_csv_path.string();
                                      return path.empty() ? std::string(kOff) : path;
                                    },
                                    [](ServerOptions& options, std::string_view value) {
                                      options.telemetry_csv_path =
                                          value == kOff ? std::string_view() : value;
                                      return Status();
                                    }};

constexpr Setting::Text kPinThreads = {
    [](const ServerOptions& options) { return options.pin_threads.text(); },
    [](ServerOptions& options, std::string_view value) {
      const Result<PinThreads> parsed = parse_pin_threads(value);
      if (parsed.ok()) options.pin_threads = *parsed;
      return parsed.status();
    }};

constexpr Setting::Text kNumaNode = {
    [](const ServerOptions& options) {
      const int node = options.regions.numa_node;
      return node < 0 ? std::string("any") : std::to_string(node);
    },
    [](ServerOptions& options, std::string_view value) {
      const uint64_t node = read_number(value).value_or(UINT64_MAX);
      if (node > UINT16_MAX && value != "any") return wanted(value, "the number of a node, or any");
      options.regions.numa_node = value == "any" ? -1 : static_cast<int>(node);
      return Status();
    }};

constexpr Setting::Text kOverloadStatus = {
    [](const ServerOptions& options) { return std::to_string(options.overload_status); },
    [](ServerOptions& options, std::string_view value) {
      if (value != "429" && value != "503") {
        return Status::error(Code::kInvalidArgument, "got %.*s, wanted 429 or 503", width(value),
                             value.data());
      }
      options.overload_status = value == "429" ? 429 : 503;
      return Status();
    }};

constexpr auto kLive = SettingChange::kLive;
constexpr auto kRestart = SettingChange::kRestart;
using E = EngineConfig;
using S = ServerOptions;
using T = TimeoutOptions;
constexpr std::array<std::string_view, 2> kOffOn = {"off", "on"};

constexpr Setting::Bounds milliseconds(uint64_t low) {
  return {low, limits::kMaxTimeoutUs / 1000, false, 1'000'000};
}

constexpr Setting kSettings[] = {
    word<&E::queue_type, engine::kQueueTypeNames>("engine.queue_type", kLive,
                                                  "how requests meet workers; inline has none"),
    word<&E::allocator_type, engine::kAllocatorTypeNames>("engine.allocator_type", kLive,
                                                          "where a request's bytes live"),
    number<&E::thread_count>(
        "engine.thread_count", kLive, {0, limits::kMaxWorkers},
        "workers, each with an instance per model; 0: as many as CPUs may be used"),
    number<&E::batch_size>("engine.batch_size", kLive, {1, limits::kMaxBatchSize},
                           "rows that batched and inline may pack into one inference"),
    number<&E::max_queue_delay_us>(
        "engine.max_queue_delay_us", kLive, {0, limits::kMaxQueueDelayUs},
        "how long batched may hold a request back for others to join it"),
    number<&E::queue_capacity>(
        "engine.queue_capacity", kLive, {2, limits::kMaxQueueCapacity, true},
        "requests that may wait for a worker, a power of two; more are refused"),
    number<&E::default_timeout_us>(
        "engine.default_timeout_us", kLive, {0, limits::kMaxTimeoutUs},
        "a request not begun by then is answered 504; its own \"timeout\" wins; 0: none"),
    number<&E::latency_budget_us>("engine.latency_budget_us", kLive, {0, limits::kMaxTimeoutUs},
                                  "a request that would wait longer is refused at once; 0: none"),
    text("engine.pin_threads", kPinThreads,
         "threads that run models, each on a CPU of its own: auto, on, off, or CPUs as 0,2-3"),
    word<&S::spin, kSpinModeNames>("engine.spin", kRestart,
                                   "poll for work before sleeping, while it pays"),
    text("engine.telemetry_csv_path", kCsvPath,
         "a line a request is appended to this file; off: none"),
    // A rotation a request or two would be renames and nothing else.
    number<&S::telemetry_csv_max_bytes>("engine.telemetry_csv_max_bytes", kRestart,
                                        {64 * 1024, uint64_t{1} << 40},
                                        "a longer file is renamed to PATH.1"),
    number<&S::telemetry_csv_keep>("engine.telemetry_csv_keep", kRestart, {0, 1000},
                                   "renamed files kept, the oldest go first"),
    text("server.http", kTextAt<&S::http_address, check_http>,
         "HOST:PORT to listen on; port 0 picks a free one; off: no TCP"),
    text("server.unix", kTextAt<&S::unix_path, check_unix>,
         "path of the unix socket; off: none; unset: $XDG_RUNTIME_DIR/lumen.sock"),
    text("server.allowed_hosts", kTextAt<&S::allowed_hosts, check_hosts>,
         "hosts beside this machine's own that a browser may ask for, by commas; *: all"),
    text("server.model_repository", kTextAt<&S::model_repository, check_repository>,
         "directory of <name>/<version>/model.onnx"),
    number<&S::io_thread_count>("server.io_threads", kRestart, {1, limits::kMaxIoThreads},
                                "event loops, each with its own listener"),
    text("server.overload_status", kOverloadStatus, "answer to a request too many: 429 or 503",
         SettingKind::kNumber),
    number<&S::max_body_bytes>("server.max_body_bytes", kRestart, {1024, uint64_t{16} << 30},
                               "largest request body"),
    number<&S::max_connections>("server.max_connections", kRestart, {1, 1u << 20},
                                "open connections an I/O thread"),
    number<&S::max_active_requests>(
        "server.max_active_requests", kRestart, {0, kMaxActiveRequests},
        "requests in memory an I/O thread; 0: more than the queue and the workers hold"),
    number<&S::max_memory_bytes>(
        "server.max_memory_bytes", kRestart, {0, uint64_t{1} << 50},
        "bound of the memory of all requests; 0: half of the machine's or the container's"),
    word<&RegionOptions::huge_pages, kOffOn>("server.region_huge_pages", kRestart,
                                             "2 MiB pages for the regions that requests live in"),
    number<&RegionOptions::prefault_bytes>(
        "server.region_prefault_bytes", kRestart, {0, uint64_t{16} << 30},
        "of each region, touched at start so that no request pays for the page faults"),
    text("server.region_numa_node", kNumaNode,
         "NUMA node of the regions; any: where the I/O thread runs"),
    number<&T::head_ns>("server.head_timeout_ms", kRestart, milliseconds(1),
                        "a request's head must be here within"),
    number<&T::write_stall_ns>("server.write_timeout_ms", kRestart, milliseconds(1),
                               "a reply must make progress within"),
    number<&T::idle_ns>("server.idle_timeout_ms", kRestart, milliseconds(1),
                        "a connection at rest is closed after"),
    number<&S::drain_timeout_ns>("server.drain_timeout_ms", kRestart, milliseconds(0),
                                 "after SIGTERM, requests in flight have this long"),
    word<&S::log_level, kLogLevelNames>("server.log_level", kLive, "the least that is logged"),
    word<&S::log_format, kLogFormatNames>("server.log_format", kLive,
                                          "of the log; json: one object a line"),
};
}  // namespace

Status Setting::set(ServerOptions& options, std::string_view value) const {
  if (text.set != nullptr) return text.set(options, value);
  if (!words.empty()) {
    const auto found = std::ranges::find(words, value);
    if (found == words.end()) return no_such_word(value, words);
    number.set(options, static_cast<uint64_t>(found - words.begin()));
    return {};
  }
  const Result<uint64_t> read = number_within(bounds, value);
  if (read.ok()) number.set(options, *read * bounds.unit);
  return read.status();
}

std::string Setting::get(const ServerOptions& options) const {
  if (text.get != nullptr) return text.get(options);
  const uint64_t value = number.get(options);
  return words.empty() ? std::to_string(value / bounds.unit) : std::string(words[value]);
}

std::span<const Setting> settings() noexcept { return kSettings; }

std::string flag_name(const Setting& setting) {
  std::string name = "--" + std::string(setting.key);
  std::ranges::replace(name, '_', '-');
  return name;
}

Status apply_setting(const Setting& setting, ServerOptions& options, std::string_view value) {
  const Status status = setting.set(options, value);
  if (status.ok()) return status;
  return Status::error(status.code(), "%s: %.*s", flag_name(setting).c_str(),
                       width(status.message()), status.message().data());
}

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
    const Status status = setting.set(taken, setting.get(options));
    if (status.ok()) continue;
    return Status::error(status.code(), "%.*s: %.*s", width(setting.key), setting.key.data(),
                         width(status.message()), status.message().data());
  }
  const size_t least = least_memory_bytes(options);
  if (options.max_memory_bytes != 0 && options.max_memory_bytes < least) {
    return Status::error(Code::kInvalidArgument,
                         "max_memory_bytes: got %zu, wanted at least %zu: that is what %u I/O "
                         "threads need for their receive buffers and a request of max_body_bytes "
                         "each; raise it, or lower max_body_bytes or max_active_requests",
                         options.max_memory_bytes, least, options.io_thread_count);
  }
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

size_t enough_active_requests(const EngineConfig& config) noexcept {
  const size_t held = engine::most_requests_held(config);
  return std::min(held + held / 4, kMaxActiveRequests);
}

size_t least_memory_bytes(const ServerOptions& options) noexcept {
  const size_t active = options.max_active_requests != 0 ? options.max_active_requests
                                                         : enough_active_requests(options.engine);
  const RegionOptions& regions = options.regions;
  const size_t base =
      RequestMemory::in_pages(std::max(kContextBytes, regions.prefault_bytes), regions);
  return options.io_thread_count *
         ((active + kHeadContexts) * base + most_request_bytes(options.max_body_bytes));
}

std::string overload_note(const ServerOptions& options, const EngineConfig& config) {
  const size_t active = options.max_active_requests != 0 ? options.max_active_requests
                                                         : enough_active_requests(options.engine);
  const size_t held = engine::most_requests_held(config);
  if (active > held) return {};
  return "max_active_requests " + std::to_string(active) +
         ": the queue and the workers hold up to " + std::to_string(held) +
         ", so the queue can't fill; requests too many wait unread for seconds before they are "
         "answered " +
         std::to_string(options.overload_status) +
         " (wanted: more than that, or a smaller queue_capacity)";
}

}  // namespace lumen::serve
