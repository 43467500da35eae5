// TritonFigures: the counters of each model by the names that Triton gives them, for dashboards and
// alerts that were made for it. The same numbers as GET /v2/models/stats.
// Threads: one. Memory: the heap. Errors: none.
#pragma once

#include <lumen/service/catalog.h>
#include <lumen/telemetry/prometheus.h>

#include <array>
#include <deque>
#include <span>
#include <vector>

namespace lumen::server {

class TritonFigures {
 public:
  // `catalog` outlives it.
  explicit TritonFigures(const service::CatalogSnapshot& catalog);

  [[nodiscard]] std::span<const telemetry::PrometheusFigure> figures() const noexcept {
    return figures_;
  }

 private:
  using Labels = std::array<telemetry::PrometheusLabel, 2>;

  std::deque<Labels> labels_;  // the figures point into it
  std::vector<telemetry::PrometheusFigure> figures_;
};

}  // namespace lumen::server
