// The conversation's course: heads, events, timeouts. Bodies: connection_body.cc; replies:
// connection_reply.cc; about the server itself: connection_admin.cc.
// I/O thread only; allocates nothing. Whatever is wrong ends in respond_error(), refuse() or close().
#include "serve/connection.h"

#include "serve/infer_service.h"
#include "serve/io_thread.h"

#include <lumen/base/clock.h>

#include <algorithm>
#include <cstring>

namespace lumen::serve {

using wire::BodyFraming;

void Connection::open(net::Socket socket, bool is_local) noexcept {
  is_local_ = is_local;
  accepted_ns_ = now_ns();
  close_after_ = false;
  state_ = State::kIdle;
  in_loop_ = io_.loop().add(stream_, socket).ok();
  if (!in_loop_) {
    begin_closing();
    return;
  }
  io_.timeouts().idle.start(timeout_, coarse_now_ns());
  io_.loop().wait_readable(stream_);
}

void Connection::close(net::Loop::Closing how) noexcept {
  if (state_ == State::kFree || state_ == State::kAbandoned || state_ == State::kClosing) return;
  timeout_.unlink();
  if (state_ == State::kWaitingContext) io_.stop_waiting(*this);
  if (!lent_.empty()) io_.loop().give_back(std::exchange(lent_, {}));
  io_.loop().close(stream_, how);
  if (state_ == State::kRunning) {
    io_.cancel(*context_);
    state_ = State::kAbandoned;  // the engine still writes into the context
    return;
  }
  begin_closing();
}

void Connection::begin_closing() noexcept {
  state_ = State::kClosing;
  io_.connection_closing();
  if (!in_loop_) finish_closing();
}

void Connection::finish_closing() noexcept {
  state_ = State::kFree;
  if (context_ != nullptr) io_.release_context(*std::exchange(context_, nullptr));
  io_.connection_closed(*this);
}

void Connection::on_closed(net::Stream& stream) noexcept {
  (void)stream;
  in_loop_ = false;
  if (state_ == State::kClosing) finish_closing();
}

void Connection::on_drain() noexcept {
  // An idle connection whose next request has begun to arrive is answered once more.
  const bool at_rest = state_ == State::kIdle && !io_.loop().had_unread(stream_);
  if (at_rest || state_ == State::kLinger || state_ == State::kDiscard) close();
}

void Connection::on_readable(net::Stream& stream, std::span<char> lent) noexcept {
  (void)stream;
  timeout_.unlink();
  lent_ = lent;
  RequestContext* context = io_.acquire_context(*this);
  if (context == nullptr) {
    io_.make_way();
    state_ = State::kWaitingContext;
    io_.wait_for_context(*this);
    return;
  }
  resume(*context);
}

void Connection::resume(RequestContext& context) noexcept {
  context_ = &context;
  if (!lent_.empty()) {
    std::memcpy(context_->free_space().data(), lent_.data(), lent_.size());
    context_->end += lent_.size();
    io_.counters().add("received_bytes", lent_.size());
    io_.loop().give_back(std::exchange(lent_, {}));
  }
  begin_head();
}

void Connection::receive_into(std::span<char> space) noexcept {
  receive_segment_ = {space.data(), space.size()};
  io_.loop().receive(stream_, std::span(&receive_segment_, 1));
}

// --- head -----------------------------------------------------------------------------------------

void Connection::begin_head() noexcept {
  state_ = State::kHead;
  is_overdue_ = false;
  io_.timeouts().head.start(timeout_, coarse_now_ns());
  if (context_->unread().empty()) {
    receive_into(context_->free_space());
  } else {
    parse_head();
  }
}

void Connection::parse_head() noexcept {
  if (engine::Trace& trace = context_->call.infer.trace; trace.received_ns == 0) {
    trace.received_ns = now_ns();
    trace.accepted_ns = std::exchange(accepted_ns_, 0);
  }
  const wire::HeadResult result = wire::parse_http_head(context_->unread());
  switch (result.progress) {
    case wire::HeadProgress::kNeedMore:
      context_->move_unread_to_front();
      receive_into(context_->free_space());
      return;
    case wire::HeadProgress::kRefused: refuse(result.refusal); return;
    case wire::HeadProgress::kComplete:
      timeout_.unlink();
      is_overdue_ = false;
      context_->head = result.head;
      context_->begin += result.head.head_bytes;
      on_head();
      return;
  }
}

void Connection::on_head() noexcept {
  const wire::HttpHead& head = context_->head;
  io_.counters().add("requests");
  close_after_ = !head.keep_alive || io_.draining();
  context_->body_unread = head.framing == BodyFraming::kLength ? head.content_length : 0;
  context_->route = route_path(head.path);
  decode_names(context_->route, context_->memory);
  const size_t limit = io_.services().options.max_body_bytes;
  if (context_->body_unread > limit) {
    refuse(
        Status::error(Code::kTooLarge,
                      "body of %zu bytes is above the limit of %zu; send less or start the server "
                      "with a larger --max-body-bytes",
                      context_->body_unread, limit));
    return;
  }
  if (is_page_elsewhere()) {
    const int width = static_cast<int>(std::min<size_t>(head.host.size(), 255));
    respond_error(
        Status::error(Code::kForbidden,
                      "Host '%.*s' is no address or name of this machine, and the request "
                      "is a browser's; if that name is yours, start the server with it in "
                      "--allowed-hosts",
                      width, head.host.data()));
    return;
  }
  // Until something wants it, a body that is still to come is dropped after the reply.
  if (context_->route.endpoint == Endpoint::kUnknown) {
    respond_error(Status::error(Code::kNotFound, "path '%.*s' is not known; GET /v2 tells what is",
                                static_cast<int>(std::min<size_t>(head.path.size(), 200)),
                                head.path.data()));
    return;
  }
  const bool get = head.method == wire::HttpMethod::kGet || head.method == wire::HttpMethod::kHead;
  const bool post = head.method == wire::HttpMethod::kPost;
  const bool takes_both = context_->route.endpoint == Endpoint::kEngine;
  if (!(takes_both && (get || post)) && (wants_post(context_->route.endpoint) ? !post : !get)) {
    const bool wanted_post = wants_post(context_->route.endpoint);
    respond_error(
        Status::error(Code::kMethodNotAllowed, "this path wants %s", wanted_post ? "POST" : "GET"),
        wanted_post ? "Allow: POST\r\n" : "Allow: GET, HEAD\r\n");
    return;
  }
  if (context_->route.endpoint == Endpoint::kEngine) {
    begin_engine();
  } else if (post) {
    begin_infer();
  } else {
    answer_document();
  }
}

// A browser's, asking for a name that is not this machine's: that name may be the page's own, pointed
// here to get at what only this machine may reach. No browser opens a unix socket.
bool Connection::is_page_elsewhere() noexcept {
  const wire::HttpHead& head = context_->head;
  if (!head.from_browser || is_local_) return false;
  const std::optional<sockaddr_storage> own = io_.loop().own_address(stream_);
  const auto* address = own ? reinterpret_cast<const sockaddr*>(&*own) : nullptr;
  return !io_.services().hosts.allows(head.host, address);
}

void Connection::begin_infer() noexcept {
  const wire::HttpHead& head = context_->head;
  const Route& route = context_->route;
  const service::CatalogModel* entry = io_.catalog().now().find(route.model, route.version);
  if (entry == nullptr) {
    respond_error(model_not_found(route));
    return;
  }
  engine::Model* const model = entry->model.get();
  io_.catalog().hold(*model);  // until the context is reset
  context_->call.infer.model = model;
  context_->use(io_.submitter().types(*model));
  if (model->state() != engine::ModelState::kReady) {
    respond_error(model_unavailable(*model));
    return;
  }
  if (!head.content_encoding.empty() && head.content_encoding != "identity") {
    respond_error(Status::error(Code::kUnsupportedMediaType,
                                "Content-Encoding is not supported; send the body as identity"),
                  "Accept-Encoding: identity\r\n");
    return;
  }
  if (head.framing == BodyFraming::kNone) {
    respond_error(
        Status::error(Code::kInvalidArgument,
                      "an infer request needs a body: send Content-Length or chunked coding"));
    return;
  }
  // By what is ahead of it already: a body that would be refused need not come in.
  if (context_->has_latency_budget && !io_.fits_budget(*context_)) {
    respond_error(service::refusal(engine::SubmitOutcome::kOverBudget));
    return;
  }
  begin_call();
}

// All that the request may take is reserved before its body is read: once it has begun it is read to its
// end, so that half-read requests can't wait for each other.
void Connection::begin_call() noexcept {
  const wire::HttpHead& head = context_->head;
  service::BodySize body;
  if (head.framing == BodyFraming::kLength) {
    const size_t total = head.content_length;
    body.text_bytes = std::min<size_t>(head.inference_header_length.value_or(total), total);
    body.binary_bytes = total - body.text_bytes;
    const bool is_long = context_->begin + body.text_bytes > context_->receive_buffer().size();
    if (is_long) body.collected_bytes = body.text_bytes + wire::JsonParser::kPadding;
  }
  context_->need = service::memory_need(context_->call.infer.model->metadata(), body);
  if (io_.take_room(*context_)) {
    begin_reading();
    return;
  }
  state_ = State::kWaitingRoom;
  io_.timeouts().room.start(timeout_, coarse_now_ns());
}

void Connection::begin_reading() noexcept {
  timeout_.unlink();
  const wire::HttpHead& head = context_->head;
  // A client that waits for leave to send gets it once, and only if it has not begun already.
  if (head.expect_continue && context_->unread().empty()) {
    state_ = State::kContinue;
    const std::string_view text = wire::continue_response();
    context_->send_segments[0] = {const_cast<char*>(text.data()), text.size()};
    io_.loop().send(stream_, std::span(context_->send_segments).first(1));
    watch_send();
    return;
  }
  begin_body();
}

void Connection::on_received(net::Stream& stream, int64_t result) noexcept {
  (void)stream;
  io_.submitter().wake_if_late();
  if (state_ == State::kTimedOut) {
    refuse(Status::error(Code::kRequestTimeout, "the request did not arrive in time"));
    return;
  }
  if (result <= 0) {  // the peer is gone, or will never finish this request
    close();
    return;
  }
  const auto bytes = static_cast<size_t>(result);
  io_.counters().add("received_bytes", bytes);
  progress_bytes_ += bytes;
  handle_received(bytes);
  if (is_overdue_) end_late_receive();
}

void Connection::handle_received(size_t bytes) noexcept {
  switch (state_) {
    case State::kHead:
      context_->end += bytes;
      parse_head();
      return;
    case State::kJson:
      context_->end += bytes;
      continue_json();
      return;
    case State::kChunked:
      context_->end += bytes;
      continue_chunked();
      return;
    case State::kJsonDirect:
    case State::kTensors:
      context_->body_unread -= bytes;
      places().advance(bytes);
      if (state_ == State::kTensors) context_->received_direct_bytes += bytes;
      if (!places().empty()) {
        receive_pending();
      } else if (state_ == State::kTensors) {
        on_body_complete();
      } else {
        on_json({context_->body.data(), context_->body.size()}, {}, context_->body_unread);
      }
      return;
    case State::kDiscard:
      context_->body_unread -= bytes;
      continue_discard();
      return;
    case State::kLinger: drop_some(SIZE_MAX); return;
    default:
      close();  // no receive is in flight in any other state
      return;
  }
}

void Connection::on_gone(net::Stream& stream) noexcept {
  (void)stream;
  if (state_ == State::kRunning || state_ == State::kWaitingRoom) close();
}

// --- after the reply ------------------------------------------------------------------------------

void Connection::on_sent(net::Stream& stream, int64_t result) noexcept {
  (void)stream;
  timeout_.unlink();
  if (result < 0) {
    close();
    return;
  }
  io_.counters().add("sent_bytes", static_cast<uint64_t>(result));
  if (state_ == State::kWriting) io_.record(*context_);
  if (state_ == State::kContinue) {
    begin_body();
  } else if (close_after_ || io_.draining()) {
    begin_linger();
  } else if (context_->body_unread > 0) {
    state_ = State::kDiscard;
    progress_bytes_ = 0;
    io_.timeouts().body.start(timeout_, coarse_now_ns());
    take_body_bytes(std::min(context_->body_unread, context_->unread().size()));
    continue_discard();
  } else {
    next_request();
  }
}

void Connection::watch_send() noexcept {
  sent_ns_ = coarse_now_ns();
  sent_bytes_ = io_.loop().sent_so_far(stream_);
  io_.timeouts().write.start(timeout_, sent_ns_);
}

void Connection::continue_discard() noexcept {
  if (context_->body_unread == 0) {
    timeout_.unlink();
    next_request();
    return;
  }
  drop_some(context_->body_unread);
}

// Closing at once with bytes unread would reset the connection, and the client might never see the
// reply; so our side is closed first and the rest is read and dropped for a bounded time.
void Connection::begin_linger() noexcept {
  io_.release_context(*std::exchange(context_, nullptr));
  if (!io_.loop().end_sending(stream_)) {
    close();
    return;
  }
  // What the kernel still has to send is its own from the close on: a client that takes nothing must not
  // keep it there for good.
  io_.loop().limit_unsent_time(stream_, io_.services().options.timeouts.write_stall_ns);
  state_ = State::kLinger;
  io_.timeouts().linger.start(timeout_, coarse_now_ns());
  drop_some(SIZE_MAX);
}

void Connection::drop_some(size_t at_most) noexcept {
  const std::span<iovec> scratch = io_.scratch();
  const size_t whole = std::min(scratch.size(), at_most / scratch.front().iov_len);
  if (whole > 0) {
    io_.loop().drop(stream_, scratch.first(whole));
    return;
  }
  receive_segment_ = {scratch.front().iov_base, at_most};
  io_.loop().drop(stream_, std::span(&receive_segment_, 1));
}

void Connection::next_request() noexcept {
  io_.end_request(*context_);
  if (!context_->unread().empty()) {
    begin_head();
    return;
  }
  RequestContext* context = std::exchange(context_, nullptr);
  state_ = State::kIdle;
  io_.timeouts().idle.start(timeout_, coarse_now_ns());
  io_.loop().wait_readable(stream_);
  io_.release_context(*context);
}

bool Connection::body_is_late() noexcept {
  if (progress_bytes_ >= io_.services().options.timeouts.body_min_bytes) {
    progress_bytes_ = 0;
    is_overdue_ = false;
    io_.timeouts().body.start(timeout_, coarse_now_ns());
    return false;
  }
  return true;
}

void Connection::end_late_head() noexcept {
  io_.counters().add("timeouts");
  state_ = State::kTimedOut;
  io_.loop().cancel_receive(stream_);  // on_received answers 408
}

bool Connection::give_way() noexcept {
  if (state_ == State::kWaitingRoom) {
    timeout_.unlink();
    respond_error(io_.no_room());
    return true;
  }
  if (state_ != State::kHead || context_->unread().empty()) return false;
  timeout_.unlink();
  end_late_head();
  return true;
}

// The time was up while this thread was elsewhere (with `inline` a model may run for seconds), and what
// was in the socket by then has been taken: is it still late?
void Connection::end_late_receive() noexcept {
  switch (state_) {
    case State::kJson:
    case State::kJsonDirect:
    case State::kTensors:
    case State::kChunked:
      if (!body_is_late()) return;
      [[fallthrough]];
    case State::kHead: end_late_head(); break;
    case State::kDiscard:
      if (!body_is_late()) return;
      [[fallthrough]];
    case State::kLinger: close(); break;
    default: break;  // the request is complete
  }
  is_overdue_ = false;
}

void Connection::end_stalled_send() noexcept {
  const uint64_t now = coarse_now_ns();
  if (now - sent_ns_ < io_.services().options.timeouts.write_stall_ns) {
    io_.timeouts().write.start(timeout_, now);
    return;
  }
  io_.counters().add("timeouts");
  // Closed as usual, what nobody reads would stay in the kernel: megabytes, for minutes.
  close(net::Loop::Closing::kReset);
}

// What the socket holds counts, even if the loop has not come to it since the deadline.
void Connection::on_timeout() noexcept {
  if (state_ == State::kWaitingRoom) {
    respond_error(io_.no_room());
    return;
  }
  const bool has_moved = io_.loop().look_now(stream_);
  if (state_ == State::kWriting || state_ == State::kContinue) {
    if (has_moved || io_.loop().sent_so_far(stream_) != sent_bytes_) {
      watch_send();  // slow, but moving
    } else {
      end_stalled_send();
    }
  } else if (has_moved) {
    is_overdue_ = true;  // until its bytes are delivered, in the next turn
  } else if (state_ == State::kIdle) {
    close(io_.loop().had_unsent(stream_) ? net::Loop::Closing::kReset
                                         : net::Loop::Closing::kOrderly);
  } else {
    end_late_receive();
  }
}

}  // namespace lumen::serve
