// Reads the setting with nlohmann-json, whose exceptions end here. See the header.
#include <lumen/models/execution_provider.h>

#include <lumen/base/nearest_name.h>

#include "models/format_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace lumen::models {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 4> kKeys = {"name", "library", "device_id", "options"};
constexpr std::array<std::string_view, 3> kTakenNames = {"auto", "onnxruntime", "openvino"};
// More than a machine has; a larger number is a mistake.
constexpr uint64_t kMostDeviceId = 255;
constexpr size_t kMostNameBytes = 32;

// Options by which answers would be wrong, or the process would end.
struct RefusedOption {
  std::string_view key;
  std::string_view reason;
};
constexpr std::array<RefusedOption, 5> kRefusedOptions = {{
    {"enable_cuda_graph", "a captured graph reads the tensors of the run that it was captured in"},
    {"trt_cuda_graph_enable",
     "a captured graph reads the tensors of the run that it was captured in"},
    {"has_user_compute_stream", "it names an address of another program"},
    {"user_compute_stream", "it names an address of another program"},
    {"gpu_external_alloc", "it names an address of another program"},
}};

// A list in a list and so on is not printed: that goes as deep as it does.
std::string shown(const Json& value) {
  if (value.is_structured()) return value.is_object() ? "an object" : "a list";
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

Status got(const std::string& text) {
  return Status::error(Code::kInvalidArgument, "got %s", text.c_str());
}

bool is_name(std::string_view text) noexcept {
  return !text.empty() && text.size() <= kMostNameBytes && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

Status read_name(const Json& value, ExecutionProvider& provider) {
  const std::string name = value.is_string() ? value.get<std::string>() : std::string();
  if (!is_name(name)) {
    return got(shown(value) + " as \"name\", wanted 1 to 32 of a-z, 0-9, _ and -");
  }
  if (std::ranges::find(kTakenNames, name) != kTakenNames.end()) {
    return got("\"name\": \"" + name + "\", which is a backend already; wanted another name");
  }
  provider.name = name;
  return {};
}

Status read_library(const Json& value, ExecutionProvider& provider) {
  if (!value.is_string() || value.get<std::string>().empty()) {
    return got(shown(value) + " as \"library\", wanted the path of a plugin");
  }
  provider.library = value.get<std::string>();
  return {};
}

Status read_device_id(const Json& value, ExecutionProvider& provider) {
  const uint64_t id = value.is_number_unsigned() ? value.get<uint64_t>() : UINT64_MAX;
  if (id > kMostDeviceId) {
    return got(shown(value) + " as \"device_id\", wanted a whole number from 0 to 255");
  }
  provider.device_id = static_cast<uint32_t>(id);
  return {};
}

Status read_options(const Json& value, ExecutionProvider& provider) {
  if (!value.is_object() || value.size() > ExecutionProvider::kMostOptions) {
    return got(shown(value) + " as \"options\", wanted an object of at most 64 keys");
  }
  for (const auto& [key, one] : value.items()) {
    if (one.is_structured() || one.is_null() || key.empty()) {
      return got(shown(one) + " as option \"" + key + "\", wanted a string or a number");
    }
    std::string text = one.is_string() ? one.get<std::string>() : one.dump();
    const auto* const refused = std::ranges::find(kRefusedOptions, key, &RefusedOption::key);
    if (refused != kRefusedOptions.end() && text != "0" && text != "false") {
      return got("option \"" + key + "\": " + shown(one) +
                 ", wanted \"0\" or none: " + std::string(refused->reason));
    }
    provider.options[key] = std::move(text);
  }
  return {};
}

Status read_key(const std::string& key, const Json& value, ExecutionProvider& provider) {
  if (key == kKeys[0]) return read_name(value, provider);
  if (key == kKeys[1]) return read_library(value, provider);
  if (key == kKeys[2]) return read_device_id(value, provider);
  if (key == kKeys[3]) return read_options(value, provider);
  std::string text = "the key " + shown(Json(key)) + ", wanted name, library, device_id or options";
  const std::string_view nearest = nearest_name(key, kKeys);
  if (!nearest.empty()) text.append("; did you mean \"").append(nearest).append("\"?");
  return got(text);
}

Result<ExecutionProvider> read_provider(const Json& json) {
  if (!json.is_object()) return got(shown(json) + ", wanted objects {\"name\": ...}");
  ExecutionProvider provider;
  for (const auto& [key, value] : json.items()) {
    LUMEN_RETURN_IF_ERROR(read_key(key, value, provider));
  }
  if (provider.name.empty()) return got(shown(json) + ", wanted a \"name\" in it");
  const bool is_own = provider.name == kCudaProvider || provider.name == kTensorRtProvider;
  if (is_own && !provider.library.empty()) {
    return got("\"library\" for " + provider.name +
               ", which is a part of ONNX Runtime; wanted none, or another name");
  }
  if (!is_own && provider.library.empty()) {
    return got("\"" + provider.name +
               "\" without \"library\", wanted the path of a plugin: only cuda and tensorrt are "
               "parts of ONNX Runtime");
  }
  return provider;
}

}  // namespace

Result<std::vector<ExecutionProvider>> parse_execution_providers(std::string_view json) {
  const Json list = Json::parse(json, nullptr, false);
  if (!list.is_array() || list.size() > ExecutionProvider::kMost) {
    return got((list.is_discarded()
                    ? format_text("'%.60s', which is no JSON", std::string(json).c_str())
                    : shown(list)) +
               ", wanted a list of at most 8 objects {\"name\", \"library\", \"device_id\", "
               "\"options\"}");
  }
  std::vector<ExecutionProvider> providers;
  for (const Json& one : list) {
    Result<ExecutionProvider> provider = read_provider(one);
    if (!provider.ok()) return provider.status();
    if (std::ranges::find(providers, provider->name, &ExecutionProvider::name) != providers.end()) {
      return got("\"" + provider->name + "\" twice, wanted different names");
    }
    providers.push_back(std::move(*provider));
  }
  return providers;
}

}  // namespace lumen::models
