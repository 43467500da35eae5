// CompiledCache: models as a backend has compiled them, and times of their calls, in files that the
// next start reads. A file is found by its identity, a text that says all that its bytes depend on.
// Threads: any, several at once. Memory: the heap. Errors: a file that can't be read, is damaged
// or another user's is none; one that can't be written is not kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::models {

class CompiledCache {
 public:
  // Of all its files; the least recently used go first.
  static constexpr uint64_t kMostBytes = uint64_t{1} << 30;

  // The folder is made when a file is kept, for this user alone.
  explicit CompiledCache(std::filesystem::path folder, uint64_t most_bytes = kMostBytes)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}

  [[nodiscard]] std::optional<std::string> find(std::string_view identity) const;
  void put(std::string_view identity, std::string_view compiled);
  // Its bytes were no model: it is not found again.
  void remove(std::string_view identity) noexcept;

 private:
  [[nodiscard]] std::filesystem::path path_of(std::string_view identity) const;
  [[nodiscard]] bool is_ours() const;
  // Both hold `writing_`.
  void make_room(uint64_t bytes);
  struct File;
  [[nodiscard]] std::vector<File> all_files() const;

  const std::filesystem::path folder_;
  const uint64_t most_bytes_;
  std::mutex writing_;
  std::optional<uint64_t> bytes_;  // of all files, as far as this process knows
};

// A short text that follows from the bytes of a model's file, with the weights beside it of
// OpenVINO's own form.
[[nodiscard]] std::string content_of_model(const std::filesystem::path& file);

// $XDG_CACHE_HOME/lumen/compiled, or below $HOME/.cache; empty where the environment names neither.
[[nodiscard]] std::filesystem::path default_compiled_folder();

}  // namespace lumen::models
