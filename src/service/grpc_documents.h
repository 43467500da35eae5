// The documents of gRPC's metadata calls, as messages of inference.GRPCInferenceService.
// Threads: the control plane. Memory: the heap. Errors: std::bad_alloc.
#pragma once

#include <lumen/models/model_repository.h>

#include <span>
#include <string>
#include <string_view>

namespace lumen::service {

// ServerMetadataResponse.
[[nodiscard]] std::string describe_server(std::string_view version,
                                          std::span<const std::string_view> extensions);
// ModelMetadataResponse. `versions`: of its name.
[[nodiscard]] std::string describe_model(const models::Model& model,
                                         std::span<const std::string> versions);

}  // namespace lumen::service
