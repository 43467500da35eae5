// Makes the plans of a mix. Control plane; the heap.
#include <lumen/client/mix_plan.h>

namespace lumen::client {

uint32_t clients_of(const MixModel& model, uint32_t clients) noexcept {
  return model.clients != 0 ? model.clients : clients;
}

std::vector<LoadPlan> mix_plans(const std::vector<MixTarget>& targets, bool is_shared,
                                uint32_t clients) {
  std::vector<LoadPlan> plans;
  for (const MixTarget& target : targets) {
    if (is_shared && !plans.empty()) break;
    LoadPlan plan = target.plan;
    plan.clients = is_shared ? clients : clients_of(target.model, clients);
    plan.rate = target.model.rate;
    plans.push_back(std::move(plan));
  }
  if (!is_shared) return plans;
  for (const MixTarget& target : targets) {
    plans.front().mix.push_back({target.plan.request, target.model.weight});
  }
  return plans;
}

}  // namespace lumen::client
