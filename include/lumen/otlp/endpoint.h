// check_endpoint: whether a text may name a collector. Threads: any. Memory: none.
// Errors: a Status with the wanted forms.
#pragma once

#include <lumen/base/result.h>

#include <string_view>

namespace lumen::otlp {

inline constexpr std::string_view kEndpointForms =
    "http://HOST:PORT[/PATH], https://HOST:PORT[/PATH] or http+unix://%2FPATH of a collector's "
    "OTLP/HTTP receiver";

// Its form alone: no name is looked up.
[[nodiscard]] Status check_endpoint(std::string_view endpoint);

}  // namespace lumen::otlp
