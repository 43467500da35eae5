// BackendFigures: which backend serves each model, and what was measured when it was chosen, as figures of
// the metrics.
// Threads: one. Memory: the heap; names are those of the snapshot's models, which must outlive it.
// Errors: never.
#pragma once

#include <lumen/service/catalog.h>
#include <lumen/telemetry/prometheus.h>

#include <array>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace lumen::server {

class BackendFigures {
 public:
  explicit BackendFigures(const service::CatalogSnapshot& catalog);

  [[nodiscard]] std::span<const telemetry::PrometheusFigure> figures() const noexcept {
    return figures_;
  }

 private:
  // The last label, `rows`, is left out of figures that have none.
  using Labels = std::array<telemetry::PrometheusLabel, 4>;

  Labels& add_labels(const engine::Model& model, std::string_view backend);

  std::vector<telemetry::PrometheusFigure> figures_;
  std::deque<Labels> labels_;  // the figures point into it
  std::deque<std::string> row_counts_;
};

}  // namespace lumen::server
