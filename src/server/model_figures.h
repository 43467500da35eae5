// ModelFigures: of each model its backend, the times that were measured when it was chosen, the use
// of its response cache, and its live sequences, as figures of the metrics.
// Threads: one. Memory: the heap; names are those of the snapshot's models, which must outlive it.
// Errors: never.
#pragma once

#include <lumen/answers/response_cache.h>
#include <lumen/sequences/sequences.h>
#include <lumen/service/catalog.h>
#include <lumen/telemetry/prometheus.h>

#include <array>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace lumen::server {

class ModelFigures {
 public:
  ModelFigures(const service::CatalogSnapshot& catalog, const answers::ResponseCache& cache,
               const sequences::Sequences& sequences);

  [[nodiscard]] std::span<const telemetry::PrometheusFigure> figures() const noexcept {
    return figures_;
  }

 private:
  void add_backends(const service::CatalogSnapshot& catalog);
  // The times that decide how requests go with the queue type `auto`.
  void add_run_times(const service::CatalogSnapshot& catalog);
  void add_caches(const service::CatalogSnapshot& catalog, const answers::ResponseCache& cache);
  void add_sequences(const service::CatalogSnapshot& catalog,
                     const sequences::Sequences& sequences);
  // The last label, `rows` or `precision`, is left out of figures that have none.
  using Labels = std::array<telemetry::PrometheusLabel, 4>;

  Labels& add_labels(const models::Model& model, std::string_view backend);

  std::vector<telemetry::PrometheusFigure> figures_;
  std::deque<Labels> labels_;  // the figures point into it
  std::deque<std::string> row_counts_;
};

}  // namespace lumen::server
