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
using Kind = ControlOptions::Kind;

constexpr char kExample[] =
    R"(the states that the server keeps, as {"states": [{"input": "h", "output": "h_out"}]})";
constexpr std::array<std::string_view, 4> kKeys = {"states", "controls", "idle_ms", "most"};
constexpr std::array<std::string_view, 3> kStateKeys = {"input", "output", "initial_file"};
constexpr std::array<std::string_view, 3> kControlKeys = {"input", "kind", "values"};

std::string inside(std::string path, const std::string& key) {
  return path.append(".").append(key);
}

std::string read_name(const std::string& path, const Json& value, std::string& name) {
  name = value.is_string() ? value.get<std::string>() : std::string();
  if (!name.empty() && name.size() <= limits::kMaxNameBytes) return {};
  return got_wanted(path, value, "the name of a tensor of the model");
}

// Of a file in the model's folder "initial_state".
std::string read_file_name(const std::string& path, const Json& value, std::string& name) {
  const std::string problem = read_name(path, value, name);
  const bool leads_out = name.find('/') != std::string::npos || name.starts_with('.');
  if (problem.empty() && !leads_out) return {};
  return got_wanted(path, value, "the name of a file in the model's folder \"initial_state\"");
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
    std::string problem;
    if (key == "initial_file") {
      problem = read_file_name(inside(path, key), value, state.initial_file);
    } else {
      problem = read_name(inside(path, key), value, key == "input" ? state.input : state.output);
    }
    if (!problem.empty()) return problem;
  }
  return {};
}

std::string read_kind(const std::string& path, const Json& value, ControlOptions& control) {
  const std::string text = value.is_string() ? value.get<std::string>() : std::string();
  const auto at = std::ranges::find(kControlNames, text);
  if (at == kControlNames.end()) {
    return got_wanted(path, value, R"("start", "end", "ready" or "id")");
  }
  control.kind = static_cast<Kind>(at - kControlNames.begin());
  return {};
}

// The two values of an input, for false and for true; booleans are 0 and 1.
std::string read_values(const std::string& path, const Json& value, ControlOptions& control) {
  const auto is_number = [](const Json& one) { return one.is_number() || one.is_boolean(); };
  if (!value.is_array() || value.size() != 2 || !std::ranges::all_of(value, is_number)) {
    return got_wanted(path, value, "two numbers, for false and for true, as [0, 1]");
  }
  const auto number_of = [](const Json& one) {
    return one.is_boolean() ? static_cast<double>(one.get<bool>()) : one.get<double>();
  };
  control.value_if_false = number_of(value[0]);
  control.value_if_true = number_of(value[1]);
  return {};
}

std::string read_control(const std::string& path, const Json& section, ControlOptions& control) {
  const bool has_both =
      section.is_object() && section.contains("input") && section.contains("kind");
  if (!has_both) {
    return got_wanted(path, section,
                      R"(an input and its kind, as {"input": "reset", "kind": "start"})");
  }
  for (const auto& [key, value] : section.items()) {
    if (std::ranges::find(kControlKeys, key) == kControlKeys.end()) {
      return unknown_key(path, key, kControlKeys);
    }
    std::string problem;
    if (key == kControlKeys[0]) problem = read_name(inside(path, key), value, control.input);
    if (key == kControlKeys[1]) problem = read_kind(inside(path, key), value, control);
    if (key == kControlKeys[2]) problem = read_values(inside(path, key), value, control);
    if (!problem.empty()) return problem;
  }
  if (control.kind != Kind::kId || !section.contains("values")) return {};
  return got_wanted(inside(path, "values"), section["values"], "none for an id");
}

template <typename One>
using ReadOne = std::string (*)(const std::string& path, const Json& section, One& one);

// `nouns`: of them, for messages.
template <typename One>
std::string read_list(const std::string& path, const Json& value, std::string_view nouns,
                      ReadOne<One> read, std::vector<One>& list) {
  if (!value.is_array() || value.empty() || value.size() > limits::kMaxTensors) {
    return got_wanted(
        path, value,
        "a list of 1 to " + std::to_string(limits::kMaxTensors) + " " + std::string(nouns));
  }
  for (const Json& one : value) {
    const std::string place = path + "[" + std::to_string(list.size()) + "]";
    std::string problem = read(place, one, list.emplace_back());
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

// Its type and dims are the state's, and its name is for messages.
std::string read_initial(const std::string& path, const Json& value, StateOptions& state) {
  const Json list = value.is_array() ? value : Json::array({value});
  if (list.size() > 1) return got_wanted(path, value, "one: this server begins with the same");
  for (const Json& one : list) {
    if (!one.is_object()) return got_wanted(path, value, "a list of one object");
    for (const auto& [key, of_key] : one.items()) {
      const bool is_free = key == "name" || key == "data_type" || key == "dims";
      const bool is_zero = key == "zero_data" && of_key == true;
      if (is_free || is_zero || is_default(of_key)) continue;
      if (key != "data_file") {
        return got_wanted(inside(path, key), of_key,
                          "none: a state is of zero_data or a data_file");
      }
      std::string problem = read_file_name(inside(path, key), of_key, state.initial_file);
      if (!problem.empty()) return problem;
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
      std::string problem = read_initial(path_of_key, value, state);
      if (!problem.empty()) return problem;
    } else if (!is_default(value) && key != "use_same_buffer_for_input_output") {
      return got_wanted(path_of_key, value, "none: this server can't follow it");
    }
  }
  return {};
}

struct TritonKind {
  std::string_view name;
  Kind kind;
};
// The first one is protobuf's default, which may be left out.
constexpr std::array<TritonKind, 4> kTritonKinds = {{{"CONTROL_SEQUENCE_START", Kind::kStart},
                                                     {"CONTROL_SEQUENCE_READY", Kind::kReady},
                                                     {"CONTROL_SEQUENCE_END", Kind::kEnd},
                                                     {"CONTROL_SEQUENCE_CORRID", Kind::kId}}};
struct TritonValues {
  std::string_view key;
  ElementType type;
};
constexpr std::array<TritonValues, 3> kTritonValues = {{{"int32_false_true", ElementType::kInt32},
                                                        {"fp32_false_true", ElementType::kFp32},
                                                        {"bool_false_true", ElementType::kBool}}};

std::string read_triton_kind(const std::string& path, const Json& value, ControlOptions& control) {
  const std::string text = value.is_string() ? value.get<std::string>() : std::string();
  const auto at = std::ranges::find(kTritonKinds, text, &TritonKind::name);
  if (at == kTritonKinds.end()) {
    return got_wanted(path, value,
                      "CONTROL_SEQUENCE_START, CONTROL_SEQUENCE_END, CONTROL_SEQUENCE_READY or "
                      "CONTROL_SEQUENCE_CORRID");
  }
  control.kind = at->kind;
  return {};
}

// One of the list "control": a kind with its type, and the values in that type.
std::string read_triton_control_of(const std::string& path, const Json& section,
                                   ControlOptions& control) {
  for (const auto& [key, value] : section.items()) {
    const std::string path_of_key = inside(path, key);
    const auto of_type = std::ranges::find(kTritonValues, key, &TritonValues::key);
    std::string problem;
    if (key == "kind") {
      problem = read_triton_kind(path_of_key, value, control);
    } else if (of_type != kTritonValues.end() && !(value.is_array() && value.empty())) {
      control.type = of_type->type;
      problem = read_values(path_of_key, value, control);
    } else if (key == "data_type" && value != "TYPE_INVALID") {
      control.type = triton_type(value);
      if (!control.type) problem = got_wanted(path_of_key, value, "a type, as \"TYPE_UINT64\"");
    } else if (!is_default(value) && value != "TYPE_INVALID") {
      problem = got_wanted(path_of_key, value, "none: this server can't follow it");
    }
    if (!problem.empty()) return problem;
  }
  if (control.kind == Kind::kId || control.type) return {};
  return got_wanted(path, section, "the values for false and true, as \"fp32_false_true\": [0, 1]");
}

std::string read_triton_control(const std::string& path, const Json& section,
                                ControlOptions& control) {
  if (!section.is_object()) return got_wanted(path, section, "an object");
  std::string problem =
      read_name(inside(path, "name"), section.value("name", Json()), control.input);
  if (!problem.empty()) return problem;
  const Json list = section.value("control", Json());
  if (!list.is_array() || list.size() != 1 || !list[0].is_object()) {
    return got_wanted(inside(path, "control"), list, "a list of one control");
  }
  return read_triton_control_of(inside(path, "control[0]"), list[0], control);
}

}  // namespace

std::string read_sequences(const Json& section, SequenceOptions& sequences) {
  const bool has_some =
      section.is_object() && (section.contains("states") || section.contains("controls"));
  if (!has_some) {
    return got_wanted("sequences", section, kExample);
  }
  for (const auto& [key, value] : section.items()) {
    const std::string path = inside("sequences", key);
    std::string problem;
    uint64_t most = sequences.most;
    if (key == kKeys[0]) {
      problem = read_list<StateOptions>(path, value, "states", read_state, sequences.states);
    } else if (key == kKeys[1]) {
      problem =
          read_list<ControlOptions>(path, value, "controls", read_control, sequences.controls);
    } else if (key == kKeys[2]) {
      problem = read_number(path, value, SequenceOptions::kMostIdleMs, sequences.idle_ms);
    } else if (key == kKeys[3]) {
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
    } else if (key == "state" && !is_default(value)) {
      std::string problem =
          read_list<StateOptions>(path, value, "states", read_triton_state, sequences.states);
      if (!problem.empty()) return problem;
    } else if (key == "control_input" && !is_default(value)) {
      std::string problem = read_list<ControlOptions>(path, value, "controls", read_triton_control,
                                                      sequences.controls);
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
  if (sequences.are_on()) return {};
  return got_wanted(inside(kBatching, "state"), section.value("state", Json()),
                    "the states that the server keeps, or a control_input by which a program "
                    "keeps them");
}

}  // namespace lumen::models
