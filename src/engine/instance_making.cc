// See the header for threads, memory and errors.
#include "engine/instance_making.h"

#include "engine/instance_memory.h"
#include "engine/model_slot.h"

#include <algorithm>
#include <cstddef>

namespace lumen::engine {

Status make_instances(std::span<const RunnerModels> all, const EngineConfig& config,
                      models::Builders& builders, Runner::OnFailure on_failure) {
  SharedInstances shared;
  InstanceMemory memory;
  size_t most_models = 0;
  for (const RunnerModels& one : all) {
    one.runner->expect_instances(one.models);
    most_models = std::max(most_models, one.models.size());
  }
  // Instances of one model side by side, for all runners: then their parts of the memory are right.
  std::vector<models::Builders::Job> jobs;
  for (size_t model = 0; model < most_models; ++model) {
    for (const RunnerModels& one : all) {
      if (model >= one.models.size()) continue;
      jobs.push_back(
          {.body = [&, model] { one.runner->make_instance(model, shared, memory, config); },
           .near_cpu = one.near_cpu});
    }
  }
  builders.run(jobs);
  Status status;
  const auto measure = [&] {
    for (const RunnerModels& one : all) {
      const Status own = one.runner->set_up(memory, on_failure);
      if (status.ok()) status = own;
    }
  };
  const models::Builders::Job measuring{.body = measure, .near_cpu = std::nullopt};
  builders.run({&measuring, 1});
  return status;
}

}  // namespace lumen::engine
