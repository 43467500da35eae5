// See the header.
#include "server/model_figures.h"

#include <lumen/engine/hand_off.h>

namespace lumen::server {

ModelFigures::ModelFigures(const service::CatalogSnapshot& catalog,
                           const answers::ResponseCache& cache,
                           const sequences::Sequences& sequences) {
  add_backends(catalog);
  add_run_times(catalog);
  add_caches(catalog, cache);
  add_sequences(catalog, sequences);
}

void ModelFigures::add_sequences(const service::CatalogSnapshot& catalog,
                                 const sequences::Sequences& sequences) {
  using Usage = sequences::Sequences::Usage;
  struct OfModel {
    const models::Model* model;
    Usage usage;
  };
  std::vector<OfModel> all;
  for (const service::CatalogModel& entry : catalog.models) {
    if (const std::optional<Usage> usage = sequences.usage(*entry.model)) {
      all.push_back({entry.model.get(), *usage});
    }
  }
  const auto add = [&](std::string_view name, std::string_view help, std::string_view type,
                       uint64_t Usage::* value) {
    for (const OfModel& one : all) {
      figures_.push_back({.name = name,
                          .help = help,
                          .type = type,
                          .value = static_cast<double>(one.usage.*value),
                          .labels = std::span(add_labels(*one.model, {})).first(2)});
    }
  };
  add("lumen_sequences", "Live sequences of a model that keeps states.", "gauge", &Usage::live);
  add("lumen_sequences_max", "The most live sequences of the model.", "gauge", &Usage::most);
  add("lumen_sequence_state_bytes", "States of the model's live sequences.", "gauge",
      &Usage::state_bytes);
  add("lumen_sequences_started_total", "Sequences that have begun since the model was loaded.",
      "counter", &Usage::started);
  add("lumen_sequences_dropped_total",
      "Of these, dropped because no request came for their idle time.", "counter", &Usage::dropped);
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
