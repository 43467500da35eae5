// Settings: the one table of the settings of `lumen serve`. A row is a key of config.json
// ("server.io_threads") and a flag (--io-threads) at once; parsing, bounds, help, live changes and
// docs/configuration.md follow from it.
// Threads: control plane; parse_engine_section() any. Memory: the heap.
// Errors: Status with file, line, key, got, wanted and the nearest valid name.
#pragma once

#include <lumen/base/bounds.h>
#include <lumen/base/result.h>
#include <lumen/server/options.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::server {

enum class SettingChange : uint8_t {
  kLive,     // by SIGHUP, and those of section "engine" by POST /v2/lumen/engine
  kRestart,  // read once, at start
};

struct Setting {
  // The values that may be set: one of `words`, a number within `bounds`, or a text that `form`
  // describes and `check` takes or refuses.
  struct Values {
    std::span<const std::string_view> words{};
    Bounds bounds{};
    uint64_t unit = 1;  // the options hold the number times this
    std::string_view form{};
    Status (*check)(const Setting& setting, std::string_view value) = nullptr;
    std::string_view none{};  // the word for no value: an empty text, or the number -1
    bool is_list = false;     // the text is a list in JSON; in config.json it may be that list
  };

  std::string_view section;  // of config.json: "server" or "engine"
  std::string_view key;      // snake_case; the flag has dashes
  SettingChange change;
  std::string_view help;
  Values values;
  bool is_number;  // in config.json; else a string
  std::string (*read)(const Setting& setting, const ServerOptions& options);
  Status (*write)(const Setting& setting, ServerOptions& options, std::string_view value);

  // Takes the value as text (a number as its digits), or says "got ..., wanted ...".
  [[nodiscard]] Status set(ServerOptions& options, std::string_view value) const {
    return write(*this, options, value);
  }
  // The value as set() takes it.
  [[nodiscard]] std::string get(const ServerOptions& options) const { return read(*this, options); }
  // "--io-threads"
  [[nodiscard]] std::string flag() const;
  // The values that may be set, in words: "1 to 64".
  [[nodiscard]] std::string values_text() const;
};

[[nodiscard]] std::span<const Setting> settings() noexcept;

// The rows whose values differ.
[[nodiscard]] std::vector<const Setting*> changed_settings(const ServerOptions& before,
                                                           const ServerOptions& after);

// Reads config.json: { "engine": {...}, "server": {...} }; comments are not JSON and are refused.
// Keys that the file does not name stay as in `options`.
[[nodiscard]] Result<ServerOptions> load_config(const std::filesystem::path& file,
                                                ServerOptions options);
// The same of a text; errors call it `name`.
[[nodiscard]] Result<ServerOptions> parse_config(std::string_view text, std::string_view name,
                                                 ServerOptions options);

// The body of POST /v2/lumen/engine: the section "engine", or {"engine": {...}}. Keys that it does
// not name stay as in `base`. A key that needs a restart is refused.
[[nodiscard]] Result<engine::EngineConfig> parse_engine_section(std::string_view json,
                                                                const engine::EngineConfig& base);

}  // namespace lumen::server
