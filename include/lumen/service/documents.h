// Documents: the JSON of everything that is not infer, for any transport. Constant documents are
// rendered at start.
// Threads: built once, read by any. Memory: the heap at start; write_* into the caller's buffer.
// Errors: write_* return an empty view when the buffer is too small.
#pragma once

#include <lumen/service/catalog.h>

#include <span>
#include <string>
#include <string_view>

namespace lumen::service {

// Whether the first axis of a model's tensors is one of rows, as its configuration tells clients.
// Of a model whose rows depend on each other it is an axis like the others.
[[nodiscard]] bool has_rows(const models::Model& model) noexcept;

class Documents {
 public:
  Documents();

  [[nodiscard]] std::string_view server_metadata() const noexcept { return server_metadata_; }
  // ServerMetadataResponse.
  [[nodiscard]] std::string_view grpc_server_metadata() const noexcept {
    return grpc_server_metadata_;
  }
  // Of one model; `versions`: of its name. Control plane.
  [[nodiscard]] static ModelDocuments describe(const models::Model& model,
                                               std::span<const std::string> versions);
  // Bytes that write_statistics needs at most for `models` models.
  [[nodiscard]] static size_t statistics_bytes(size_t models) noexcept {
    constexpr size_t kBatchBytes = 320;  // of one size
    return 64 + models * (2048 + (models::BatchTimes::kSizes + 1) * kBatchBytes);
  }
  // {"model_stats":[...]} of one model, or of all ready ones with nullptr.
  [[nodiscard]] static std::string_view write_statistics(std::span<char> out,
                                                         const CatalogSnapshot& catalog,
                                                         const models::Model* only) noexcept;

 private:
  std::string server_metadata_;
  std::string grpc_server_metadata_;
};

}  // namespace lumen::service
