// A connection's calls: their heads, their messages, their ends. I/O thread only; allocates nothing
// but session memory.
#include "transports/grpc/grpc_connection.h"
#include "transports/grpc/grpc_transport.h"
#include "transports/grpc/headers.h"

#include <lumen/base/clock.h>
#include <lumen/wire/status_map.h>
#include <lumen/wire/traceparent.h>

#include <utility>

namespace lumen::grpc {

// --- heads ---------------------------------------------------------------------------------------

void GrpcConnection::begin_call(int32_t number) noexcept {
  CallStream* const call = host_.acquire_call();
  if (call == nullptr) return;
  call->connection = this;
  call->number = number;
  call->began_ns = now_ns();
  call->next = calls_;
  if (calls_ != nullptr) calls_->previous = call;
  calls_ = call;
  (void)nghttp2_session_set_stream_user_data(session_, number, call);
  text_.begin();
  host_.receiving().start(call->timeout, coarse_now_ns());
}

void GrpcConnection::on_header(CallStream& call, std::string_view name,
                               std::string_view value) noexcept {
  if (call.method == Method::kUnknown) text_.add(name, value);
  if (name == ":path") {
    call.method = method_of(value);
  } else if (name == ":method") {
    call.is_post = value == "POST";
  } else if (name == "content-type") {
    call.is_grpc = is_grpc_type(value);
  } else if (name == "grpc-timeout") {
    call.timeout_us = parse_grpc_timeout(value);
  } else if (name == "grpc-encoding") {
    call.coding = wire::parse_content_coding(value);
  } else if (name == "traceparent") {
    call.traceparent = wire::parse_traceparent(value).value_or(Traceparent{});
  } else if (name == "triton_grpc_error") {
    call.ends_by_errors = value == "true";
  } else if (name == "authorization") {
    call.has_key = true;
    if (const transports::ApiKeys* const keys = host_.services().keys.now()) {
      call.role = keys->role_of(value);
    }
  }
}

// Calls that are refused by their head alone.
void GrpcConnection::on_head_complete(CallStream* call, int32_t number, bool has_ended) noexcept {
  if (call == nullptr) {
    host_.count_refusal(wire::http_status(host_.no_room().code()));
    submit_no_room(number);
    return;
  }
  call->is_begun = true;
  if (!call->is_grpc && call->method == Method::kUnknown && host_.http_streams().is_served()) {
    call->has_ended = has_ended;
    begin_http(*call);
    return;
  }
  if (!call->is_post || !call->is_grpc) {
    const int http_status = call->is_post ? 415 : 405;
    host_.count_refusal(http_status);
    submit_http_status(*call, http_status);
    return;
  }
  const Status known = host_.handler().check_key(*call, is_local_);
  if (!known.ok()) {
    end_call(*call, known);
  } else if (call->method == Method::kUnknown) {
    end_call(*call, CallHandler::unknown_method());
  }
}

// A request of the REST surface.
void GrpcConnection::begin_http(CallStream& call) noexcept {
  call.is_http = true;
  const std::optional<std::string_view> head = text_.end(!call.has_ended);
  if (!head) {
    host_.count_refusal(431, false);
    submit_http_status(call, 431);
    return;
  }
  call.timeout.unlink();  // the transport of HTTP has its own
  if (!host_.http_streams().on_head(call, *head, !call.has_ended && !text_.has_length(),
                                    is_local_)) {
    host_.count_refusal(503, false);
    call.is_over = true;
    reset(call, NGHTTP2_REFUSED_STREAM);
  }
}

// --- messages ------------------------------------------------------------------------------------

void GrpcConnection::on_data(CallStream& call, std::string_view bytes) noexcept {
  if (call.is_http) {
    host_.http_streams().on_data(call, bytes);
    return;
  }
  size_t taken = bytes.size();  // of a call that is over they are dropped
  if (!call.is_over) {
    taken = call.is_waiting ? 0 : take_messages(call, bytes, SIZE_MAX);
    if (call.is_over) {
      taken = bytes.size();
    } else if (!call.backlog.append(bytes.substr(taken))) {
      taken = bytes.size();
      end_call(call, host_.no_room());
    } else if (!call.backlog.is_empty() || call.blocked != nullptr) {
      host_.wait_for_request(call);
    }
  }
  (void)nghttp2_session_consume_stream(session_, call.number, taken);
}

size_t GrpcConnection::take_messages(CallStream& call, std::string_view bytes,
                                     size_t most) noexcept {
  const size_t all = bytes.size();
  const size_t limit = host_.services().options.max_message_bytes;
  for (size_t begun = 0; !bytes.empty() && !call.is_over && call.blocked == nullptr;) {
    if (call.receiving == nullptr) {
      Request* const request = begun < most ? host_.acquire() : nullptr;
      if (request == nullptr) break;
      ++begun;
      request->call.infer.times.received_ns = now_ns();
      request->call.traceparent = call.traceparent;
      call.add(*request);
      call.receiving = request;
      host_.receiving().start(call.timeout, coarse_now_ns());
    }
    Request& request = *call.receiving;
    const bool was_whole = request.is_whole();
    Status status = request.receive(bytes, limit);
    if (was_whole) {
      status = Status::error(Code::kInternal, "the call has more than one message; wanted one");
    }
    if (!status.ok()) {
      end_call(call, status);
    } else if (request.is_whole() && takes_many(call.method)) {
      call.timeout.unlink();
      on_message(request);
    } else if (request.received_bytes - request.timed_bytes >=
               host_.services().options.body_min_bytes) {
      request.timed_bytes = request.received_bytes;
      host_.receiving().start(call.timeout, coarse_now_ns());
    }
  }
  return all - bytes.size();
}

bool GrpcConnection::resume(CallStream& call) noexcept {
  if (call.is_closed) return false;
  host_.flush_later(*this);
  Request* const blocked = std::exchange(call.blocked, nullptr);
  if (blocked != nullptr) {
    const Status status = host_.handler().admit(*blocked);
    if (!status.ok()) refuse(*blocked, status);
  }
  const size_t taken = call.is_over ? 0 : take_messages(call, call.backlog.bytes(), 1);
  if (call.is_over) return true;
  call.backlog.drop(taken);
  (void)nghttp2_session_consume_stream(session_, call.number, taken);
  if (!call.backlog.is_empty() || call.blocked != nullptr) {
    host_.wait_for_request(call);
  } else if (call.has_ended) {
    on_last_message(call);
  }
  return taken > 0 || call.blocked != blocked;
}

void GrpcConnection::on_end(CallStream& call) noexcept {
  call.has_ended = true;
  if (call.is_http) {
    host_.http_streams().on_end(call);
  } else if (call.is_over) {
    call.timeout.unlink();
  } else if (call.backlog.is_empty()) {
    on_last_message(call);
  }
}

void GrpcConnection::on_last_message(CallStream& call) noexcept {
  call.timeout.unlink();
  Request* const request = call.receiving;
  if (takes_many(call.method) && request == nullptr) {
    end_if_through(call);
  } else if (request == nullptr) {
    end_call(call, Status::error(Code::kInternal, "the call has no message; wanted one"));
  } else if (!request->is_whole()) {
    end_call(call, Status::error(Code::kInternal,
                                 "the call ends within its message: got %zu of %zu bytes",
                                 request->received_bytes, request->message_bytes));
  } else {
    on_message(*request);
  }
}

void GrpcConnection::on_message(Request& request) noexcept {
  CallStream& call = *request.stream;
  call.receiving = nullptr;
  ++call.unanswered;
  Status status = request.inflate(call.coding, host_.services().options.max_message_bytes);
  if (status.ok()) status = host_.handler().on_call(request);
  if (!status.ok()) refuse(request, status);
}

// --- their ends ----------------------------------------------------------------------------------

void GrpcConnection::end_call(CallStream& call, const Status& status) noexcept {
  if (call.is_over || call.is_closed) return;
  call.is_over = true;
  call.status = status;
  host_.stop_waiting(call);
  call.backlog.clear();
  const int http_status = status.ok() ? 200 : wire::http_status(status.code());
  if (call.receiving != nullptr) call.receiving->status = http_status;
  if (call.messages == 0 && !status.ok()) host_.count_refusal(http_status);
  call.receiving = call.blocked = nullptr;
  for (Request* request = call.requests; request != nullptr;) {
    Request* const next = request->next;
    const bool has_reply = request->left_bytes > 0 || request->is_leaving;
    if (request->is_away) {
      host_.cancel(*request);
    } else if (!has_reply) {
      forget(*request);
    }
    request = next;
  }
  if (!call.has_ended) host_.receiving().start(call.timeout, coarse_now_ns());
  call.has_head ? wake_reply(call) : submit_status(call);
  host_.flush_later(*this);
}

void GrpcConnection::end_if_through(CallStream& call) noexcept {
  if (!replies_many(call.method) || !call.is_through()) return;
  if (is_draining_) {
    end_call(call, service::shutting_down());
  } else if (call.has_ended && takes_many(call.method)) {
    end_call(call, Status());
  }
}

void GrpcConnection::on_late(CallStream& call) noexcept {
  if (!call.is_begun) {  // nothing else can come before the rest of its head
    host_.thread().counters.add("timeouts");
    (void)nghttp2_session_terminate_session(session_, NGHTTP2_ENHANCE_YOUR_CALM);
    host_.flush_later(*this);
  } else if (call.is_over) {  // its client does not end it
    on_stalled(call);
  } else if (call.is_waiting && call.is_busy()) {  // for the end of its own
    host_.receiving().start(call.timeout, coarse_now_ns());
  } else if (call.blocked != nullptr) {
    refuse(*std::exchange(call.blocked, nullptr), host_.no_room());
    if (!call.is_over) host_.receiving().start(call.timeout, coarse_now_ns());
    host_.owe_a_turn();
  } else if (call.is_waiting) {
    end_call(call, host_.no_room());
  } else {
    host_.thread().counters.add("timeouts");
    end_call(call, Status::error(Code::kDeadlineExceeded, "the request did not arrive in time"));
  }
}

void GrpcConnection::on_stalled(CallStream& call) noexcept {
  host_.thread().counters.add("timeouts");
  (void)nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, call.number, NGHTTP2_CANCEL);
  host_.flush_later(*this);
}

bool GrpcConnection::tell_health() noexcept {
  bool is_told = true;
  for (CallStream* call = calls_; call != nullptr; call = call->next) {
    if (call->method != Method::kHealthWatch || call->told_health == 0 || call->is_over) continue;
    if (call->is_closed || !host_.handler().has_other_health(*call)) continue;
    Request* const request = host_.acquire();
    if (request == nullptr) {
      is_told = false;
      continue;
    }
    request->call.infer.times.received_ns = now_ns();
    call->add(*request);
    ++call->unanswered;
    const Status status = host_.handler().tell_health(*request);
    if (!status.ok()) refuse(*request, status);
  }
  return is_told;
}

// All its bytes have left the session, or the client has reset it.
void GrpcConnection::on_stream_closed(CallStream& call) noexcept {
  if (call.http != nullptr) {
    host_.http_streams().on_stream_closed(call);
    return;
  }
  call.is_closed = true;
  call.stop_timeouts();
  call.receiving = call.blocked = nullptr;
  call.backlog.clear();
  host_.stop_waiting(call);
  if (call.requests == nullptr) {
    release(call);
    return;
  }
  while (call.first_reply != nullptr) {
    Request& request = *call.first_reply;
    call.pop_reply();
    leave(request);
  }
  for (Request* request = call.requests; request != nullptr;) {
    Request* const next = request->next;
    if (request->is_away) {
      host_.cancel(*request);
    } else if (!request->is_leaving) {
      forget(*request);
    }
    request = next;
  }
  // A client may give up more calls at once than there are requests.
  if (is_feeding_) drop_sent();
}

void GrpcConnection::leave(Request& request) noexcept {
  request.is_leaving = true;
  request.next_leaving = std::exchange(leaving_, &request);
}

void GrpcConnection::drop_sent() noexcept {
  if (is_sending_) return;
  while (leaving_ != nullptr) {
    Request& request = *leaving_;
    leaving_ = std::exchange(request.next_leaving, nullptr);
    forget(request);
  }
  while (leaving_http_ != nullptr) {
    CallStream& call = *leaving_http_;
    leaving_http_ = std::exchange(call.next_leaving, nullptr);
    call.is_leaving = false;
    host_.http_streams().on_sent(call);
  }
}

void GrpcConnection::forget(Request& request) noexcept {
  if (&request == landing_.request) {
    const bool is_first = !std::exchange(landing_.is_given_up, true);
    if (is_first && !is_feeding_) loop_->cancel_receive(*stream_);
    return;
  }
  CallStream& call = *request.stream;
  call.remove(request);
  host_.end_request(request);
  host_.release(request);
  if (call.is_closed && call.requests == nullptr) release(call);
}

void GrpcConnection::release(CallStream& call) noexcept {
  if (call.previous != nullptr) call.previous->next = call.next;
  if (call.next != nullptr) call.next->previous = call.previous;
  if (calls_ == &call) calls_ = call.next;
  host_.release(call);
  if (state_ == State::kClosing && stream_ == nullptr && calls_ == nullptr) finish_closing();
}

}  // namespace lumen::grpc
