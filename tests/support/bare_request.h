// BareRequest: a request of a model that has no backend, for tests of code that only moves
// requests.
// Threads: as InferRequest. Memory: the models live as long as the test program. Errors: none.
#pragma once

#include <lumen/models/infer_request.h>
#include <lumen/models/model_repository.h>

#include <memory>
#include <string>
#include <vector>

namespace lumen::models {

// The model with that index, the same at each call.
inline Model& bare_model(uint32_t index = 0) {
  static telemetry::Counters counters;
  static const auto indices = std::make_shared<ModelIndices>();
  static std::vector<std::unique_ptr<Model>> models;
  while (models.size() <= index) {
    const auto next = static_cast<uint32_t>(models.size());
    ModelSource source;
    source.name = std::to_string(next);
    models.push_back(std::make_unique<Model>(indices, next, counters, source));
  }
  return *models[index];
}

struct BareRequest : InferRequest {
  explicit BareRequest(uint32_t model_index = 0) { model = &bare_model(model_index); }
};

}  // namespace lumen::models
