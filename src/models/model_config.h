// A model's own config.json: {"precision": "f32"|"bf16"|"auto", "batch_sizes": [1, 4],
// "rows_are_independent": true, "shape_cache": 64, "backend": "openvino", "response_cache":
// {"enable": true}, "queue_type": "mpmc", "weight": 3, "priority": 1, "instances": 1, "workers":
// [0], "device": {"id": 0}, "warmup": [...],
// "pictures": {"data": {...}}}, all optional.
// Threads: any. Memory: the heap (control plane). Errors: a Status with file, line, key, the value
// got, the values wanted and the nearest valid key.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/backend.h>

#include <string_view>

namespace lumen::models {

// The name, in messages, of a text that a client has sent.
inline constexpr std::string_view kConfigOfCall = "the configuration of the load call";

// `file` names the text in messages only.
[[nodiscard]] Result<ModelOptions> parse_model_config(std::string_view text, std::string_view file);

}  // namespace lumen::models
