// RequestHandler: the meaning of a request and its answer, once its bytes are there. How they come
// and how the reply leaves is the connection's.
//
//   on_head() ─► kReadBody ─► on_text() ─► kReadTensors ─► on_tensors() ─► kAway ─► on_returned() ─► kReply
//        └ kWaitForRoom ─┘                                     refused or answered at once: kReply
//
// Threads: its I/O thread. Memory: the request's. Errors: replies, in context.reply.
#pragma once

#include "transports/http/request_context.h"

#include <lumen/net/loop.h>
#include <lumen/service/catalog.h>

#include <string_view>

namespace lumen::http {

class HttpTransport;

// The connection's next step for the request.
enum class Next : uint8_t {
  kWaitForRoom,  // there is no memory for it yet
  kReadBody,     // up to the end of its text
  kReadTensors,  // into call.to_receive
  kAway,         // the engine or a thread of the control plane has it
  kReply,        // context.reply is to be sent
};

class RequestHandler {
 public:
  explicit RequestHandler(HttpTransport& host) noexcept : host_(host) {}

  // `is_local`: by the unix socket, whose users may change the engine.
  [[nodiscard]] Next on_head(RequestContext& context, net::Stream& stream, bool is_local) noexcept;
  [[nodiscard]] Next on_text(RequestContext& context) noexcept;
  [[nodiscard]] Next on_tensors(RequestContext& context) noexcept;
  [[nodiscard]] Next on_returned(RequestContext& context) noexcept;
  // The head can't be read.
  [[nodiscard]] Next on_bad_head(RequestContext& context) noexcept;
  // The body can't be read: anything but kNeedMore and kComplete.
  [[nodiscard]] Next on_bad_body(RequestContext& context, RequestBody::Progress progress) noexcept;
  [[nodiscard]] Next on_late(RequestContext& context) noexcept;
  // It has waited for memory for long enough.
  [[nodiscard]] Next on_no_room(RequestContext& context) noexcept;

 private:
  [[nodiscard]] bool is_page_elsewhere(const RequestContext& context, net::Stream& stream,
                                       bool is_local) noexcept;
  [[nodiscard]] Next begin_infer(RequestContext& context) noexcept;
  // Whether the client's key is one of the server's, where it has some.
  [[nodiscard]] Status check_key(RequestContext& context) noexcept;
  // Whether the client is one of those.
  [[nodiscard]] Status check_audience(Audience audience, const RequestContext& context) noexcept;
  [[nodiscard]] Status check_origin(const wire::HttpHead& head) noexcept;
  [[nodiscard]] transports::Client client_of(const RequestContext& context) noexcept;
  // Whose regions of shared memory it may use.
  [[nodiscard]] Result<uid_t> region_user(const RequestContext& context) noexcept;
  [[nodiscard]] Status bind(RequestContext& context, size_t tensor_bytes) noexcept;
  // Of an endpoint that the control plane answers.
  [[nodiscard]] Next begin_job(RequestContext& context) noexcept;
  [[nodiscard]] Next ask(RequestContext& context, std::string_view text) noexcept;
  [[nodiscard]] Next refuse_coding(RequestContext& context) noexcept;
  [[nodiscard]] Next answer_document(RequestContext& context) noexcept;
  [[nodiscard]] Next answer_ready(RequestContext& context) noexcept;
  [[nodiscard]] Next answer_page(RequestContext& context) noexcept;
  [[nodiscard]] Next answer_of_model(RequestContext& context,
                                     const service::CatalogModel& entry) noexcept;
  [[nodiscard]] Next answer_statistics(RequestContext& context, const models::Model* only) noexcept;

  [[nodiscard]] wire::ResponseHead head_of(const RequestContext& context, int status) noexcept;
  // `extra`: header lines.
  [[nodiscard]] Next reply(RequestContext& context, std::string_view body,
                           std::string_view content_type = "application/json", int status = 200,
                           std::string_view extra = {}) noexcept;
  [[nodiscard]] Next reply_job(RequestContext& context) noexcept;
  [[nodiscard]] Next answer_preflight(RequestContext& context) noexcept;
  [[nodiscard]] Next reply_copy(RequestContext& context, std::string_view document,
                                int status = 200) noexcept;
  [[nodiscard]] Next reply_infer(RequestContext& context) noexcept;
  // True: the reply is away to be compressed.
  [[nodiscard]] bool compress(RequestContext& context) noexcept;
  // `extra`: header lines.
  [[nodiscard]] Next refuse(RequestContext& context, const Status& status,
                            std::string_view extra = {}) noexcept;
  [[nodiscard]] Next refuse(RequestContext& context, int status, std::string_view message,
                            std::string_view extra) noexcept;
  // By the words of a codec: later requests can't be told from the rest of this one, and the
  // connection ends.
  [[nodiscard]] Next refuse(RequestContext& context, const wire::Refusal& refusal) noexcept;
  // Counts it for its model, if it has one.
  void note_failure(const RequestContext& context, Code code) noexcept;
  [[nodiscard]] Next replied(RequestContext& context) noexcept;

  HttpTransport& host_;
};

}  // namespace lumen::http
