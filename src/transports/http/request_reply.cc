// The answers: documents, infer replies, errors. I/O thread only; allocates nothing but from the
// request's memory.
#include "transports/http/http_transport.h"
#include "transports/http/request_handler.h"
#include "transports/http/request_job.h"

#include <lumen/base/clock.h>
#include <lumen/service/failure_reason.h>
#include <lumen/telemetry/counters.h>
#include <lumen/transports/http/cors.h>
#include <lumen/wire/status_map.h>

#include <algorithm>
#include <utility>

namespace lumen::http {
namespace {

// A smaller reply goes in one packet anyway.
constexpr size_t kLeastCompressedBytes = 1024;

}  // namespace

Next RequestHandler::on_returned(RequestContext& context) noexcept {
  const Endpoint endpoint = context.route.endpoint;
  if (endpoint == Endpoint::kMetrics || topic_of(endpoint)) return reply_job(context);
  if (std::exchange(context.is_compressing, false)) return reply_infer(context);
  if (!context.call.infer.status.ok()) return refuse(context, context.call.infer.status);
  if (!context.encode_status.ok()) return refuse(context, context.encode_status);
  return compress(context) ? Next::kAway : reply_infer(context);
}

Next RequestHandler::on_bad_head(RequestContext& context) noexcept {
  return refuse(context, context.head_reader.refusal());
}

Next RequestHandler::on_bad_body(RequestContext& context, RequestBody::Progress progress) noexcept {
  switch (progress) {
    case RequestBody::Progress::kRefused: return refuse(context, context.body.refusal());
    case RequestBody::Progress::kTextTooLong:
      return refuse(
          context,
          Status::error(
              Code::kInvalidArgument,
              "Inference-Header-Content-Length is %llu, but the body has only %zu bytes",
              static_cast<unsigned long long>(context.head().inference_header_length.value_or(0)),
              context.body.total_bytes()));
    default:
      context.close_after = true;
      return refuse(context,
                    Status::error(Code::kTooLarge, "the body does not fit a request's memory"));
  }
}

Next RequestHandler::on_late(RequestContext& context) noexcept {
  context.close_after = true;
  return refuse(context,
                Status::error(Code::kRequestTimeout, "the request did not arrive in time"));
}

Next RequestHandler::on_no_room(RequestContext& context) noexcept {
  return refuse(context, host_.contexts().no_room());
}

wire::ResponseHead RequestHandler::head_of(const RequestContext& context, int status) noexcept {
  wire::ResponseHead head;
  head.status = status;
  head.cors = host_.services().cors.lines_for(context.head().origin);
  head.keep_alive = !context.close_after && !host_.draining();
  return head;
}

Next RequestHandler::reply_job(RequestContext& context) noexcept {
  if (!context.job.status.ok()) return refuse(context, context.job.status);
  return reply(context, context.job.document, context.job.content_type);
}

Next RequestHandler::reply(RequestContext& context, std::string_view body,
                           std::string_view content_type, int status,
                           std::string_view extra) noexcept {
  wire::ResponseHead head = head_of(context, status);
  head.content_type = content_type;
  head.extra = extra;
  context.reply.write(context.head(), head, body, host_.http_date());
  return replied(context);
}

// A browser asks whether a page may send its request.
Next RequestHandler::answer_preflight(RequestContext& context) noexcept {
  const std::string_view origin = context.head().origin;
  wire::ResponseHead head = head_of(context, 200);
  if (head.cors.empty()) {
    return refuse(
        context,
        Status::error(Code::kForbidden,
                      "pages of origin '%.*s' may not send requests; to allow them, start "
                      "the server with that origin in --cors-origins",
                      static_cast<int>(std::min(origin.size(), kMaxOriginBytes)), origin.data()));
  }
  head.content_type = {};
  head.extra = Cors::preflight_lines();
  context.reply.write(context.head(), head, {}, host_.http_date());
  return replied(context);
}

// Of a document that may be gone before the reply has left.
Next RequestHandler::reply_copy(RequestContext& context, std::string_view document,
                                int status) noexcept {
  const std::span<char> room = context.memory.allocate_array<char>(document.size());
  if (room.size() != document.size()) {
    return refuse(context,
                  Status::error(Code::kTooLarge, "the document does not fit a request's memory"));
  }
  std::ranges::copy(document, room.begin());
  return reply(context, {room.data(), room.size()}, "application/json", status);
}

bool RequestHandler::compress(RequestContext& context) noexcept {
  const Services& services = host_.services();
  if (services.compressor == nullptr) return false;
  const bool only_alone = services.options.reply_compression == ReplyCompression::kAuto;
  const wire::ContentCoding coding = wire::reply_coding(context.head().accept_encoding, only_alone);
  const size_t bytes = context.encoded.json.size() + context.encoded.binary_bytes;
  if (coding == wire::ContentCoding::kIdentity || bytes < kLeastCompressedBytes) return false;
  const std::span<const std::span<const std::byte>> pieces =
      ReplyWriter::pieces_of(context.encoded, context.reply_outputs, context.memory);
  if (pieces.empty()) return false;
  context.compression = {.owner = &context,
                         .memory = &context.memory,
                         .coding = coding,
                         .pieces = pieces,
                         .bytes = bytes};
  return host_.compress(context);
}

Next RequestHandler::reply_infer(RequestContext& context) noexcept {
  const service::CompressionJob& compression = context.compression;
  if (!compression.compressed.empty()) {
    wire::ResponseHead head = head_of(context, 200);
    head.extra = wire::content_encoding_line(compression.coding);
    context.reply.write_compressed(context.head(), head, context.encoded, compression.compressed,
                                   host_.http_date());
    host_.counters().add("replies_compressed");
    host_.counters().add("replies_compressed_saved_bytes",
                         compression.bytes - compression.compressed.size());
  } else if (!context.reply.write_infer(context.head(), head_of(context, 200), context.encoded,
                                        context.reply_outputs, host_.http_date(), context.memory)) {
    return refuse(
        context, Status::error(Code::kTooLarge,
                               "the outputs do not fit a request's memory; ask for fewer, or raise "
                               "--max-body-bytes"));
  }
  const models::InferRequest& infer = context.call.infer;
  host_.counters().add_time(infer.model->index(), "success", now_ns() - infer.times.received_ns);
  return replied(context);
}

Next RequestHandler::refuse(RequestContext& context, const Status& refused,
                            std::string_view extra) noexcept {
  // A function that found no memory says that its request is too large; here it is known whether it
  // was that, or whether others have it all.
  const bool has_no_room = refused.code() == Code::kTooLarge && context.memory.was_refused();
  const Status& status = has_no_room ? host_.contexts().no_room() : refused;
  note_failure(context, status.code());
  if (wire::is_overload(status.code())) {
    return refuse(context, static_cast<int>(host_.services().options.overload_status),
                  status.message(), "Retry-After: 1\r\n");
  }
  return refuse(context, wire::http_status(status.code()), status.message(), extra);
}

Next RequestHandler::refuse_coding(RequestContext& context) noexcept {
  const std::string_view coding = context.head().content_encoding;
  return refuse(context,
                Status::error(Code::kUnsupportedMediaType,
                              "Content-Encoding '%.*s' is not supported; infer requests may be "
                              "gzip, deflate (zlib's format) or identity, all others identity",
                              static_cast<int>(std::min<size_t>(coding.size(), 60)), coding.data()),
                "Accept-Encoding: gzip, deflate\r\n");
}

void RequestHandler::note_failure(const RequestContext& context, Code code) noexcept {
  const models::InferRequest& infer = context.call.infer;
  if (infer.model == nullptr) return;
  host_.counters().add_time(infer.model->index(), "failure", now_ns() - infer.times.received_ns);
  host_.counters().add(infer.model->index(), service::failure_reason(code));
}

Next RequestHandler::refuse(RequestContext& context, int status, std::string_view message,
                            std::string_view extra) noexcept {
  // A client that still waits for "100 Continue" may or may not send its body now, and the end of a
  // chunked body may not be known: neither can be skipped, so the connection ends with this reply.
  const bool may_not_come = context.head().expect_continue && context.body.left() > 0;
  if (may_not_come || !context.body.is_end_known()) context.close_after = true;
  wire::ResponseHead head = head_of(context, status);
  head.extra = extra;
  context.reply.write_error(context.head(), head, message, host_.http_date());
  return replied(context);
}

Next RequestHandler::refuse(RequestContext& context, const wire::Refusal& refusal) noexcept {
  context.close_after = true;
  note_failure(context, refusal.status == 413 ? Code::kTooLarge : Code::kInvalidArgument);
  return refuse(context, refusal.status, refusal.reason, {});
}

Next RequestHandler::replied(RequestContext& context) noexcept {
  host_.thread().intake.leave_regions(context.call);
  using telemetry::ServerCounter;
  const int status = context.reply.status();
  host_.counters().add(status < 400   ? ServerCounter("responses_2xx")
                       : status < 500 ? ServerCounter("responses_4xx")
                                      : ServerCounter("responses_5xx"));
  if (!context.reply.keeps_alive()) context.close_after = true;
  return Next::kReply;
}

}  // namespace lumen::http
