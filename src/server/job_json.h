// The JSON of a job's body, and the words in which it is refused. Threads: any. Memory: the heap.
// Errors: Status with got and wanted.
#pragma once

#include <lumen/base/result.h>

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace lumen::server {

// The longest body that is parsed, but for those with a model's files in them.
inline constexpr size_t kMaxJobBytes = 1024 * 1024;
// nlohmann-json parses by recursion where it prints; no body of ours is nested deeper.
inline constexpr int kMaxJobDepth = 16;

// `text` as an object; an empty one for an empty text. `wanted`: an example, for the message.
[[nodiscard]] Result<nlohmann::json> parse_job(std::string_view text, const char* wanted,
                                               size_t most_bytes = kMaxJobBytes);

// A value as it stands in the body, cut to a length that fits a message.
[[nodiscard]] std::string shown(const nlohmann::json& value);

}  // namespace lumen::server
