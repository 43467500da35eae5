// A model's configuration as Triton writes it (ModelConfig of model_config.proto, as JSON), for
// clients that size and shape their requests by it.
// Threads: any. Memory: the writer's. Errors: none.
#pragma once

#include <lumen/models/model_repository.h>
#include <lumen/wire/json_writer.h>

namespace lumen::service {

// Rows of one request that the configuration names as the most, unless the model's own names
// others. Nothing refuses more: the memory of a request bounds them. As large as the largest size
// that config.json may name in batch_sizes.
inline constexpr uint64_t kConfiguredRows = 4096;

// `model` is ready.
void write_triton_config(wire::JsonWriter& json, const models::Model& model);

}  // namespace lumen::service
