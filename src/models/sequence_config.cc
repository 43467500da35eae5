// See the header.
#include "models/sequence_config.h"

#include <lumen/base/limits.h>

#include <nlohmann/json.hpp>

#include "models/json_text.h"
#include "models/triton_values.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace lumen::models {
namespace {

using Json = nlohmann::json;

constexpr char kExample[] =
    R"(the states that the server keeps, as {"states": [{"input": "h", "output": "h_out"}]})";
constexpr std::array<std::string_view, 3> kKeys = {"states", "idle_ms", "most"};
constexpr std::array<std::string_view, 2> kStateKeys = {"input", "output"};

std::string inside(std::string path, const std::string& key) {
  return path.append(".").append(key);
}

std::string read_name(const std::string& path, const Json& value, std::string& name) {
  name = value.is_string() ? value.get<std::string>() : std::string();
  if (!name.empty() && name.size() <= limits::kMaxNameBytes) return {};
  return got_wanted(path, value, "the name of a tensor of the model");
}

std::string read_state(const std::string& path, const Json& section, StateOptions& state) {
  const bool has_both =
      section.is_object() && section.contains("input") && section.contains("output");
  if (!has_both) {
    return got_wanted(path, section,
                      "the names of two tensors, as {\"input\": \"h\", \"output\": \"h_out\"}");
  }
  for (const auto& [key, value] : section.items()) {
    if (std::ranges::find(kStateKeys, key) == kStateKeys.end()) {
      return unknown_key(path, key, kStateKeys);
    }
    std::string problem =
        read_name(inside(path, key), value, key == "input" ? state.input : state.output);
    if (!problem.empty()) return problem;
  }
  return {};
}

using ReadState = std::string (*)(const std::string& path, const Json& section,
                                  StateOptions& state);

std::string read_states(const std::string& path, const Json& value, ReadState read,
                        std::vector<StateOptions>& states) {
  if (!value.is_array() || value.empty() || value.size() > limits::kMaxTensors) {
    return got_wanted(path, value,
                      "a list of 1 to " + std::to_string(limits::kMaxTensors) + " states");
  }
  for (const Json& one : value) {
    const std::string place = path + "[" + std::to_string(states.size()) + "]";
    std::string problem = read(place, one, states.emplace_back());
    if (!problem.empty()) return problem;
  }
  return {};
}

std::string read_number(const std::string& path, const Json& value, uint64_t most, uint64_t& out) {
  const uint64_t number = value.is_number_unsigned() ? value.get<uint64_t>() : 0;
  if (number < 1 || number > most) {
    return got_wanted(path, value, "a whole number from 1 to " + std::to_string(most));
  }
  out = number;
  return {};
}

// --- Triton's form -------------------------------------------------------------------------------

constexpr char kBatching[] = "sequence_batching";

// The server zeroes a state at the start of its sequence; other values would have to be read from
// files.
std::string check_initial(const std::string& path, const Json& value) {
  for (const Json& one : value.is_array() ? value : Json::array({value})) {
    if (!one.is_object()) return got_wanted(path, value, "a list of one object");
    for (const auto& [key, of_key] : one.items()) {
      const bool is_free = key == "name" || key == "data_type" || key == "dims";
      const bool is_zero = key == "zero_data" && of_key == true;
      if (is_free || is_zero || is_default(of_key)) continue;
      return got_wanted(inside(path, key), of_key,
                        "\"zero_data\": true: a sequence begins with zeros");
    }
  }
  return {};
}

std::string read_triton_state(const std::string& path, const Json& section, StateOptions& state) {
  if (!section.is_object()) return got_wanted(path, section, "an object");
  for (const char* const key : {"input_name", "output_name"}) {
    const Json name = section.value(key, Json());
    std::string problem = read_name(
        path + "." + key, name, key == std::string_view("input_name") ? state.input : state.output);
    if (!problem.empty()) return problem;
  }
  for (const auto& [key, value] : section.items()) {
    const std::string path_of_key = inside(path, key);
    if (key == "input_name" || key == "output_name") continue;
    if (key == "data_type") {
      state.type = triton_type(value);
      if (!state.type) return got_wanted(path_of_key, value, "a type, as \"TYPE_FP32\"");
    } else if (key == "dims") {
      state.dims = triton_dims(value);
      if (!state.dims) return got_wanted(path_of_key, value, "a list of sizes, as [2, 128]");
    } else if (key == "initial_state") {
      std::string problem = check_initial(path_of_key, value);
      if (!problem.empty()) return problem;
    } else if (!is_default(value) && key != "use_same_buffer_for_input_output") {
      return got_wanted(path_of_key, value, "none: this server can't follow it");
    }
  }
  return {};
}

}  // namespace

std::string read_sequences(const Json& section, SequenceOptions& sequences) {
  if (!section.is_object() || !section.contains("states")) {
    return got_wanted("sequences", section, kExample);
  }
  for (const auto& [key, value] : section.items()) {
    const std::string path = inside("sequences", key);
    std::string problem;
    uint64_t most = sequences.most;
    if (key == kKeys[0]) {
      problem = read_states(path, value, read_state, sequences.states);
    } else if (key == kKeys[1]) {
      problem = read_number(path, value, SequenceOptions::kMostIdleMs, sequences.idle_ms);
    } else if (key == kKeys[2]) {
      problem = read_number(path, value, SequenceOptions::kMostSequences, most);
      sequences.most = static_cast<uint32_t>(most);
    } else {
      problem = unknown_key("sequences", key, kKeys);
    }
    if (!problem.empty()) return problem;
  }
  return {};
}

// How sequences share instances ("direct", "oldest") says nothing here: states are no part of an
// instance.
std::string read_sequence_batching(const Json& section, SequenceOptions& sequences) {
  constexpr int64_t kUsOfAMs = 1000;
  if (!section.is_object()) return got_wanted(kBatching, section, "an object");
  for (const auto& [key, value] : section.items()) {
    const std::string path = inside(kBatching, key);
    if (key == "max_sequence_idle_microseconds") {
      const auto most = static_cast<int64_t>(SequenceOptions::kMostIdleMs) * kUsOfAMs;
      const auto idle_us = integer_within(value, 0, most);
      if (!idle_us) return got_wanted(path, value, "microseconds, of at most a day");
      if (*idle_us == 0) continue;  // not said
      sequences.idle_ms = static_cast<uint64_t>((*idle_us + kUsOfAMs - 1) / kUsOfAMs);
    } else if (key == "state") {
      std::string problem = read_states(path, value, read_triton_state, sequences.states);
      if (!problem.empty()) return problem;
    } else if (key == "oldest" && value.is_object()) {
      // 0: not said; the default is ours.
      const Json candidates = value.value("max_candidate_sequences", Json(0));
      const auto most = integer_within(candidates, 0, SequenceOptions::kMostSequences);
      if (!most) {
        return got_wanted(
            inside(path, "max_candidate_sequences"), candidates,
            "a whole number of at most " + std::to_string(SequenceOptions::kMostSequences));
      }
    } else if (key != "direct" && !is_default(value)) {
      return got_wanted(path, value,
                        "none: this server can't follow it, and keeps the states that \"state\" "
                        "names");
    }
  }
  if (!sequences.states.empty()) return {};
  return got_wanted(inside(kBatching, "state"), section.value("state", Json()),
                    "the states that the server keeps");
}

}  // namespace lumen::models
