// Settings: the one table of what `lumen serve` can be told. A row is a key of config.json
// ("server.io_threads") and a flag (--io-threads) at once, so that the two can't drift apart.
// Threads: control plane; parse_engine_section() any. Memory: the heap.
// Says no: Status with file, line, key, got, wanted and the nearest valid name.
#pragma once

#include <lumen/base/result.h>
#include <lumen/serve/options.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::serve {

enum class SettingKind : uint8_t { kText, kNumber };
enum class SettingChange : uint8_t {
  kLive,     // by SIGHUP, and those of section "engine" by POST /v2/lumen/engine
  kRestart,  // read once, at start
};

struct Setting {
  std::string_view section;  // of config.json: "server" or "engine"
  std::string_view key;      // snake_case; the flag has dashes
  SettingKind kind;
  SettingChange change;
  std::string_view help;
  // Takes the value as text (a number as its digits) into the options.
  Status (*set)(ServerOptions& options, std::string_view value);
  // The value as set() takes it.
  std::string (*get)(const ServerOptions& options);
};

[[nodiscard]] std::span<const Setting> settings() noexcept;

// "--io-threads"
[[nodiscard]] std::string flag_name(const Setting& setting);

// Applies one value given as text, as from the command line; bounds are checked too.
[[nodiscard]] Status apply_setting(const Setting& setting, ServerOptions& options,
                                   std::string_view value);

// The rows whose values differ.
[[nodiscard]] std::vector<const Setting*> changed_settings(const ServerOptions& before,
                                                           const ServerOptions& after);

// Reads config.json: { "engine": {...}, "server": {...} }; comments are not JSON and are refused.
// What the file says stands over `options`.
[[nodiscard]] Result<ServerOptions> load_config(const std::filesystem::path& file,
                                                ServerOptions options);

// The body of POST /v2/lumen/engine: the section "engine", or {"engine": {...}}. What it does not
// name stays as in `base`. A key that needs a restart is refused.
[[nodiscard]] Result<engine::EngineConfig> parse_engine_section(std::string_view json,
                                                                const engine::EngineConfig& base);

}  // namespace lumen::serve
