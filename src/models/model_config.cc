// Reads a model's config.json with nlohmann-json, whose exceptions end here. Any thread; the heap.
// Errors: file, key, got, wanted and the nearest valid key.
#include "models/model_config.h"

#include <lumen/base/limits.h>
#include <lumen/base/nearest_name.h>

#include <nlohmann/json.hpp>

#include "models/ensemble_config.h"
#include "models/json_text.h"
#include "models/picture_config.h"
#include "models/sequence_config.h"
#include "models/triton_keys.h"
#include "models/warm_up_config.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

namespace lumen::models {
namespace {

using Json = nlohmann::json;

// A static compile costs memory and start-up time by its size; a larger batch never paid on a CPU
// (a row's cost is flat from 64 rows on), so more than this is a typing mistake.
constexpr uint64_t kMaxBatchSize = 4096;

// The default of a backend (OpenVINO); more is of no use.
constexpr uint64_t kMaxShapeCache = 5000;

// Longer than a year is a time in another unit.
constexpr uint64_t kMaxCacheTtlMs = uint64_t{365} * 24 * 3600 * 1000;
// Room for a few answers of a small model, with their records.
constexpr uint64_t kMinCacheBytes = uint64_t{64} << 10;
// Places within it are counted in 32 bits, of 64 bytes each; no machine of ours has as much.
constexpr uint64_t kMaxCacheBytes = uint64_t{64} << 30;

constexpr std::array<std::string_view, 4> kCacheKeys = {"enable", "ttl_ms", "max_bytes", "policy"};
constexpr std::array<std::string_view, 4> kDeviceKeys = {"id", "streams", "batch_sizes",
                                                         "memory_mb"};
// More devices than a machine has, and more memory than a device has: a typing mistake.
constexpr uint32_t kMostDeviceId = 255;
constexpr uint32_t kMostDeviceMemoryMb = 1u << 20;
// In the order of enum Precision.
constexpr std::array<std::string_view, 3> kPrecisions = {"f32", "bf16", "auto"};

struct Config {
  std::string file;
  ModelOptions options;
  Status status;

  void fail(const std::string& text) {
    status = Status::error(Code::kInvalidArgument, "%s: %s", file.c_str(), text.c_str());
  }
};

std::string hint(std::string_view name, std::span<const std::string_view> valid) {
  const std::string_view nearest = nearest_name(name, valid);
  if (!nearest.empty()) return "; did you mean \"" + std::string(nearest) + "\"?";
  std::string all = "; valid:";
  for (const std::string_view candidate : valid) all += " \"" + std::string(candidate) + '"';
  return all;
}

void read_precision(Config& config, const Json& value) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    const auto found = std::ranges::find(kPrecisions, text);
    if (found != kPrecisions.end()) {
      config.options.precision = static_cast<Precision>(found - kPrecisions.begin());
      return;
    }
  }
  config.fail("key \"precision\": got " + shown(value) +
              (value.is_string() ? hint(value.get_ref<const std::string&>(), kPrecisions)
                                 : ", wanted \"f32\", \"bf16\" or \"auto\""));
}

// Empty, and the reason is said, where they are none; an empty list is one.
std::vector<uint32_t> read_sizes(Config& config, const std::string& key, const Json& value) {
  const std::string wanted = ", wanted a list of at most " +
                             std::to_string(limits::kMaxStaticBatchSizes) +
                             " different whole numbers from 1 to " + std::to_string(kMaxBatchSize);
  if (!value.is_array() || value.size() > limits::kMaxStaticBatchSizes) {
    config.fail("key \"" + key + "\": got " + shown(value) + wanted);
    return {};
  }
  std::vector<uint32_t> sizes;
  for (const Json& item : value) {
    const uint64_t size = item.is_number_unsigned() ? item.get<uint64_t>() : 0;
    const auto narrow = static_cast<uint32_t>(std::min(size, kMaxBatchSize));
    if (size < 1 || size > kMaxBatchSize || std::ranges::find(sizes, narrow) != sizes.end()) {
      std::string text = "key \"" + key + "\": got " + shown(item);
      text.append(" in ").append(shown(value)).append(wanted);
      config.fail(text);
      return {};
    }
    sizes.push_back(narrow);
  }
  std::ranges::sort(sizes);
  return sizes;
}

void read_batch_sizes(Config& config, const Json& value) {
  config.options.batch_sizes = read_sizes(config, "batch_sizes", value);
}

void read_rows_are_independent(Config& config, const Json& value) {
  if (!value.is_boolean()) {
    return config.fail("key \"rows_are_independent\": got " + shown(value) +
                       ", wanted true or false");
  }
  config.options.rows_are_independent = value.get<bool>();
}

void read_shape_cache(Config& config, const Json& value) {
  const uint64_t entries = value.is_number_unsigned() ? value.get<uint64_t>() : UINT64_MAX;
  if (entries > kMaxShapeCache) {
    return config.fail("key \"shape_cache\": got " + shown(value) +
                       ", wanted a whole number from 0 to " + std::to_string(kMaxShapeCache));
  }
  config.options.shape_cache = static_cast<uint32_t>(entries);
}

// The code that knows the backends checks whether a server has it.
void read_backend(Config& config, const Json& value) {
  const std::string name = value.is_string() ? value.get<std::string>() : std::string();
  if (value.is_string() && name.empty()) return;  // as protobuf leaves it out
  if (name.empty() || name.size() > limits::kMaxNameBytes) {
    return config.fail("key \"backend\": got " + shown(value) + ", wanted the name of a backend");
  }
  config.options.backend = name;
}

// nullopt, and the reason is said, where it is none within the bounds.
std::optional<uint64_t> read_cache_number(Config& config, std::string_view key, const Json& value,
                                          uint64_t least, uint64_t most) {
  const uint64_t number = value.is_number_unsigned() ? value.get<uint64_t>() : UINT64_MAX;
  if (number >= least && number <= most) return number;
  config.fail("key \"response_cache." + std::string(key) + "\": got " + shown(value) +
              ", wanted a whole number from " + std::to_string(least) + " to " +
              std::to_string(most));
  return std::nullopt;
}

void read_cache_policy(Config& config, const Json& value) {
  const std::string name = value.is_string() ? value.get<std::string>() : std::string();
  const auto found = std::ranges::find(kCachePolicyNames, name);
  if (found == kCachePolicyNames.end()) {
    return config.fail("key \"response_cache.policy\": got " + shown(value) +
                       hint(name, kCachePolicyNames));
  }
  config.options.response_cache.policy =
      static_cast<CachePolicy>(found - kCachePolicyNames.begin());
}

void read_response_cache(Config& config, const Json& section) {
  if (!section.is_object()) {
    return config.fail("key \"response_cache\": got " + shown(section) +
                       ", wanted an object, as {\"enable\": true}");
  }
  ResponseCacheOptions& cache = config.options.response_cache;
  for (const auto& [key, value] : section.items()) {
    if (key == kCacheKeys[0]) {
      if (value.is_boolean()) {
        cache.enable = value.get<bool>();
      } else {
        config.fail("key \"response_cache.enable\": got " + shown(value) +
                    ", wanted true or false");
      }
    } else if (key == kCacheKeys[1]) {
      cache.ttl_ms = read_cache_number(config, key, value, 1, kMaxCacheTtlMs).value_or(0);
    } else if (key == kCacheKeys[2]) {
      cache.max_bytes =
          read_cache_number(config, key, value, kMinCacheBytes, kMaxCacheBytes).value_or(0);
    } else if (key == kCacheKeys[3]) {
      read_cache_policy(config, value);
    } else {
      config.fail("unknown key " + shown(Json(key)) + " in \"response_cache\"" +
                  hint(key, kCacheKeys));
    }
    if (!config.status.ok()) return;
  }
}

// The lanes that one model may have for itself.
constexpr std::array kModelQueueTypes = {QueueType::kMpmc, QueueType::kBatched, QueueType::kInline,
                                         QueueType::kAuto};

void read_queue_type(Config& config, const Json& value) {
  const std::string name = value.is_string() ? value.get<std::string>() : std::string();
  for (const QueueType type : kModelQueueTypes) {
    if (name == name_of(type)) {
      config.options.scheduling.queue_type = type;
      return;
    }
  }
  std::string wanted;
  for (const QueueType type : kModelQueueTypes) {
    wanted += (wanted.empty() ? "\"" : ", \"") + std::string(name_of(type)) + '"';
  }
  config.fail("key \"queue_type\": got " + shown(value) + ", wanted one of " + wanted +
              (name == name_of(QueueType::kSpsc) || name == name_of(QueueType::kNaive)
                   ? "; this one has one queue for all models, set it with --queue-type"
                   : ""));
}

// nullopt, and the reason is said, where it is none within the bounds.
std::optional<uint32_t> read_number(Config& config, std::string_view key, const Json& value,
                                    uint32_t least, uint32_t most) {
  const uint64_t number = value.is_number_unsigned() ? value.get<uint64_t>() : UINT64_MAX;
  if (number >= least && number <= most) return static_cast<uint32_t>(number);
  config.fail("key \"" + std::string(key) + "\": got " + shown(value) +
              ", wanted a whole number from " + std::to_string(least) + " to " +
              std::to_string(most));
  return std::nullopt;
}

void read_device(Config& config, const Json& section) {
  if (!section.is_object()) {
    return config.fail("key \"device\": got " + shown(section) +
                       ", wanted an object, as {\"id\": 0}");
  }
  DeviceOptions& device = config.options.device;
  for (const auto& [key, value] : section.items()) {
    const std::string path = "device." + key;
    if (key == kDeviceKeys[0]) {
      device.id = read_number(config, path, value, 0, kMostDeviceId);
    } else if (key == kDeviceKeys[1]) {
      device.streams = read_number(config, path, value, 1, DeviceOptions::kMostStreams).value_or(1);
    } else if (key == kDeviceKeys[2]) {
      device.batch_sizes = read_sizes(config, path, value);
    } else if (key == kDeviceKeys[3]) {
      device.memory_mb = read_number(config, path, value, 0, kMostDeviceMemoryMb).value_or(0);
    } else {
      config.fail("unknown key " + shown(Json(key)) + " in \"device\"" + hint(key, kDeviceKeys));
    }
    if (!config.status.ok()) return;
  }
}

void read_weight(Config& config, const Json& value) {
  ModelScheduling& scheduling = config.options.scheduling;
  scheduling.weight =
      read_number(config, "weight", value, 1, ModelScheduling::kMostWeight).value_or(1);
}

void read_priority(Config& config, const Json& value) {
  config.options.scheduling.priority =
      read_number(config, "priority", value, 1, kPriorities).value_or(kUsualPriority);
}

void read_instances(Config& config, const Json& value) {
  config.options.scheduling.instances =
      read_number(config, "instances", value, 1, limits::kMaxWorkers).value_or(0);
}

// The code that knows the engine checks which of them there are.
void read_workers(Config& config, const Json& value) {
  std::vector<uint32_t> workers;
  const bool is_list = value.is_array() && !value.empty();
  for (const Json& item : is_list ? value : Json::array()) {
    const uint64_t number = item.is_number_unsigned() ? item.get<uint64_t>() : UINT64_MAX;
    if (number >= limits::kMaxWorkers) break;
    if (std::ranges::find(workers, number) != workers.end()) break;
    workers.push_back(static_cast<uint32_t>(number));
  }
  if (!is_list || workers.size() != value.size()) {
    return config.fail("key \"workers\": got " + shown(value) +
                       ", wanted a list of different numbers of workers, 0 to " +
                       std::to_string(limits::kMaxWorkers - 1));
  }
  std::ranges::sort(workers);
  config.options.scheduling.workers = std::move(workers);
}

// A label is text that stands in a reply; more of them than this are a file of something else.
constexpr size_t kMostLabels = 65'536;

// 0: it is none.
uint64_t version_of(const Json& value) {
  return value.is_number_unsigned() ? value.get<uint64_t>() : 0;
}

void read_versions(Config& config, const Json& value) {
  constexpr const char* kWanted =
      ", wanted \"all\", \"latest\", {\"latest\": 2} or a list of versions, as [1, 3]";
  VersionPolicy& policy = config.options.versions;
  if (value == "all") return;
  policy.kind = VersionPolicy::Kind::kLatest;
  if (value == "latest") return;
  if (value.is_object() && value.size() == 1 && value.contains("latest")) {
    const auto latest = read_number(config, "versions.latest", value["latest"], 1,
                                    static_cast<uint32_t>(limits::kMaxModels));
    policy.latest = latest.value_or(1);
    return;
  }
  policy.kind = VersionPolicy::Kind::kListed;
  std::vector<uint64_t> numbers;
  for (const Json& item : value.is_array() ? value : Json::array()) {
    numbers.push_back(version_of(item));
  }
  std::ranges::sort(numbers);
  const bool is_twice = std::ranges::adjacent_find(numbers) != numbers.end();
  if (numbers.empty() || numbers.front() == 0 || is_twice) {
    return config.fail("key \"versions\": got " + shown(value) + kWanted);
  }
  for (const uint64_t number : numbers) policy.listed.push_back(std::to_string(number));
}

void read_labels(Config& config, const Json& section) {
  const auto is_list_of_text = [](const Json& list) {
    return list.is_array() && !list.empty() && list.size() <= kMostLabels &&
           std::ranges::all_of(list, [](const Json& one) { return one.is_string(); });
  };
  if (!section.is_object() || !std::ranges::all_of(section, is_list_of_text)) {
    return config.fail("key \"labels\": got " + shown(section) +
                       ", wanted the classes of outputs, as {\"OUTPUT\": [\"cat\", \"dog\"]}");
  }
  config.options.labels = section.get<Labels>();
}

void read_warmup(Config& config, const Json& section) {
  const std::string problem = read_warm_up(section, config.options.warm_up);
  if (!problem.empty()) config.fail(problem);
}

void read_ensemble_key(Config& config, const Json& section) {
  const std::string problem = read_ensemble(section, config.options.ensemble);
  if (!problem.empty()) config.fail(problem);
}

void read_pictures_key(Config& config, const Json& section) {
  const std::string problem = read_pictures(section, config.options.pictures);
  if (!problem.empty()) config.fail(problem);
}

void read_sequences_key(Config& config, const Json& section) {
  const std::string problem = read_sequences(section, config.options.sequences);
  if (!problem.empty()) config.fail(problem);
}

struct Key {
  std::string_view name;
  void (*read)(Config&, const Json&);
};
constexpr std::array kKeys = {Key{"precision", read_precision},
                              Key{"batch_sizes", read_batch_sizes},
                              Key{"rows_are_independent", read_rows_are_independent},
                              Key{"shape_cache", read_shape_cache},
                              Key{"backend", read_backend},
                              Key{"response_cache", read_response_cache},
                              Key{"queue_type", read_queue_type},
                              Key{"weight", read_weight},
                              Key{"priority", read_priority},
                              Key{"instances", read_instances},
                              Key{"workers", read_workers},
                              Key{"device", read_device},
                              Key{"versions", read_versions},
                              Key{"labels", read_labels},
                              Key{"warmup", read_warmup},
                              Key{"ensemble", read_ensemble_key},
                              Key{"pictures", read_pictures_key},
                              Key{"sequences", read_sequences_key}};

std::string hint_of_key(std::string_view name) {
  std::array<std::string_view, kKeys.size()> names;
  std::ranges::transform(kKeys, names.begin(), &Key::name);
  return hint(name, names);
}

// Checks of several keys together.
void check_scheduling(Config& config) {
  const ModelScheduling& scheduling = config.options.scheduling;
  if (scheduling.instances != 0 && !scheduling.workers.empty()) {
    config.fail(
        "keys \"instances\" and \"workers\" are both given; keep \"workers\", each of which has "
        "one "
        "instance");
  } else if (scheduling.is_on_some_workers() && scheduling.queue_type == QueueType::kInline) {
    config.fail("keys \"queue_type\": \"inline\" and \"" +
                std::string(scheduling.instances != 0 ? "instances" : "workers") +
                "\" are both given; \"inline\" runs on the I/O threads, not on workers; keep one");
  }
}

// Its tensors are those that the configuration names in Triton's form.
void check_ensemble(Config& config, const Json& document) {
  StatedEnsemble& ensemble = config.options.ensemble;
  if (ensemble.steps.empty()) return;
  const std::string problem = check_keys_of_ensemble(document);
  if (!problem.empty()) return config.fail(problem);
  const auto name_all = [](const std::vector<StatedTensor>& stated, auto& names) {
    for (const StatedTensor& one : stated) names.push_back(one.name);
  };
  name_all(config.options.stated.inputs, ensemble.inputs);
  if (ensemble.outputs.empty()) name_all(config.options.stated.outputs, ensemble.outputs);
}

std::string line_of(std::string_view text, size_t byte) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
  return std::to_string(1 + std::count(text.begin(), end, '\n'));
}

// nlohmann keeps the last of two equal keys without a word; and it prints recursively, so that a
// deep document quoted in a message would overrun the stack.
struct Keys {
  static constexpr int kMaxDepth = 16;
  // Of the object that is read at each depth; the keys of the document are at depth 1.
  std::array<std::vector<std::string>, kMaxDepth + 2> seen;
  std::optional<std::string> twice;
  bool too_deep = false;

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) too_deep = true;
    if (too_deep) return false;
    if (event == Json::parse_event_t::object_start) seen[static_cast<size_t>(depth) + 1].clear();
    if (event == Json::parse_event_t::key) {
      std::vector<std::string>& keys = seen[static_cast<size_t>(depth)];
      const auto& key = parsed.get_ref<const std::string&>();
      if (std::ranges::find(keys, key) != keys.end()) twice = key;
      keys.push_back(key);
    }
    return true;
  }
};

}  // namespace

Result<ModelOptions> parse_model_config(std::string_view text, std::string_view file) {
  Config config{.file = std::string(file), .options = {}, .status = {}};
  // nlohmann-json takes a NUL for the end of the text and reads nothing behind it.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    config.fail("line " + line_of(text, nul) + " is not JSON: it holds a NUL byte");
    return config.status;
  }
  Keys keys;
  Json document;
  try {
    document = Json::parse(text, std::ref(keys));
  } catch (const Json::parse_error& error) {
    return Status::error(Code::kInvalidArgument, "%s: line %s is not JSON: %s", config.file.c_str(),
                         line_of(text, error.byte == 0 ? 0 : error.byte - 1).c_str(), error.what());
  } catch (const Json::out_of_range& error) {
    // A number beyond a double is no parse_error, and has no place.
    config.fail("got a number that is too large (" + std::string(error.what()) +
                "), wanted one of at most 1.8e308");
    return config.status;
  }
  if (keys.too_deep) {
    config.fail("got values nested more than " + std::to_string(Keys::kMaxDepth) + " deep");
    return config.status;
  }
  if (!document.is_object()) {
    config.fail("got " + shown(document) + ", wanted an object {...}");
    return config.status;
  }
  if (keys.twice) {
    config.fail("key \"" + *keys.twice + "\" is given twice; keep one");
    return config.status;
  }
  for (const auto& [key, value] : document.items()) {
    const auto* const found = std::ranges::find(kKeys, std::string_view(key), &Key::name);
    if (found != kKeys.end()) {
      found->read(config, value);
    } else if (!is_triton_key(key)) {
      config.fail("unknown key " + shown(Json(key)) + hint_of_key(key));
    }
    if (!config.status.ok()) return config.status;
  }
  const std::string problem = read_triton_keys(document, config.options);
  if (!problem.empty()) {
    config.fail(problem);
    return config.status;
  }
  check_scheduling(config);
  check_ensemble(config, document);
  if (!config.status.ok()) return config.status;
  return std::move(config.options);
}

}  // namespace lumen::models
