// Which of several backends that have loaded a model serves it: the fastest of those whose answers
// are the reference's.
// Threads: one, while no other loads or measures. Memory: each candidate's own. Errors: none; where
// the reference serves because calls failed or answers differ, the choice says so.
#pragma once

#include <lumen/base/limits.h>
#include <lumen/memory/request_memory.h>
#include <lumen/models/backend_choice.h>
#include <lumen/models/backends.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lumen::models {

// A backend that has loaded the model.
struct Candidate {
  Backends::Entry* entry;
  std::unique_ptr<LoadedModel> loaded;
  std::unique_ptr<Instance> instance;
  RequestMemory memory;
  TriedBackend* report;  // its entry in the choice
};

// Sizes of a call that are measured: one row, and the default pack of batched and inline. Instances
// are made for them.
inline constexpr std::array<uint32_t, 2> kMeasuredRows = {1, limits::kDefaultBatchSize};
// Of each candidate's memory; virtual until touched.
inline constexpr size_t kTrialBytes = size_t{256} << 20;

// The index of the one to serve, of two or more with instances. `choice` gets the grounds, and each
// report its costs. Answers that were judged by recorded rows (`source.rows`) are not compared with
// each other: each backend may round to other steps.
[[nodiscard]] size_t compare_backends(std::vector<Candidate>& candidates, const ModelSource& source,
                                      const LoadOptions& options, BackendChoice& choice);

}  // namespace lumen::models
