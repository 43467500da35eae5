// See the header.
#include "server/model_figures.h"

#include <lumen/engine/hand_off.h>

namespace lumen::server {

ModelFigures::ModelFigures(const service::CatalogSnapshot& catalog,
                           const answers::ResponseCache& cache) {
  add_backends(catalog);
  add_run_times(catalog);
  add_caches(catalog, cache);
}

void ModelFigures::add_caches(const service::CatalogSnapshot& catalog,
                              const answers::ResponseCache& cache) {
  using Usage = answers::ResponseCache::Usage;
  const auto add = [&](std::string_view name, std::string_view help, uint64_t Usage::* value) {
    for (const service::CatalogModel& entry : catalog.models) {
      const std::optional<Usage> usage = cache.usage(*entry.model);
      if (!usage) continue;
      figures_.push_back({.name = name,
                          .help = help,
                          .type = "gauge",
                          .value = static_cast<double>((*usage).*value),
                          .labels = std::span(add_labels(*entry.model, {})).first(2)});
    }
  };
  add("lumen_cache_bytes",
      "Of the model's response cache, taken by answers, those included that only slow readers "
      "hold.",
      &Usage::bytes);
  add("lumen_cache_max_bytes", "Memory of the model's response cache.", &Usage::max_bytes);
}

void ModelFigures::add_backends(const service::CatalogSnapshot& catalog) {
  for (const service::CatalogModel& entry : catalog.models) {
    const std::string& backend = entry.model->choice().backend;
    if (backend.empty()) continue;
    Labels& labels = add_labels(*entry.model, backend);
    labels[3] = {"precision", entry.model->precision()};
    figures_.push_back({.name = "lumen_model_backend_info",
                        .help = "1 for the backend that serves the model, and its precision.",
                        .type = "gauge",
                        .value = 1,
                        .labels = labels});
  }
  for (const service::CatalogModel& entry : catalog.models) {
    for (const models::TriedBackend& tried : entry.model->choice().tried) {
      for (const models::SizeCost& cost : tried.costs) {
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

void ModelFigures::add_run_times(const service::CatalogSnapshot& catalog) {
  for (const service::CatalogModel& entry : catalog.models) {
    const models::RunCosts& costs = entry.model->run_costs();
    const uint64_t ns = costs.expect_ns(costs.usual_bytes());
    if (ns == 0) continue;
    figures_.push_back({.name = "lumen_model_expected_run_seconds",
                        .help = "The expected time of a run with inputs as large as the last "
                                "one's, as measured.",
                        .type = "gauge",
                        .value = static_cast<double>(ns) / 1e9,
                        .labels = std::span(add_labels(*entry.model, {})).first(2)});
  }
  figures_.push_back({.name = "lumen_hand_off_seconds",
                      .help = "The measured cost of handing a request to a worker: with queue_type "
                              "auto a shorter run is inline.",
                      .type = "gauge",
                      .value = static_cast<double>(engine::hand_off_ns()) / 1e9});
}

ModelFigures::Labels& ModelFigures::add_labels(const models::Model& model,
                                               std::string_view backend) {
  return labels_.emplace_back(Labels{{{"model", model.metadata().name},
                                      {"version", model.metadata().version},
                                      {"backend", backend},
                                      {}}});
}

}  // namespace lumen::server
