// What a connection says about the server itself: metrics, and the engine's configuration.
// I/O thread only; rendering metrics takes the request's memory, the rest is the control thread's.
#include "serve/connection.h"

#include "serve/io_thread.h"

#include <lumen/telemetry/prometheus.h>

namespace lumen::serve {

void Connection::begin_engine() noexcept {
  if (!is_local_) {
    // Who can reach the port may use the models; who may change the server is a matter of the
    // socket file's owner and mode.
    respond_error(403, "/v2/lumen/engine answers on the unix socket only; see --unix");
    return;
  }
  if (context_->head.method != wire::HttpMethod::kPost) {
    ask_control({});
    return;
  }
  if (context_->head.framing == wire::BodyFraming::kNone || context_->head.content_length == 0) {
    if (context_->head.framing != wire::BodyFraming::kChunked) {
      respond_error(400, "a change needs a body: the \"engine\" section of config.json");
      return;
    }
  }
  begin_body();
}

// The control thread answers by on_infer_done(), as the engine does.
void Connection::ask_control(std::string_view body) noexcept {
  timeout_.unlink();
  state_ = State::kRunning;
  io_.ask_control(*context_, body, io_.loop().peer_credentials(stream_));
}

void Connection::answer_metrics() noexcept {
  const Services& services = io_.services();
  const auto& models = services.repository.models();
  const auto listed = context_->memory.allocate_array<telemetry::PrometheusModel>(models.size());
  for (size_t i = 0; i < listed.size(); ++i) {
    const engine::ModelMetadata& metadata = models[i]->metadata();
    listed[i] = {metadata.name, metadata.version, models[i]->index()};
  }
  telemetry::PrometheusInput input{
      .counters = services.all_counters, .models = listed, .stages = &services.stages};
  if (services.trace_log != nullptr) input.trace = services.trace_log->counters();
  const auto room = context_->memory.allocate_array<char>(telemetry::prometheus_size_bound(input));
  const std::optional<size_t> size = telemetry::write_prometheus(input, room);
  if (!size) {
    respond_error(500, "the metrics do not fit a request's memory; raise --max-body-bytes");
    return;
  }
  respond(200, telemetry::kPrometheusContentType, {room.data(), *size});
}

}  // namespace lumen::serve
