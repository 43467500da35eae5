// The parts that tests of calls share: a model of the fake backend, and memory for a call.
// Threads: one. Memory: the heap. Errors: LUMEN_CHECK.
#pragma once

#include <lumen/base/check.h>
#include <lumen/memory/arena.h>
#include <lumen/service/binder.h>

#include "support/fake_backend.h"
#include "support/temp_repository.h"

#include <initializer_list>
#include <memory>
#include <string_view>
#include <utility>

namespace lumen::service {

// One model "m". Set the fake's description of it before.
class OneModel {
 public:
  explicit OneModel(std::shared_ptr<models::FakeControl> fake, std::string_view config = "{}") {
    files_.add_model("m");
    files_.write("m/config.json", config);
    auto opened = models::ModelRepository::open(
        files_.path(), models::make_fake_backend(std::move(fake)), *counters);
    LUMEN_CHECK(opened.ok());
    repository = std::move(*opened);
    model = repository->find("m", "");
  }

  const std::unique_ptr<telemetry::Counters> counters = std::make_unique<telemetry::Counters>();
  std::unique_ptr<models::ModelRepository> repository;
  models::Model* model = nullptr;

 private:
  models::TempRepository files_;
};

inline Arena make_arena(size_t bytes = size_t{1} << 16) {
  return std::move(Arena::create(bytes)).value();
}

inline TensorView tensor_of(ElementType type, std::initializer_list<int64_t> dimensions,
                            size_t byte_size, std::byte* data = nullptr) {
  TensorView tensor{.type = type, .shape = {}, .data = data, .byte_size = byte_size};
  for (const int64_t dimension : dimensions) LUMEN_CHECK(tensor.shape.append(dimension));
  return tensor;
}

}  // namespace lumen::service
