// The keys of a configuration that make a model an ensemble: "ensemble", and Triton's
// "ensemble_scheduling".
// Threads: any. Memory: the heap. Errors: a text with the key's path, the value got and the values
// wanted; empty: all is read.
#pragma once

#include <lumen/models/ensemble.h>

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace lumen::models {

[[nodiscard]] std::string read_ensemble(const nlohmann::json& value, StatedEnsemble& ensemble);
// As protobuf's JSON writes it.
[[nodiscard]] std::string read_ensemble_scheduling(const nlohmann::json& value,
                                                   StatedEnsemble& ensemble);
// Keys of the configuration of an ensemble: all others are of a model that runs itself.
[[nodiscard]] std::string check_keys_of_ensemble(const nlohmann::json& document);

}  // namespace lumen::models
