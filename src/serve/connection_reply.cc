// What a connection says: documents, infer replies, errors. I/O thread only; allocates nothing.
#include "serve/connection.h"

#include "serve/infer_service.h"
#include "serve/io_thread.h"

#include <lumen/base/clock.h>
#include <lumen/telemetry/prometheus.h>
#include <lumen/wire/status_map.h>

#include <algorithm>
#include <cstring>

namespace lumen::serve {
namespace {

// A name from a URL is echoed in errors, but never more of it than a valid name can have.
int echo_width(std::string_view text) noexcept {
  return static_cast<int>(std::min(text.size(), limits::kMaxNameBytes));
}

// HTTP/1.1 stays open unless told otherwise, HTTP/1.0 the other way round, and its clients wait to
// be told (RFC 9112, 9.3).
std::string_view persistence_line(const wire::HttpHead& head, bool keep_alive) noexcept {
  return keep_alive && !head.http_1_1 ? "Connection: keep-alive\r\n" : "";
}

}  // namespace

Status model_not_found(const Route& route) noexcept {
  if (route.version.empty()) {
    return Status::error(Code::kNotFound,
                         "model '%.*s' is not in the repository; GET /v2/models/stats lists those "
                         "that are ready",
                         echo_width(route.model), route.model.data());
  }
  return Status::error(Code::kNotFound,
                       "model '%.*s' version '%.*s' is not in the repository; leave the version "
                       "out for the highest",
                       echo_width(route.model), route.model.data(), echo_width(route.version),
                       route.version.data());
}

Status model_unavailable(const engine::Model& model) noexcept {
  return Status::error(Code::kUnavailable, "model '%s' version '%s' is unavailable: %.300s",
                       model.metadata().name.c_str(), model.metadata().version.c_str(),
                       model.reason().c_str());
}

void Connection::answer_document() noexcept {
  const Services& services = io_.services();
  const Route& route = context_->route;
  const bool names_model = !route.model.empty();
  const service::CatalogSnapshot& catalog = io_.catalog().now();
  const service::CatalogModel* entry =
      names_model ? catalog.find(route.model, route.version) : nullptr;
  const engine::Model* model = entry != nullptr ? entry->model.get() : nullptr;
  if (names_model && model == nullptr) {
    respond_error(model_not_found(route));
    return;
  }
  if (names_model && model->state() != engine::ModelState::kReady) {
    respond_error(model_unavailable(*model));
    return;
  }
  switch (route.endpoint) {
    case Endpoint::kLive: respond_json(200, R"({"live":true})"); return;
    case Endpoint::kReady:
      if (io_.draining()) {
        respond_error(Status::error(Code::kUnavailable, "the server is shutting down"));
      } else {
        respond_json(200, R"({"ready":true})");
      }
      return;
    case Endpoint::kServerMetadata: respond_json(200, services.documents.server_metadata()); return;
    case Endpoint::kModelMetadata:
      if (model != nullptr) {
        respond_copy(entry->documents->metadata);
        return;
      }
      break;
    case Endpoint::kModelReady:
      if (model != nullptr) {
        respond_copy(entry->documents->ready);
        return;
      }
      break;
    case Endpoint::kModelStatistics:
    case Endpoint::kAllStatistics: {
      if (route.endpoint == Endpoint::kModelStatistics && model == nullptr) break;
      const size_t models = model != nullptr ? 1 : catalog.models.size();
      const std::span<char> buffer =
          context_->memory.allocate_array<char>(Documents::statistics_bytes(models));
      respond_json(200, Documents::write_statistics(buffer, catalog, model));
      return;
    }
    case Endpoint::kMetrics: answer_metrics(); return;
    case Endpoint::kUnknown:
    case Endpoint::kEngine:
    case Endpoint::kInfer: break;
  }
  respond_error(Status::error(Code::kNotFound, "the path names no model; write /v2/models/NAME"));
}

// Of a document that may be gone before the reply has left.
void Connection::respond_copy(std::string_view document) noexcept {
  const std::span<char> room = context_->memory.allocate_array<char>(document.size());
  if (room.size() != document.size()) {
    respond_error(Status::error(Code::kTooLarge, "the document does not fit a request's memory"));
    return;
  }
  std::ranges::copy(document, room.begin());
  respond_json(200, {room.data(), room.size()});
}

void Connection::on_infer_done() noexcept {
  if (state_ == State::kAbandoned) {
    begin_closing();
    return;
  }
  if (!context_->call.infer.status.ok()) {
    respond_error(context_->call.infer.status);
  } else if (context_->route.endpoint == Endpoint::kEngine) {
    respond_json(200, context_->document);
  } else if (context_->route.endpoint == Endpoint::kMetrics) {
    respond(200, telemetry::kPrometheusContentType, context_->document);
  } else if (!context_->reply_status.ok()) {
    respond_error(context_->reply_status);
  } else {
    respond_infer();
  }
}

void Connection::respond_infer() noexcept {
  RequestContext& context = *context_;
  wire::ResponseHead head;
  head.keep_alive = !close_after_ && !io_.draining();
  head.extra = persistence_line(context.head, head.keep_alive);
  head.content_length = context.reply.json.size() + context.reply.binary_bytes;
  if (context.reply.has_binary) {
    head.content_type = "application/octet-stream";
    head.inference_header_length = context.reply.json.size();
  }
  const size_t head_bytes = wire::write_response_head(context.response_head, head, io_.http_date());
  size_t segments = 0;
  context.send_segments[segments++] = {context.response_head.data(), head_bytes};
  context.send_segments[segments++] = {const_cast<char*>(context.reply.json.data()),
                                       context.reply.json.size()};
  for (const wire::ReplyOutput& output : context.reply_outputs) {
    if (output.binary && output.tensor.byte_size > 0) {
      context.send_segments[segments++] = {output.tensor.data, output.tensor.byte_size};
    }
  }
  const engine::Trace& trace = context.call.infer.trace;
  io_.counters().add_time(context.call.infer.model->index(), "success",
                          now_ns() - trace.received_ns);
  send(segments, 200);
}

void Connection::respond_json(int status, std::string_view body, std::string_view extra) noexcept {
  respond(status, "application/json", body, extra);
}

void Connection::respond(int status, std::string_view content_type, std::string_view body,
                         std::string_view extra) noexcept {
  wire::ResponseHead head;
  head.status = status;
  head.content_type = content_type;
  // With other lines to send there is no room for this one: an HTTP/1.0 client is closed then.
  if (!extra.empty() && !context_->head.http_1_1) close_after_ = true;
  head.keep_alive = !close_after_ && !io_.draining();
  head.extra = extra.empty() ? persistence_line(context_->head, head.keep_alive) : extra;
  head.content_length = body.size();
  const size_t head_bytes =
      wire::write_response_head(context_->response_head, head, io_.http_date());
  context_->send_segments[0] = {context_->response_head.data(), head_bytes};
  context_->send_segments[1] = {const_cast<char*>(body.data()), body.size()};
  const bool without_body = context_->head.method == wire::HttpMethod::kHead || body.empty();
  send(without_body ? 1 : 2, status);
}

void Connection::send(size_t segments, int status) noexcept {
  using telemetry::ServerCounter;
  io_.counters().add(status < 400   ? ServerCounter("responses_2xx")
                     : status < 500 ? ServerCounter("responses_4xx")
                                    : ServerCounter("responses_5xx"));
  state_ = State::kWriting;
  context_->reply_code = status;
  io_.loop().send(stream_, gathered(std::span(context_->send_segments).first(segments)));
  watch_send();
}

// A reply that fits behind its head is copied there: 20 ns, where a list of three segments costs the
// kernel 100 (it checks and copies in each).
std::span<iovec> Connection::gathered(std::span<iovec> segments) noexcept {
  std::array<char, wire::kMaxResponseHeadBytes>& room = context_->response_head;
  size_t bytes = 0;
  for (const iovec& segment : segments) bytes += segment.iov_len;
  if (bytes > room.size()) return segments;
  size_t used = segments.front().iov_len;  // the head lies there
  for (const iovec& segment : segments.subspan(1)) {
    std::memcpy(room.data() + used, segment.iov_base, segment.iov_len);
    used += segment.iov_len;
  }
  segments.front().iov_len = used;
  return segments.first(1);
}

void Connection::respond_error(const Status& refused, std::string_view extra) noexcept {
  // What found no memory says that its request is too large; here it is known whether it was that, or
  // whether others have it all.
  const bool has_no_room = refused.code() == Code::kTooLarge && context_->memory.was_refused();
  const Status& status = has_no_room ? io_.no_room() : refused;
  if (status.code() == Code::kResourceExhausted) {
    answer_error(static_cast<int>(io_.services().options.overload_status), status.message(),
                 "Retry-After: 1\r\n");
  } else {
    answer_error(wire::http_status(status.code()), status.message(), extra);
  }
}

void Connection::answer_error(int status, std::string_view message,
                              std::string_view extra) noexcept {
  const engine::InferRequest& infer = context_->call.infer;
  if (infer.model != nullptr) {
    io_.counters().add_time(infer.model->index(), "failure", now_ns() - infer.trace.received_ns);
  }
  // A client that still waits for "100 Continue" may or may not send its body now, and the end of a
  // chunked body is not known: neither can be skipped, so the connection ends with this reply.
  const wire::HttpHead& head = context_->head;
  const bool chunks_unread =
      head.framing == wire::BodyFraming::kChunked && (!context_->chunked || state_ == State::kHead);
  if (chunks_unread || (head.expect_continue && context_->body_unread > 0)) close_after_ = true;
  const size_t size = wire::write_error_body(context_->error_body, message);
  respond_json(status, {context_->error_body.data(), size}, extra);
}

void Connection::refuse(const Status& status) noexcept {
  close_after_ = true;
  respond_error(status);
}

void Connection::refuse(const wire::Refusal& refusal) noexcept {
  close_after_ = true;
  answer_error(refusal.status, refusal.reason, {});
}

}  // namespace lumen::serve
