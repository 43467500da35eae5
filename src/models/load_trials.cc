// See the header.
#include <lumen/models/load_trials.h>

#include <lumen/base/limits.h>
#include <lumen/memory/request_memory.h>

#include <lumen/models/trial_run.h>
#include "models/model_source.h"

#include <cstddef>
#include <cstdint>

namespace lumen::models {

void try_model(const Backends& backends, std::string_view backend, const ModelSource& source) {
  // One row, rows that the choice of a backend compares, and the default pack.
  constexpr uint32_t kTriedRows[] = {1, 2, limits::kDefaultBatchSize};
  constexpr uint32_t kCompiledRows[] = {1, limits::kDefaultBatchSize};
  constexpr size_t kTrialBytes = size_t{256} << 20;  // virtual until touched
  const Result<Backends::Entry*> entry = backends.find(backend);
  if (!entry.ok()) return;
  const Result<std::unique_ptr<LoadedModel>> loaded = (*entry)->backend->load(with_graph(source));
  if (!loaded.ok()) return;
  const Result<std::unique_ptr<Instance>> instance = (*loaded)->create_instance(kCompiledRows);
  Result<RequestMemory> memory = RequestMemory::create(kTrialBytes);
  if (!instance.ok() || !memory.ok()) return;
  TrialRun trial((*loaded)->metadata(), nullptr, *memory);
  uint32_t first = 0;
  for (const uint32_t rows : kTriedRows) {
    memory->reset(kTrialBytes);
    // A call that fails is told where the model is loaded to be served.
    (void)trial.run(**instance, first++, rows, TrialRun::kUsualFreeSize);
  }
}

}  // namespace lumen::models
