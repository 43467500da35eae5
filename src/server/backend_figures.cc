// See the header.
#include "server/backend_figures.h"

namespace lumen::server {

BackendFigures::BackendFigures(const service::CatalogSnapshot& catalog) {
  for (const service::CatalogModel& entry : catalog.models) {
    const std::string& backend = entry.model->choice().backend;
    if (backend.empty()) continue;
    figures_.push_back({.name = "lumen_model_backend_info",
                        .help = "1 for the backend that serves the model.",
                        .type = "gauge",
                        .value = 1,
                        .labels = std::span(add_labels(*entry.model, backend)).first(3)});
  }
  for (const service::CatalogModel& entry : catalog.models) {
    for (const engine::TriedBackend& tried : entry.model->choice().tried) {
      for (const engine::SizeCost& cost : tried.costs) {
        Labels& labels = add_labels(*entry.model, tried.name);
        labels[3] = {"rows", row_counts_.emplace_back(std::to_string(cost.rows))};
        figures_.push_back({.name = "lumen_model_backend_trial_seconds",
                            .help = "The fastest call when the backend was chosen.",
                            .type = "gauge",
                            .value = static_cast<double>(cost.ns) / 1e9,
                            .labels = labels});
      }
    }
  }
}

BackendFigures::Labels& BackendFigures::add_labels(const engine::Model& model,
                                                   std::string_view backend) {
  return labels_.emplace_back(Labels{{{"model", model.metadata().name},
                                      {"version", model.metadata().version},
                                      {"backend", backend},
                                      {}}});
}

}  // namespace lumen::server
