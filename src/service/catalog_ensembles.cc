// The catalog's parts for ensembles. See the header for threads, memory and errors.
#include <lumen/service/catalog.h>

#include <utility>

namespace lumen::service {

namespace {

models::FindModel finder_in(std::shared_ptr<const CatalogSnapshot> snapshot) {
  return [snapshot = std::move(snapshot)](
             std::string_view name, std::string_view version) -> std::shared_ptr<models::Model> {
    const CatalogModel* const found = snapshot->find(name, version);
    return found == nullptr ? nullptr : found->model;
  };
}

}  // namespace

models::FindModel Catalog::finder() const { return finder_in(snapshot()); }

void Catalog::fit_ensembles(const std::shared_ptr<models::Model>& removed,
                            const std::shared_ptr<models::Model>& added) {
  const models::Model& changed = added != nullptr ? *added : *removed;
  if (changed.is_ensemble()) return;  // none is a step
  auto next = std::make_shared<CatalogSnapshot>();
  next->models = snapshot()->models;
  std::erase_if(next->models, [&](const CatalogModel& one) { return one.model == removed; });
  if (added != nullptr) next->insert({added, nullptr, ModelNeed(*added)});
  const models::FindModel find = finder_in(next);
  const std::string& name = changed.metadata().name;
  const std::shared_ptr<const CatalogSnapshot> now = snapshot();
  for (const CatalogModel& entry : now->models) {
    if (!entry.model->is_ensemble() || !entry.model->stated_ensemble().has_step_of(name)) continue;
    const Result<std::shared_ptr<models::Model>> fitted = repository_.make_anew(*entry.model, find);
    // Without a free index it can't be refused as one model more: no request may find it.
    if (fitted.ok()) {
      (void)serve(*fitted, entry.model);  // an ensemble has no instance that could fail
    } else {
      leave(entry.model);
    }
  }
}

// The models of an ensemble come with it. One that can't be loaded is the ensemble's reason. Their
// own steps do not come: an ensemble is no step.
void Catalog::bring_steps(std::string_view name, const std::string* config) {
  const Result<std::vector<models::ModelRepository::OnDisk>> found =
      repository_.on_disk(name, config);
  if (!found.ok()) return;  // reload_locked() says why
  for (const auto& one : *found) {
    for (const std::string& step : one.steps) {
      if (step != name && snapshot()->find(step, {}) == nullptr) {
        (void)reload_locked(step, nullptr);
      }
    }
  }
}

}  // namespace lumen::service
