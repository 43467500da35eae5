// The records of a request once its reply is out. I/O thread only; allocates nothing.
#include "transports/http/http_transport.h"

namespace lumen::http {

void HttpTransport::record(const RequestContext& context) noexcept {
  const models::InferRequest& infer = context.call.infer;
  if (infer.model == nullptr || context.route.endpoint != Endpoint::kInfer) return;
  const service::ReplyMoment out = service::ReplyMoment::now();
  // The time of a compression is that client's choice, and no measure for the budgets of others.
  if (infer.times.postprocessed_ns != 0 && context.compression.owner == nullptr) {
    reply_time_.add(out.now_ns - infer.times.postprocessed_ns);
  }
  const auto transport = context.connection->is_carried() ? telemetry::TransportKind::kHttp2
                                                          : telemetry::TransportKind::kHttp;
  thread_.recorder.record(context.call, transport, context.reply.status(),
                          context.infer_head.id.value_or(""), out);
}

}  // namespace lumen::http
