// Exemplars of /metrics: recent requests whose clients record their trace, by the flight recorder.
// Threads: any, while requests are recorded. Memory: the heap. Errors: none.
#pragma once

#include <lumen/service/catalog.h>
#include <lumen/telemetry/counters.h>
#include <lumen/telemetry/prometheus.h>

#include <vector>

namespace lumen::server {

// In the order of their end, those of each I/O thread after each other.
[[nodiscard]] std::vector<telemetry::PrometheusExemplar> recent_exemplars(
    const telemetry::Counters& counters, const service::CatalogSnapshot& catalog);

}  // namespace lumen::server
