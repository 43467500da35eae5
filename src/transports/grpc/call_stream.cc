// See the header.
#include "transports/grpc/call_stream.h"

#include "transports/grpc/request.h"

#include <lumen/base/check.h>

#include <utility>

namespace lumen::grpc {

void CallStream::reset() noexcept {
  LUMEN_CHECK(requests == nullptr && first_reply == nullptr && !is_waiting);
  stop_timeouts();
  backlog.clear();
  connection = nullptr;
  number = 0;
  previous = next = nullptr;
  method = Method::kUnknown;
  is_begun = false;
  is_post = is_grpc = is_http = ends_by_errors = has_key = false;
  http = nullptr;
  next_leaving = nullptr;
  is_leaving = false;
  role = transports::Role::kNone;
  coding = wire::ContentCoding::kIdentity;
  timeout_us.reset();
  traceparent = {};
  began_ns = 0;
  header_bytes = messages = unanswered = 0;
  receiving = blocked = nullptr;
  has_ended = has_head = is_deferred = is_over = is_closed = false;
  told_health = 0;
  status = {};
}

void CallStream::add(Request& request) noexcept {
  request.stream = this;
  request.next = std::exchange(requests, &request);
  if (request.next != nullptr) request.next->previous = &request;
  ++messages;
}

void CallStream::remove(Request& request) noexcept {
  if (request.previous != nullptr) request.previous->next = request.next;
  if (request.next != nullptr) request.next->previous = request.previous;
  if (requests == &request) requests = request.next;
  request.previous = request.next = nullptr;
}

void CallStream::push_reply(Request& request) noexcept {
  request.next_reply = nullptr;
  (first_reply == nullptr ? first_reply : last_reply->next_reply) = &request;
  last_reply = &request;
}

void CallStream::pop_reply() noexcept {
  first_reply = std::exchange(first_reply->next_reply, nullptr);
  if (first_reply == nullptr) last_reply = nullptr;
}

}  // namespace lumen::grpc
