// Documents: the JSON of everything that is not infer. What never changes is rendered at start.
// Threads: built once, read by any. Memory: the heap at start; write_* into the caller's buffer.
// Says no: write_* return an empty view when the buffer is too small.
#pragma once

#include <lumen/engine/model_repository.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::serve {

class Documents {
 public:
  explicit Documents(const engine::ModelRepository& repository);

  [[nodiscard]] std::string_view server_metadata() const noexcept { return server_metadata_; }
  [[nodiscard]] std::string_view model_metadata(const engine::Model& model) const noexcept {
    return model_metadata_[model.index()];
  }
  [[nodiscard]] std::string_view model_ready(const engine::Model& model) const noexcept {
    return model_ready_[model.index()];
  }
  // Bytes that write_statistics needs at most for `models` models.
  [[nodiscard]] static size_t statistics_bytes(size_t models) noexcept {
    return 64 + models * 2048;
  }
  // {"model_stats":[...]} of one model, or of all ready ones with nullptr.
  [[nodiscard]] std::string_view write_statistics(std::span<char> out,
                                                  const engine::Model* only) const noexcept;

 private:
  const engine::ModelRepository& repository_;
  std::string server_metadata_;
  std::vector<std::string> model_metadata_;
  std::vector<std::string> model_ready_;
};

}  // namespace lumen::serve
