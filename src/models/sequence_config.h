// Reads "sequences" of a model's config.json, and Triton's "sequence_batching".
// Threads: any. Memory: the heap. Errors: a text with the path of the key, the value got and the
// values wanted; empty: none.
#pragma once

#include <lumen/models/sequence_options.h>

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace lumen::models {

[[nodiscard]] std::string read_sequences(const nlohmann::json& section, SequenceOptions& sequences);
// As protobuf's JSON writes it.
[[nodiscard]] std::string read_sequence_batching(const nlohmann::json& section,
                                                 SequenceOptions& sequences);

}  // namespace lumen::models
