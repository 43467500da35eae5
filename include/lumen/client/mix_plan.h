// MixPlan: the plans of one row of a mix, and which model each tally of theirs is of.
// Threads: values. Memory: the heap; control plane. Errors: never.
#pragma once

#include <lumen/client/load_plan.h>
#include <lumen/client/mix_spec.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lumen::client {

// A model of the mix as it will be asked: its plan with all but clients and rate.
struct MixTarget {
  MixModel model;
  std::string inputs;  // "data FP32[1,3,224,224]"
  LoadPlan plan;
};

// `clients`: of MixSpec::rows. The tallies of run_loads() with these are in the order of the
// models.
[[nodiscard]] std::vector<LoadPlan> mix_plans(const std::vector<MixTarget>& targets, bool is_shared,
                                              uint32_t clients);

// Where each model has clients of its own: how many.
[[nodiscard]] uint32_t clients_of(const MixModel& model, uint32_t clients) noexcept;

}  // namespace lumen::client
