// See the header.
#include "models/choice_cache.h"

#include "models/cache_folder.h"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace lumen::models {
namespace {

using Json = nlohmann::json;

// Of the file's form; another one's file is no cache.
constexpr int kVersion = 2;
// Then the file is begun anew: models come and go, and nobody says which are gone.
constexpr size_t kMaxChoices = 2000;
constexpr const char* kChoices = "choices";
constexpr const char* kCosts = "costs";

// FNV-1a over 64 bits. Two models with one hash get one choice, and that may be the slower
// backend's.
class Hash {
 public:
  void add(std::string_view bytes) noexcept {
    for (const char c : bytes) hash_ = (hash_ ^ static_cast<uint8_t>(c)) * 0x0000'0100'0000'01B3u;
    hash_ = (hash_ ^ 0xFFu) * 0x0000'0100'0000'01B3u;  // ends one text
  }
  void add_file(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    std::array<char, size_t{64} * 1024> buffer;
    while (stream.read(buffer.data(), buffer.size()) || stream.gcount() > 0) {
      add({buffer.data(), static_cast<size_t>(stream.gcount())});
    }
  }
  [[nodiscard]] std::string text() const {
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash_));
    return digits.data();
  }

 private:
  uint64_t hash_ = 0xCBF2'9CE4'8422'2325u;
};

}  // namespace

// Its name and, since a virtual machine's name may say nothing, its instruction sets.
std::string cpu_identity() {
  std::ifstream stream("/proc/cpuinfo");
  std::string found;
  for (std::string line; std::getline(stream, line) && !line.empty();) {
    if (line.starts_with("model name") || line.starts_with("flags")) found += line;
  }
  return found;
}

namespace {

Json read(const std::filesystem::path& file) {
  std::ifstream stream(file);
  Json json = Json::parse(stream, nullptr, false);
  const bool is_ours = json.is_object() && json.contains("version") &&
                       json["version"] == kVersion && json.contains(kChoices) &&
                       json[kChoices].is_object();
  return is_ours ? json : Json{{"version", kVersion}, {kChoices, Json::object()}};
}

std::string text_of(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

Json to_json(const std::vector<SizeCost>& costs) {
  Json all = Json::array();
  for (const SizeCost& cost : costs) all.push_back({{"rows", cost.rows}, {"ns", cost.ns}});
  return all;
}

// Throws Json's exceptions, and for rows or a time of 0.
std::vector<SizeCost> size_costs_from_json(const Json& json) {
  std::vector<SizeCost> costs;
  for (const Json& cost : json) {
    costs.push_back({cost.at("rows").get<uint32_t>(), cost.at("ns").get<uint64_t>()});
    if (costs.back().rows == 0 || costs.back().ns == 0) throw std::out_of_range("a cost of 0");
  }
  return costs;
}

Json to_json(const KnownCosts& costs) {
  Json gains = Json::array();
  for (const auto& [rows, is_gain] : costs.gains_by_packing) {
    gains.push_back({{"rows", rows}, {"gains", is_gain}});
  }
  Json sizes = Json::array();
  for (const auto& [key, of_key] : costs.sizes) {
    sizes.push_back({{"sizes", key}, {"costs", to_json(of_key)}});
  }
  Json json = {{"gains_by_packing", std::move(gains)}, {"sizes", std::move(sizes)}};
  if (costs.request) {
    json["request"] = {{"ns", costs.request->ns}, {"input_bytes", costs.request->input_bytes}};
  }
  return json;
}

// nullopt: of another form than to_json() gives it; then the model is measured again.
std::optional<KnownCosts> costs_from_json(const Json& json) {
  try {
    KnownCosts costs;
    if (const auto request = json.find("request"); request != json.end()) {
      costs.request = {.ns = request->at("ns").get<uint64_t>(),
                       .input_bytes = request->at("input_bytes").get<uint64_t>()};
    }
    for (const Json& one : json.at("gains_by_packing")) {
      costs.gains_by_packing[one.at("rows").get<uint32_t>()] = one.at("gains").get<bool>();
    }
    for (const Json& one : json.at("sizes")) {
      costs.sizes[one.at("sizes").get<std::vector<uint32_t>>()] =
          size_costs_from_json(one.at("costs"));
    }
    return costs;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Json to_json(const BackendChoice& choice) {
  Json tried = Json::array();
  for (const TriedBackend& one : choice.tried) {
    tried.push_back({{"name", one.name}, {"problem", one.problem}, {"costs", to_json(one.costs)}});
  }
  return {{"backend", choice.backend},
          {"why", choice.why},
          {"answers_differ", choice.answers_differ},
          {"tried", std::move(tried)}};
}

// nullopt: of another form than to_json() gives it; then the model is measured again.
std::optional<BackendChoice> from_json(const Json& json) {
  try {
    BackendChoice choice;
    choice.backend = json.at("backend").get<std::string>();
    choice.why = json.at("why").get<std::string>();
    choice.answers_differ = json.at("answers_differ").get<bool>();
    for (const Json& one : json.at("tried")) {
      TriedBackend& tried = choice.tried.emplace_back();
      tried.name = one.at("name").get<std::string>();
      tried.problem = one.at("problem").get<std::string>();
      tried.costs = size_costs_from_json(one.at("costs"));
    }
    return choice;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::filesystem::path default_choices_file() {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / "backends.json";
}

std::string ChoiceCache::content_of(const ModelSource& source) {
  Hash hash;
  hash.add_file(source.file);
  // The weights of OpenVINO's own form lie beside it; those of ONNX may, in files of any name.
  if (source.file.extension() == ".xml") {
    hash.add_file(std::filesystem::path(source.file).replace_extension(".bin"));
  }
  return hash.text();
}

std::string ChoiceCache::key_of(const ModelSource& source, std::string_view backends,
                                std::string_view tables) {
  Hash hash;
  hash.add(source.content.empty() ? content_of(source) : source.content);
  if (source.rows != nullptr) {  // by which a quantised model's backends were judged
    hash.add_file(source.file.parent_path() / "quantization.json");
    hash.add_file(source.file.parent_path() / "quantization.rows");
  }
  hash.add(std::to_string(static_cast<int>(source.options.precision)));
  for (const uint32_t rows : source.options.batch_sizes) hash.add(std::to_string(rows));
  hash.add(cpu_identity());
  const DeviceOptions& device = source.options.device;
  if (device != DeviceOptions()) {
    hash.add(std::to_string(device.id.value_or(UINT32_MAX)) + " " + std::to_string(device.streams) +
             " " + std::to_string(device.memory_mb));
    for (const uint32_t rows : device.batch_sizes) hash.add(std::to_string(rows));
  }
  hash.add(backends);
  hash.add(tables);
  return hash.text();
}

std::optional<BackendChoice> ChoiceCache::find(const std::string& key) const {
  if (file_.empty()) return std::nullopt;
  const Json json = read(file_);
  const auto found = json[kChoices].find(key);
  return found == json[kChoices].end() ? std::nullopt : from_json(*found);
}

void ChoiceCache::put(const std::string& key, const BackendChoice& choice) const {
  write(kChoices, key, text_of(to_json(choice)));
}

std::optional<KnownCosts> ChoiceCache::find_costs(const std::string& key) const {
  if (file_.empty()) return std::nullopt;
  const Json json = read(file_);
  const auto all = json.find(kCosts);
  if (all == json.end() || !all->is_object()) return std::nullopt;
  const auto found = all->find(key);
  return found == all->end() ? std::nullopt : costs_from_json(*found);
}

void ChoiceCache::put_costs(const std::string& key, const KnownCosts& costs) const {
  write(kCosts, key, text_of(to_json(costs)));
}

void ChoiceCache::write(const char* part, const std::string& key, const std::string& text) const {
  if (file_.empty()) return;
  // The file is read and written anew: without this, one of two threads would lose the other's
  // choice. Another process may lose one all the same, which costs measuring it again.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  Json json = read(file_);
  Json& all = json[part];
  if (!all.is_object() || all.size() >= kMaxChoices) all = Json::object();
  all[key] = Json::parse(text, nullptr, false);
  // Renamed into place, so that a reader sees one whole file or the other.
  std::filesystem::path written = file_;
  written += '.';
  written += std::to_string(::getpid());
  std::ofstream stream(written);
  stream << text_of(json) << '\n';
  stream.close();
  if (stream) std::filesystem::rename(written, file_, error);
  if (!stream || error) std::filesystem::remove(written, error);
}

}  // namespace lumen::models
