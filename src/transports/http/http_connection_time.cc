// Requests that are late or in others' way: heads, bodies, replies that don't move. I/O thread
// only; allocates nothing.
#include "transports/http/http_connection.h"

#include "transports/http/http_transport.h"

#include <lumen/base/clock.h>

namespace lumen::http {

bool HttpConnection::body_is_late() noexcept {
  if (progress_bytes_ < host_.services().options.timeouts.body_min_bytes) return true;
  if (context_ != nullptr && host_.thread().intake.is_awaited(context_->call)) return true;
  progress_bytes_ = 0;
  is_overdue_ = false;
  start(host_.timeouts().body);
  return false;
}

void HttpConnection::end_late_head() noexcept {
  host_.counters().add("timeouts");
  state_ = State::kTimedOut;
  loop_->cancel_receive(stream_);  // on_received answers 408
}

bool HttpConnection::give_way() noexcept {
  if (state_ == State::kWaitingRoom) {
    timeout_.unlink();
    go_on(host_.handler().on_no_room(*context_));
    return true;
  }
  if (context_->has_room()) return false;  // one of max_active_requests
  switch (state_) {
    case State::kHead:
      if (context_->buffer.unread().empty()) return false;
      [[fallthrough]];
    case State::kText:
      timeout_.unlink();
      end_late_head();
      return true;
    case State::kWriting:
    case State::kContinue:
      // A reply that has just begun to leave may be gone with the next turn, and one that began in
      // a long turn may be gone although the loop has not come to that yet.
      if (context_->reply.stalled_ns(coarse_now_ns()) == 0 || loop_->look_now(stream_) ||
          context_->reply.has_moved(loop_->sent_so_far(stream_))) {
        return false;
      }
      host_.counters().add("timeouts");
      close(net::Loop::Closing::kReset);
      return true;
    case State::kDiscard: close(); return true;
    default: return false;
  }
}

// The time was up while this thread was elsewhere (with `inline` a model may run for seconds), and
// the bytes in the socket by then have been taken: is it still late?
void HttpConnection::end_late_receive() noexcept {
  switch (state_) {
    case State::kText:
    case State::kTensors:
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

void HttpConnection::look_at_send(bool has_moved) noexcept {
  const bool is_awaited = host_.thread().intake.is_awaited(context_->call);
  if (!is_awaited && (has_moved || context_->reply.has_moved(loop_->sent_so_far(stream_)))) {
    watch_send();  // slow, but moving
    return;
  }
  const uint64_t now = coarse_now_ns();
  if (!is_awaited &&
      context_->reply.stalled_ns(now) < host_.services().options.timeouts.write_stall_ns) {
    host_.timeouts().write.start(timeout_, now);
    return;
  }
  host_.counters().add("timeouts");
  // Closed as usual, bytes that the client does not read would stay in the kernel: megabytes, for
  // minutes.
  close(net::Loop::Closing::kReset);
}

// Bytes in the socket count, even if the loop has not come to it since the deadline.
void HttpConnection::on_timeout() noexcept {
  if (state_ == State::kWaitingRoom) {
    go_on(host_.handler().on_no_room(*context_));
    return;
  }
  const bool has_moved = loop_->look_now(stream_);
  if (state_ == State::kWriting || state_ == State::kContinue) {
    look_at_send(has_moved);
  } else if (has_moved) {
    is_overdue_ = true;  // until its bytes are delivered, in the next turn
  } else if (state_ == State::kIdle) {
    close(loop_->had_unsent(stream_) ? net::Loop::Closing::kReset : net::Loop::Closing::kOrderly);
  } else {
    end_late_receive();
  }
}

}  // namespace lumen::http
