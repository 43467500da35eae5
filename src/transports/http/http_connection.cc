// The conversation's course; late requests: connection_time.cc. I/O thread only; allocates nothing.
// Any error ends in an error reply or in close().
#include "transports/http/http_connection.h"

#include "transports/http/http_transport.h"

#include <lumen/base/clock.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace lumen::http {
namespace {

constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

}  // namespace

void HttpConnection::open(net::Loop& loop, net::Socket socket, Origin origin) noexcept {
  loop_ = &loop;
  is_local_ = origin.is_local;
  is_carried_ = origin.is_carried;
  accepted_ns_ = is_carried() ? 0 : now_ns();
  state_ = State::kIdle;
  in_loop_ = loop_->add(stream_, socket).ok();
  if (!in_loop_) {
    begin_closing();
    return;
  }
  start(host_.timeouts().idle);
  loop_->wait_readable(stream_);
}

void HttpConnection::close(net::Loop::Closing how) noexcept {
  if (state_ == State::kFree || state_ == State::kAbandoned || state_ == State::kClosing ||
      state_ == State::kTaken) {
    return;
  }
  timeout_.unlink();
  if (state_ == State::kWaitingContext) host_.contexts().stop_waiting(*this);
  if (!lent_.empty()) loop_->give_back(std::exchange(lent_, {}));
  loop_->close(stream_, how);
  if (state_ == State::kRunning) {
    host_.thread().dispatcher.cancel(context_->call);
    state_ = State::kAbandoned;  // the engine still writes into the context
    return;
  }
  begin_closing();
}

void HttpConnection::begin_closing() noexcept {
  state_ = State::kClosing;
  host_.connection_closing(*this);
  if (!in_loop_) finish_closing();
}

void HttpConnection::finish_closing() noexcept {
  state_ = State::kFree;
  if (context_ != nullptr) host_.contexts().release(*std::exchange(context_, nullptr));
  host_.connection_closed(*this);
}

void HttpConnection::on_closed(net::Stream&) noexcept {
  in_loop_ = false;
  if (state_ == State::kTaken)
    begin_closing();
  else if (state_ == State::kClosing)
    finish_closing();
}

void HttpConnection::on_drain() noexcept {
  // An idle connection whose next request has begun to arrive is answered once more.
  const bool at_rest = state_ == State::kIdle && !loop_->had_unread(stream_);
  if (at_rest || state_ == State::kLinger || state_ == State::kDiscard) close();
}

void HttpConnection::start(net::TimeoutList& timeouts) noexcept {
  timeouts.start(timeout_, coarse_now_ns());
}

// --- the request ---------------------------------------------------------------------------------

void HttpConnection::on_readable(net::Stream&, std::span<char> lent) noexcept {
  timeout_.unlink();
  lent_ = lent;
  state_ = State::kWaitingContext;
  if (RequestContext* context = host_.contexts().acquire(*this)) resume(*context);
}

void HttpConnection::resume(RequestContext& context) noexcept {
  context_ = &context;
  if (!lent_.empty()) {
    context_->buffer.append({lent_.data(), lent_.size()});
    host_.counters().add("received_bytes", lent_.size());
    loop_->give_back(std::exchange(lent_, {}));
  }
  begin_head();
}

void HttpConnection::begin_head() noexcept {
  state_ = State::kHead;
  is_overdue_ = false;
  start(host_.timeouts().head);
  if (context_->buffer.unread().empty()) {
    loop_->receive(stream_, context_->buffer.wanted());
  } else {
    read_head();
  }
}

// The preface of HTTP/2, with which a connection begins whose client knows that it is spoken here
// (RFC 9113, 3.4). No request of HTTP/1.1 does.
void HttpConnection::hand_over() noexcept {
  timeout_.unlink();
  const std::string_view received = context_->buffer.unread();
  state_ = State::kTaken;
  if (!host_.thread().http2->take(*loop_, stream_, {received.data(), received.size()}, is_local_)) {
    state_ = State::kHead;
    close();
    return;
  }
  context_->buffer.clear();
  host_.contexts().release(*std::exchange(context_, nullptr));
}

// True: the first bytes of the connection are the preface, or may become it.
bool HttpConnection::reads_preface() noexcept {
  const bool is_first = accepted_ns_ != 0;
  if (!is_first || host_.thread().http2 == nullptr) return false;
  const std::string_view received = context_->buffer.unread();
  if (received.starts_with(kHttp2Preface)) {
    hand_over();
    return true;
  }
  if (!kHttp2Preface.starts_with(received)) return false;
  loop_->receive(stream_, context_->buffer.wanted());
  return true;
}

void HttpConnection::read_head() noexcept {
  const wire::HeadProgress progress = context_->head_reader.read(context_->buffer);
  if (progress != wire::HeadProgress::kComplete && reads_preface()) return;
  switch (progress) {
    case wire::HeadProgress::kNeedMore: loop_->receive(stream_, context_->buffer.wanted()); return;
    case wire::HeadProgress::kRefused: go_on(host_.handler().on_bad_head(*context_)); return;
    case wire::HeadProgress::kComplete: break;
  }
  timeout_.unlink();
  is_overdue_ = false;
  context_->call.infer.times.accepted_ns = std::exchange(accepted_ns_, 0);
  go_on(host_.handler().on_head(*context_, stream_, is_local_));
}

void HttpConnection::go_on(Next next) noexcept {
  switch (next) {
    case Next::kWaitForRoom:
      state_ = State::kWaitingRoom;
      start(host_.timeouts().room);
      return;
    case Next::kReadBody: begin_reading(); return;
    case Next::kReadTensors:
      state_ = State::kTensors;
      go_on(context_->body.begin_tensors(context_->call.to_receive));
      return;
    case Next::kAway:
      timeout_.unlink();
      state_ = State::kRunning;
      return;
    case Next::kReply:
      state_ = State::kWriting;
      send();
      return;
  }
}

void HttpConnection::begin_reading() noexcept {
  timeout_.unlink();
  // A client that waits for leave to send gets it once, and only if it has not begun already.
  if (context_->head().expect_continue && context_->buffer.unread().empty()) {
    state_ = State::kContinue;
    context_->reply.write_continue();
    send();
    return;
  }
  begin_body();
}

void HttpConnection::begin_body() noexcept {
  state_ = State::kText;
  progress_bytes_ = 0;
  start(host_.timeouts().body);
  const bool is_infer = context_->route.endpoint == Endpoint::kInfer;
  go_on(
      context_->body.begin_text(is_infer ? context_->head().inference_header_length : std::nullopt,
                                host_.services().options.max_body_bytes, context_->memory));
}

void HttpConnection::go_on(RequestBody::Progress progress) noexcept {
  switch (progress) {
    case RequestBody::Progress::kNeedMore: loop_->receive(stream_, context_->body.wanted()); return;
    case RequestBody::Progress::kHasMore:
      state_ = State::kInflating;
      inflated_in_turn_ = host_.turn();
      start(host_.timeouts().inflating);
      return;
    case RequestBody::Progress::kComplete:
      go_on(state_ == State::kText ? host_.handler().on_text(*context_)
                                   : host_.handler().on_tensors(*context_));
      return;
    default: go_on(host_.handler().on_bad_body(*context_, progress)); return;
  }
}

void HttpConnection::inflate_on() noexcept {
  state_ = context_->body.is_in_tensors() ? State::kTensors : State::kText;
  start(host_.timeouts().body);
  go_on(context_->body.go_on());
}

void HttpConnection::on_received(net::Stream&, int64_t result) noexcept {
  if (state_ == State::kTimedOut) {
    go_on(host_.handler().on_late(*context_));
    return;
  }
  if (result <= 0) {  // the peer is gone, or will never finish this request
    close();
    return;
  }
  const auto bytes = static_cast<size_t>(result);
  if (!is_carried()) host_.counters().add("received_bytes", bytes);
  progress_bytes_ += bytes;
  handle_received(bytes);
  if (is_overdue_) end_late_receive();
}

void HttpConnection::handle_received(size_t bytes) noexcept {
  switch (state_) {
    case State::kHead:
      context_->buffer.add(bytes);
      read_head();
      return;
    case State::kText:
    case State::kTensors: go_on(context_->body.received(bytes)); return;
    case State::kDiscard:
      context_->body.drop(bytes);
      continue_discard();
      return;
    case State::kLinger: drop_some(SIZE_MAX); return;
    default:
      close();  // no receive is in flight in any other state
      return;
  }
}

void HttpConnection::on_gone(net::Stream&) noexcept {
  if (state_ == State::kRunning || state_ == State::kWaitingRoom || state_ == State::kInflating) {
    close();
  }
}

void HttpConnection::on_returned() noexcept {
  if (state_ == State::kAbandoned) {
    begin_closing();
  } else {
    go_on(host_.handler().on_returned(*context_));
  }
}

// --- the reply, and after it ---------------------------------------------------------------------

void HttpConnection::send() noexcept {
  loop_->send(stream_, context_->reply.segments());
  watch_send();
}

void HttpConnection::watch_send() noexcept {
  const uint64_t now = coarse_now_ns();
  context_->reply.watch(loop_->sent_so_far(stream_), now);
  host_.timeouts().write.start(timeout_, now);
}

void HttpConnection::on_sent(net::Stream&, int64_t result) noexcept {
  timeout_.unlink();
  if (result < 0) {
    close();
    return;
  }
  if (!is_carried()) host_.counters().add("sent_bytes", static_cast<uint64_t>(result));
  if (state_ == State::kWriting) host_.record(*context_);
  if (state_ == State::kContinue) {
    begin_body();
  } else if (context_->close_after || host_.draining()) {
    begin_linger();
  } else if (context_->body.left() > 0) {
    begin_discard();
  } else {
    next_request();
  }
}

void HttpConnection::begin_discard() noexcept {
  state_ = State::kDiscard;
  progress_bytes_ = 0;
  start(host_.timeouts().body);
  context_->body.drop_received();
  continue_discard();
}

void HttpConnection::continue_discard() noexcept {
  if (context_->body.left() == 0) {
    timeout_.unlink();
    next_request();
    return;
  }
  drop_some(context_->body.left());
}

// Closing at once with bytes unread would reset the connection, and the client might never see the
// reply; so our side is closed first and the rest is read and dropped for a bounded time.
void HttpConnection::begin_linger() noexcept {
  host_.contexts().release(*std::exchange(context_, nullptr));
  if (!loop_->end_sending(stream_)) {
    close();
    return;
  }
  // The kernel's unsent bytes are its own from the close on: a client that takes nothing must not
  // keep them there for good.
  loop_->limit_unsent_time(stream_, host_.services().options.timeouts.write_stall_ns);
  state_ = State::kLinger;
  start(host_.timeouts().linger);
  drop_some(SIZE_MAX);
}

void HttpConnection::drop_some(size_t at_most) noexcept {
  const std::span<iovec> scratch = host_.scratch();
  const size_t whole = std::min(scratch.size(), at_most / scratch.front().iov_len);
  if (whole > 0) {
    loop_->drop(stream_, scratch.first(whole));
    return;
  }
  drop_segment_ = {scratch.front().iov_base, at_most};
  loop_->drop(stream_, std::span(&drop_segment_, 1));
}

void HttpConnection::next_request() noexcept {
  host_.contexts().end_request(*context_);
  if (!context_->buffer.unread().empty()) {
    begin_head();
    return;
  }
  RequestContext* context = std::exchange(context_, nullptr);
  state_ = State::kIdle;
  start(host_.timeouts().idle);
  loop_->wait_readable(stream_);
  host_.contexts().release(*context);
}

}  // namespace lumen::http
