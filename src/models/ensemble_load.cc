// The parts of ModelRepository that load ensembles.
#include "models/ensemble_load.h"

#include <lumen/base/limits.h>
#include <lumen/models/model_repository.h>

#include "models/labels.h"
#include "models/metadata_limits.h"
#include "models/repository_scan.h"

#include <string>
#include <utility>

namespace lumen::models {

Status no_index_is_free() {
  return Status::error(Code::kTooLarge, "%zu model versions are served, and no more can be",
                       limits::kMaxModels);
}

FindModel find_among(std::span<const std::shared_ptr<Model>> models) {
  return [models](std::string_view name, std::string_view version) {
    std::shared_ptr<Model> found;
    for (const std::shared_ptr<Model>& model : models) {
      if (model->metadata().name != name) continue;
      if (!version.empty() && model->metadata().version != version) continue;
      const bool is_better = found == nullptr || model->state() == ModelState::kReady ||
                             found->state() != ModelState::kReady;
      if (is_better) found = model;
    }
    return found;
  };
}

Result<std::shared_ptr<Model>> ModelRepository::make_anew(const Model& before,
                                                          const FindModel& find) {
  std::shared_ptr<Model> model = make_model({*before.source_, 0, {}});
  if (model == nullptr) return no_index_is_free();
  load_ensemble(*model, *before.source_, find);
  return model;
}

void ModelRepository::load_ensemble(Model& model, const ModelSource& found, const FindModel& find) {
  model.source_ = std::make_shared<const ModelSource>(found);
  if (!model.reason().empty()) return;
  const Status status = load_ensemble_into(model, found, find);
  if (status.ok()) return;
  model.mark_unavailable(found.name + "/config.json: " + std::string(status.message()));
}

Status ModelRepository::load_ensemble_into(Model& model, const ModelSource& found,
                                           const FindModel& find) {
  Result<PlannedEnsemble> planned = plan_ensemble(found.options.ensemble, find);
  if (!planned.ok()) return planned.status();
  ModelMetadata& metadata = model.metadata_;
  metadata.platform = "ensemble";
  metadata.inputs = std::move(planned->inputs);
  metadata.outputs = std::move(planned->outputs);
  LUMEN_RETURN_IF_ERROR(check_metadata(metadata));
  LUMEN_RETURN_IF_ERROR(add_labels(found, metadata.outputs));
  LUMEN_RETURN_IF_ERROR(check_stated(found.options.stated, metadata));
  model.stated_rows_ = found.options.stated.max_batch_size;
  model.input_names_ = TensorNames(metadata.inputs);
  model.output_names_ = TensorNames(metadata.outputs);
  for (const EnsemblePlan::Step& step : planned->plan.steps) {
    const bool has_rows = has_batch_axis(step.model->metadata());
    const std::string why = has_rows ? step.model->why_not_packed() : "it has no axis of rows";
    if (why.empty()) continue;
    model.why_not_packed_ = "model '" + step.model->metadata().name + "': " + why;
    break;
  }
  model.choice_.backend = "ensemble";
  for (const EnsemblePlan::Step& step : planned->plan.steps) {
    const ModelMetadata& run = step.model->metadata();
    model.choice_.why.append(model.choice_.why.empty() ? "it runs " : ", ");
    model.choice_.why.append(run.name).append("/").append(run.version);
  }
  model.response_cache_ = found.options.response_cache;
  model.ensemble_ = std::make_unique<const EnsemblePlan>(std::move(planned->plan));
  model.state_ = ModelState::kReady;
  return {};
}

}  // namespace lumen::models
