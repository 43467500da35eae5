// What the parts of the settings share: bounds, and applying one value with its place in words.
// Threads: control plane. Memory: none. Says no: Status.
#pragma once

#include <lumen/base/result.h>
#include <lumen/serve/options.h>
#include <lumen/serve/settings.h>

#include <string_view>

namespace lumen::serve {

// Each value by itself; the message begins with "key: ".
[[nodiscard]] Status check_bounds(const ServerOptions& options) noexcept;

// `place` is what the message begins with instead of the key: a flag, or file and line.
[[nodiscard]] Status set_and_check(const Setting& setting, ServerOptions& options,
                                   std::string_view value, std::string_view place);

}  // namespace lumen::serve
