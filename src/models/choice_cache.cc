// See the header.
#include "models/choice_cache.h"

#include <lumen/models/compiled_cache.h>

#include "models/cache_folder.h"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <system_error>

namespace lumen::models {
namespace {

using Json = nlohmann::json;

// Of the file's form; another one's file is no cache.
constexpr int kVersion = 2;
// Then the file is begun anew: models come and go, and nobody says which are gone.
constexpr size_t kMaxChoices = 2000;

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
                       json["version"] == kVersion && json.contains("choices") &&
                       json["choices"].is_object();
  return is_ours ? json : Json{{"version", kVersion}, {"choices", Json::object()}};
}

Json to_json(const BackendChoice& choice) {
  Json tried = Json::array();
  for (const TriedBackend& one : choice.tried) {
    Json costs = Json::array();
    for (const SizeCost& cost : one.costs) costs.push_back({{"rows", cost.rows}, {"ns", cost.ns}});
    tried.push_back({{"name", one.name}, {"problem", one.problem}, {"costs", std::move(costs)}});
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
      for (const Json& cost : one.at("costs")) {
        tried.costs.push_back({cost.at("rows").get<uint32_t>(), cost.at("ns").get<uint64_t>()});
      }
    }
    return choice;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::filesystem::path default_choices_file() {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / "backends.json";
}

std::string content_of_model(const std::filesystem::path& file) {
  Hash hash;
  hash.add_file(file);
  // Those of ONNX may lie beside it, too, in files of any name.
  if (file.extension() == ".xml") {
    hash.add_file(std::filesystem::path(file).replace_extension(".bin"));
  }
  return hash.text();
}

std::string ChoiceCache::key_of(const ModelSource& source, std::string_view backends,
                                std::string_view tables) {
  Hash hash;
  hash.add(source.content.empty() ? content_of_model(source.file) : source.content);
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
  const auto found = json["choices"].find(key);
  return found == json["choices"].end() ? std::nullopt : from_json(*found);
}

void ChoiceCache::put(const std::string& key, const BackendChoice& choice) const {
  if (file_.empty()) return;
  // The file is read and written anew: without this, one of two threads would lose the other's
  // choice. Another process may lose one all the same, which costs measuring it again.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  Json json = read(file_);
  if (json["choices"].size() >= kMaxChoices) json["choices"] = Json::object();
  json["choices"][key] = to_json(choice);
  // Renamed into place, so that a reader sees one whole file or the other.
  std::filesystem::path written = file_;
  written += '.';
  written += std::to_string(::getpid());
  std::ofstream stream(written);
  stream << json.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
  stream.close();
  if (stream) std::filesystem::rename(written, file_, error);
  if (!stream || error) std::filesystem::remove(written, error);
}

}  // namespace lumen::models
