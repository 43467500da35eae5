// Settings: the one table of what `lumen serve` can be told. A row is a key of config.json
// ("server.io_threads") and a flag (--io-threads) at once, so that the two can't drift apart.
// Threads: control plane. Memory: the heap. Says no: Status with file, line, key, got, wanted and
// the nearest valid name.
#pragma once

#include <lumen/base/result.h>
#include <lumen/serve/options.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lumen::serve {

enum class SettingKind : uint8_t { kText, kNumber };

struct Setting {
  std::string_view section;  // of config.json: "server" or "engine"
  std::string_view key;      // snake_case; the flag has dashes
  SettingKind kind;
  std::string_view help;
  // Takes the value as text (a number as its digits) into the options.
  Status (*set)(ServerOptions& options, std::string_view value);
};

[[nodiscard]] std::span<const Setting> settings() noexcept;

// "--io-threads"
[[nodiscard]] std::string flag_name(const Setting& setting);

// Applies one value given as text, as from the command line.
[[nodiscard]] Status apply_setting(const Setting& setting, ServerOptions& options,
                                   std::string_view value);

// Reads config.json: { "engine": {...}, "server": {...} }; comments are not JSON and are refused.
[[nodiscard]] Result<ServerOptions> load_config(const std::filesystem::path& file,
                                                ServerOptions options);

}  // namespace lumen::serve
