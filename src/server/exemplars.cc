// See the header.
#include "server/exemplars.h"

#include <lumen/telemetry/flight_reader.h>

#include <array>

namespace lumen::server {

std::vector<telemetry::PrometheusExemplar> recent_exemplars(
    const telemetry::Counters& counters, const service::CatalogSnapshot& catalog) {
  std::array<uint64_t, limits::kMaxModels> generations{};  // 0: not served now
  for (const service::CatalogModel& entry : catalog.models) {
    generations[entry.model->index()] = counters.generation(entry.model->index());
  }
  std::vector<telemetry::PrometheusExemplar> exemplars;
  for (size_t shard = 0; shard < counters.stages().shards(); ++shard) {
    for (const auto& [request, generation] : telemetry::read_recent(counters.region(), shard)) {
      constexpr uint8_t kIsRecorded = 1;
      const uint64_t total_ns = request.stage_ns[static_cast<size_t>(telemetry::Stage::kTotal)];
      const bool is_of_model =
          request.model < generations.size() && generations[request.model] == generation;
      const bool has_trace =
          request.traceparent.is_present != 0 && (request.traceparent.flags & kIsRecorded) != 0;
      if (!has_trace || !is_of_model || total_ns == telemetry::RequestRecord::kAbsent) continue;
      exemplars.push_back({.model = request.model,
                           .total_ns = total_ns,
                           .wall_ns = request.received_wall_ns,
                           .traceparent = request.traceparent});
    }
  }
  return exemplars;
}

}  // namespace lumen::server
