// Warm-up requests of a model: "warmup" of its config.json. Each instance runs them before it
// serves, so that no client waits for work that a backend does at the first request of a shape.
// Threads: one for each instance. Memory: the heap. Errors: Status naming the request, the input,
// the value got and the value wanted.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/metadata.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lumen::models {

class Instance;
class Model;

struct WarmUpInput {
  enum class Data : uint8_t {
    kMadeUp,  // as TrialRun makes them up; texts are empty
    kZeros,   // texts are empty
    kGiven,   // `bytes`
  };
  std::string name;
  ElementType type = ElementType::kFp32;
  Shape shape;
  Data data = Data::kMadeUp;
  std::vector<std::byte> bytes = {};
};

struct WarmUpRequest {
  std::vector<WarmUpInput> inputs;
  uint32_t count = 1;  // so often, one after the other
};

// Whether the model takes these requests, before any instance is there.
[[nodiscard]] Status check_warm_up(const ModelMetadata& metadata,
                                   std::span<const WarmUpRequest> requests);
// Runs them on `instance`. Error: the first run that failed. Requests are checked before.
[[nodiscard]] Status run_warm_up(Model& model, Instance& instance,
                                 std::span<const WarmUpRequest> requests);

}  // namespace lumen::models
