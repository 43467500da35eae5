// The meaning of a request: routes, models, documents, the engine. Replies: request_reply.cc. I/O
// thread only; allocates nothing but from the request's memory.
#include "transports/http/request_handler.h"

#include "transports/http/http_transport.h"
#include "transports/http/request_job.h"
#include "transports/http/static_pages.h"

#include <lumen/service/binder.h>
#include <lumen/wire/accept.h>
#include <lumen/wire/status_map.h>
#include <lumen/wire/traceparent.h>

#include <lumen/base/check.h>

#include <algorithm>

namespace lumen::http {
namespace {

using wire::BodyFraming;
using wire::HttpMethod;

// A client's text is echoed in errors, but no more of it than `most`.
int echo_width(std::string_view text, size_t most) noexcept {
  return static_cast<int>(std::min(text.size(), most));
}

bool takes(const EndpointTraits& endpoint, HttpMethod method) noexcept {
  const bool is_get = method == HttpMethod::kGet || method == HttpMethod::kHead;
  return is_get ? endpoint.takes_get : method == HttpMethod::kPost && endpoint.takes_post;
}

// The text of the job: a scraper names the formats with weights, others name none.
std::string_view metrics_format(std::string_view accept) noexcept {
  const int text = wire::quality_of(accept, "text/plain");
  const int open_metrics = wire::quality_of(accept, "application/openmetrics-text");
  const int protobuf = wire::quality_of(accept, "application/vnd.google.protobuf");
  if (protobuf > 0 && protobuf >= std::max(text, open_metrics)) return service::kMetricsProtobuf;
  return open_metrics > 0 && open_metrics >= text ? service::kOpenMetrics : std::string_view();
}

// The raw form (Inference-Header-Content-Length: 0): the whole body is the only input, batch 1 or
// as many rows as the size says; all outputs leave as binary.
Status bind_raw(RequestContext& context, size_t tensor_bytes) noexcept {
  context.infer_head.binary_data_output = true;
  service::Binder binder(context.call, *context.call.infer.model);
  LUMEN_RETURN_IF_ERROR(binder.only_input(tensor_bytes));
  return binder.inputs_named();
}

// The memory that its body may take, by its head.
service::BodySize body_size_of(const RequestContext& context) noexcept {
  const wire::HttpHead& head = context.head();
  service::BodySize body;
  // How long a compressed body becomes only its end says, as that of a chunked one.
  if (head.framing == BodyFraming::kLength && head.content_encoding.empty()) {
    const size_t total = head.content_length;
    body.text_bytes = std::min<size_t>(head.inference_header_length.value_or(total), total);
    body.binary_bytes = total - body.text_bytes;
    if (!context.buffer.fits(body.text_bytes)) {
      body.collected_bytes = body.text_bytes + wire::JsonParser::kPadding;
    }
  }
  return body;
}

}  // namespace

Next RequestHandler::on_head(RequestContext& context, net::Stream& stream, bool is_local) noexcept {
  const wire::HttpHead& head = context.head();
  host_.counters().add("requests");
  if (context.connection->is_carried()) host_.counters().add("http2_requests");
  context.call.infer.times.received_ns = context.head_reader.first_byte_ns();
  context.close_after = !head.keep_alive || host_.draining();
  context.stream = &stream;
  context.is_local = is_local;
  context.body.begin(head);
  context.route = route_path(head.path);
  decode_names(context.route, context.memory);
  const size_t limit = host_.services().options.max_body_bytes;
  if (context.body.left() > limit) {
    context.close_after = true;
    return refuse(context,
                  Status::error(Code::kTooLarge,
                                "body of %llu bytes is above the limit of %zu; send less or start "
                                "the server with a larger --max-body-bytes",
                                static_cast<unsigned long long>(context.body.left()), limit));
  }
  if (is_page_elsewhere(context, stream, is_local)) {
    return refuse(context, Status::error(Code::kForbidden,
                                         "Host '%.*s' is no address or name of this machine, and "
                                         "the request is a browser's; if that name is yours, start "
                                         "the server with it in --allowed-hosts",
                                         echo_width(head.host, 255), head.host.data()));
  }
  // Until something wants it, a body that is still to come is dropped after the reply.
  const Endpoint endpoint = context.route.endpoint;
  if (endpoint == Endpoint::kUnknown) {
    return refuse(context,
                  Status::error(Code::kNotFound,
                                "path '%.*s' is not known; GET /openapi.json lists the known ones",
                                echo_width(head.path, 200), head.path.data()));
  }
  if (head.method_name == "OPTIONS" && head.is_preflight && !head.origin.empty()) {
    return answer_preflight(context);
  }
  const EndpointTraits traits = traits_of(endpoint);
  if (const Status known = check_key(context); !known.ok()) {
    return refuse(context, known, "WWW-Authenticate: Bearer\r\n");
  }
  if (!takes(traits, head.method)) {
    const char* const wanted = !traits.takes_post ? "GET"
                               : traits.takes_get ? "GET or POST"
                                                  : "POST";
    return refuse(context, Status::error(Code::kMethodNotAllowed, "this path wants %s", wanted),
                  !traits.takes_post ? "Allow: GET, HEAD\r\n"
                  : traits.takes_get ? "Allow: GET, HEAD, POST\r\n"
                                     : "Allow: POST\r\n");
  }
  if (const Status allowed = check_audience(traits.audience, context); !allowed.ok()) {
    return refuse(context, allowed);
  }
  if (endpoint == Endpoint::kInfer) return begin_infer(context);
  return topic_of(endpoint) ? begin_job(context) : answer_document(context);
}

// A browser's, asking for a name that is not this machine's: that name may be the page's own,
// pointed here to get at servers that only this machine may reach. No browser opens a unix socket.
bool RequestHandler::is_page_elsewhere(const RequestContext& context, net::Stream& stream,
                                       bool is_local) noexcept {
  if (!context.head().from_browser || is_local) return false;
  const std::optional<sockaddr_storage> own = context.connection->loop().own_address(stream);
  const auto* address = own ? reinterpret_cast<const sockaddr*>(&*own) : nullptr;
  return !host_.services().hosts.allows(context.head().host, address);
}

// The body's memory is reserved before it is read: once that has begun it is read to its end, so
// that half-read requests can't wait for each other.
Next RequestHandler::begin_infer(RequestContext& context) noexcept {
  const wire::HttpHead& head = context.head();
  if (!head.traceparent.empty()) {
    context.call.traceparent = wire::parse_traceparent(head.traceparent).value_or(Traceparent{});
  }
  const service::Admission admission =
      host_.thread().intake.admit({.model = context.route.model,
                                   .version = context.route.version,
                                   .body = body_size_of(context),
                                   .outside_ns = host_.outside_ns()},
                                  context.call, context.memory, host_.contexts());
  if (admission == service::Admission::kRefused) return refuse(context, context.call.infer.status);
  const auto coding = wire::parse_content_coding(head.content_encoding);
  if (!coding) return refuse_coding(context);
  context.body.decode_by(*coding);
  if (head.framing == BodyFraming::kNone) {
    return refuse(
        context,
        Status::error(Code::kInvalidArgument,
                      "an infer request needs a body: send Content-Length or chunked coding"));
  }
  return admission == service::Admission::kAdmitted ? Next::kReadBody : Next::kWaitForRoom;
}

Next RequestHandler::answer_document(RequestContext& context) noexcept {
  const Route& route = context.route;
  if (!route.model.empty()) {
    const service::CatalogModel* entry =
        host_.thread().intake.catalog().find(route.model, route.version);
    if (entry == nullptr)
      return refuse(context, service::model_not_found(route.model, route.version));
    if (entry->model->state() == models::ModelState::kReady)
      return answer_of_model(context, *entry);
    const Status unavailable = service::model_unavailable(*entry->model);
    if (route.endpoint != Endpoint::kModelMetadata) return refuse(context, unavailable);
    return reply_copy(context, entry->documents->metadata, wire::http_status(unavailable.code()));
  }
  switch (route.endpoint) {
    case Endpoint::kLive: return reply(context, R"({"live":true})");
    case Endpoint::kReady: return answer_ready(context);
    case Endpoint::kServerMetadata:
      return reply(context, host_.services().documents.server_metadata());
    case Endpoint::kAllStatistics: return answer_statistics(context, nullptr);
    case Endpoint::kPage: return answer_page(context);
    case Endpoint::kMetrics:
      return host_.ask(context, host_.services().metrics, metrics_format(context.head().accept));
    // As a server without a GPU: clients ask for these whether they use them or not.
    case Endpoint::kCudaRegions:
      if (!route.region.empty()) return refuse(context, service::region_not_found(route.region));
      return reply(context, "[]");
    case Endpoint::kUnregisterCudaRegion: return reply(context, "{}");
    case Endpoint::kRegisterCudaRegion:
      return refuse(context,
                    Status::error(Code::kUnsupported,
                                  "CUDA shared memory is not supported; register system shared "
                                  "memory, or send the tensors in the request"));
    default: break;
  }
  return refuse(context,
                Status::error(Code::kNotFound, "the path names no model; write /v2/models/NAME"));
}

Next RequestHandler::answer_ready(RequestContext& context) noexcept {
  const service::CatalogSnapshot& catalog = host_.thread().intake.catalog();
  const service::Readiness& readiness = host_.services().readiness;
  if (host_.draining()) return refuse(context, service::shutting_down());
  if (!readiness.is_ready(catalog)) return refuse(context, readiness.reason(catalog));
  return reply(context, R"({"ready":true})");
}

Next RequestHandler::answer_page(RequestContext& context) noexcept {
  std::string_view path = context.head().path;
  if (path.size() > 1 && path.back() == '/') path.remove_suffix(1);  // as route_path()
  const StaticPage* const page = find_page(path);
  LUMEN_CHECK(page != nullptr);
  return reply(context, page->body, page->content_type, 200, kPageHeaders);
}

Next RequestHandler::answer_of_model(RequestContext& context,
                                     const service::CatalogModel& entry) noexcept {
  switch (context.route.endpoint) {
    case Endpoint::kModelMetadata: return reply_copy(context, entry.documents->metadata);
    case Endpoint::kModelReady: return reply_copy(context, entry.documents->ready);
    case Endpoint::kModelConfig: return reply_copy(context, entry.documents->config);
    default: return answer_statistics(context, entry.model.get());
  }
}

Next RequestHandler::answer_statistics(RequestContext& context,
                                       const models::Model* only) noexcept {
  const service::CatalogSnapshot& catalog = host_.thread().intake.catalog();
  const size_t models = only != nullptr ? 1 : catalog.models.size();
  const std::span<char> buffer =
      context.memory.allocate_array<char>(service::Documents::statistics_bytes(models));
  return reply(context, service::Documents::write_statistics(buffer, catalog, only));
}

Next RequestHandler::on_text(RequestContext& context) noexcept {
  const std::string_view text = context.body.text();
  if (topic_of(context.route.endpoint)) return ask(context, text);
  const bool is_raw = context.head().inference_header_length == 0u;
  if (!is_raw) {
    Result<wire::InferHead> head =
        wire::parse_infer_head(host_.json_parser(), text, context.memory);
    if (!head.ok()) return refuse(context, head.status());
    context.infer_head = *head;
  }
  const size_t tensor_bytes = context.body.is_length_known()
                                  ? context.body.total_bytes() - text.size()
                                  : context.infer_head.binary_bytes;
  const Status status = is_raw ? bind_raw(context, tensor_bytes) : bind(context, tensor_bytes);
  return status.ok() ? Next::kReadTensors : refuse(context, status);
}

Next RequestHandler::on_tensors(RequestContext& context) noexcept {
  const Status status = service::inputs_arrived(context.call);
  if (!status.ok()) return refuse(context, status);
  host_.contexts().settle(context);
  if (!context.connection->is_carried()) {
    host_.counters().add("received_direct_bytes", context.body.direct_bytes());
  }
  if (host_.submit(context)) return Next::kAway;
  if (context.call.infer.status.code() == Code::kUnavailable) context.close_after = true;
  return refuse(context, context.call.infer.status);
}

}  // namespace lumen::http
