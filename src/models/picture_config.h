// Reads "pictures" of a model's config.json: {"INPUT": {"form": "files", "size": [224, 224], ...}}.
// Threads: any. Memory: the heap. Errors: a text with the path of the key, the value got and the
// values wanted; empty: none.
#pragma once

#include <lumen/models/pictures.h>

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace lumen::models {

[[nodiscard]] std::string read_pictures(const nlohmann::json& section, PicturesOptions& pictures);

}  // namespace lumen::models
