// "warmup" of a model's config.json: a list of requests, each {"inputs": [{"name": "x", "datatype":
// "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}], "count": 1}. "data" may be "zeros" or be left
// out: numbers are made up then.
// Threads: any. Memory: the heap. Errors: a text with the key's path, the value got and the values
// wanted.
#pragma once

#include <lumen/models/warm_up.h>

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace lumen::models {

// Empty: `requests` has them all.
[[nodiscard]] std::string read_warm_up(const nlohmann::json& section,
                                       std::vector<WarmUpRequest>& requests);

}  // namespace lumen::models
