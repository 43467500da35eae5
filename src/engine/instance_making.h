// make_instances(): the instances that runners get of models, made by several threads, then
// measured by one.
// Threads: the control plane. Memory: the instances'. Errors: the first failure; with
// kMarkUnavailable the model alone fails.
#pragma once

#include "engine/runner.h"

#include <lumen/models/builders.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lumen::engine {

// A runner and the models that it gets instances of.
struct RunnerModels {
  Runner* runner;
  std::optional<uint32_t> near_cpu;  // where its thread is pinned
  std::vector<models::Model*> models{};
};

// `config`: the runners' own, or with another queue type where the models are to be packed.
[[nodiscard]] Status make_instances(std::span<const RunnerModels> all, const EngineConfig& config,
                                    models::Builders& builders, Runner::OnFailure on_failure);

}  // namespace lumen::engine
