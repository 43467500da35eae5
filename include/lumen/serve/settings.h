// Settings: the one table of what `lumen serve` can be told. A row is a key of config.json
// ("server.io_threads") and a flag (--io-threads) at once; parsing, bounds, help, live changes and the
// check of docs/configuration.md follow from it.
// Threads: control plane; parse_engine_section() any. Memory: the heap.
// Errors: Status with file, line, key, got, wanted and the nearest valid name.
#pragma once

#include <lumen/base/result.h>
#include <lumen/serve/options.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::serve {

enum class SettingKind : uint8_t { kText, kNumber };  // in config.json
enum class SettingChange : uint8_t {
  kLive,     // by SIGHUP, and those of section "engine" by POST /v2/lumen/engine
  kRestart,  // read once, at start
};

struct Setting {
  // Where a value lies in the options: a number, of which `bounds` or `words` say what it may be, or
  // a text, which its own function takes or refuses.
  struct Number {
    uint64_t (*get)(const ServerOptions& options);
    void (*set)(ServerOptions& options, uint64_t number);
  };
  struct Text {
    std::string (*get)(const ServerOptions& options);
    Status (*set)(ServerOptions& options, std::string_view value);
  };
  struct Bounds {
    uint64_t low, high;
    bool is_power_of_two = false;
    uint64_t unit = 1;  // the options have so many times the number
  };

  std::string_view section;  // of config.json: "server" or "engine"
  std::string_view key;      // snake_case; the flag has dashes
  SettingChange change;
  std::string_view help;
  SettingKind kind;
  Number number{};
  Bounds bounds{};
  std::span<const std::string_view> words{};  // the number is the place of one of these
  Text text{};

  // Takes the value as text (a number as its digits), or says "got ..., wanted ...".
  [[nodiscard]] Status set(ServerOptions& options, std::string_view value) const;
  // The value as set() takes it.
  [[nodiscard]] std::string get(const ServerOptions& options) const;
};

[[nodiscard]] std::span<const Setting> settings() noexcept;

// "--io-threads"
[[nodiscard]] std::string flag_name(const Setting& setting);

// Applies one value given as text, as from the command line.
[[nodiscard]] Status apply_setting(const Setting& setting, ServerOptions& options,
                                   std::string_view value);

// The rows whose values differ.
[[nodiscard]] std::vector<const Setting*> changed_settings(const ServerOptions& before,
                                                           const ServerOptions& after);

// Reads config.json: { "engine": {...}, "server": {...} }; comments are not JSON and are refused.
// What the file says stands over `options`.
[[nodiscard]] Result<ServerOptions> load_config(const std::filesystem::path& file,
                                                ServerOptions options);
// The same of a text; errors call it `name`.
[[nodiscard]] Result<ServerOptions> parse_config(std::string_view text, std::string_view name,
                                                 ServerOptions options);

// The body of POST /v2/lumen/engine: the section "engine", or {"engine": {...}}. What it does not
// name stays as in `base`. A key that needs a restart is refused.
[[nodiscard]] Result<engine::EngineConfig> parse_engine_section(std::string_view json,
                                                                const engine::EngineConfig& base);

}  // namespace lumen::serve
