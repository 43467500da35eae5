// Choices of backends and times of models' calls, kept in a JSON file from one start to the next.
// The key: the model's content, its options, the CPU and the backends' versions.
// Threads: control plane, several at once. Memory: the heap. Errors: a file that can't be read or
// written is no cache; it costs the time of measuring again and nothing else.
#pragma once

#include <lumen/models/backend.h>
#include <lumen/models/backend_choice.h>
#include <lumen/models/known_costs.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace lumen::models {

// Of this machine's CPU, as far as compiled code and times depend on it.
[[nodiscard]] std::string cpu_identity();

class ChoiceCache {
 public:
  // Empty: finds nothing, keeps nothing.
  explicit ChoiceCache(std::filesystem::path file) : file_(std::move(file)) {}

  // A short text that follows from the bytes of the model's files.
  [[nodiscard]] static std::string content_of(const ModelSource& source);
  // `backends`: their names and versions. `tables`: the versions of their operator tables.
  [[nodiscard]] static std::string key_of(const ModelSource& source, std::string_view backends,
                                          std::string_view tables);
  [[nodiscard]] std::optional<BackendChoice> find(const std::string& key) const;
  void put(const std::string& key, const BackendChoice& choice) const;
  // The times of a model's calls by one backend.
  [[nodiscard]] std::optional<KnownCosts> find_costs(const std::string& key) const;
  void put_costs(const std::string& key, const KnownCosts& costs) const;

 private:
  // Into the object `part` of the file.
  void write(const char* part, const std::string& key, const std::string& json) const;

  const std::filesystem::path file_;
};

}  // namespace lumen::models
