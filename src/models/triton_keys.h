// The keys of Triton's ModelConfig (model_config.proto, as JSON) that a model's configuration may
// have beside Lumen's: clients read a server's configuration, change it and load a model with it.
// Each is followed, held against the model, or refused where it is not at its default.
// Threads: any. Memory: the heap. Errors: a text with the key's path, the value got and the values
// wanted.
#pragma once

#include <lumen/models/backend.h>

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace lumen::models {

// "response_cache" and "backend" are keys of both, and not among these.
[[nodiscard]] bool is_triton_key(std::string_view key) noexcept;

// Reads those of `document`, an object, into `options`. Empty: all are read.
[[nodiscard]] std::string read_triton_keys(const nlohmann::json& document, ModelOptions& options);

}  // namespace lumen::models
