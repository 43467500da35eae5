// Choices of backends, kept in a JSON file from one start to the next. The key of a choice: the
// model's content, its options, the CPU and the backends' versions.
// Threads: control plane, several at once. Memory: the heap. Errors: a file that can't be read or
// written is no cache; it costs the time of measuring again and nothing else.
#pragma once

#include <lumen/models/backend.h>
#include <lumen/models/backend_choice.h>

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

  // `backends`: their names and versions. `tables`: the versions of their operator tables.
  [[nodiscard]] static std::string key_of(const ModelSource& source, std::string_view backends,
                                          std::string_view tables);
  [[nodiscard]] std::optional<BackendChoice> find(const std::string& key) const;
  void put(const std::string& key, const BackendChoice& choice) const;

 private:
  const std::filesystem::path file_;
};

}  // namespace lumen::models
