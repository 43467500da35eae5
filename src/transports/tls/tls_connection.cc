// See the header.
#include "transports/tls/tls_connection.h"

#include "transports/tls/tls_transport.h"

#include <lumen/base/check.h>
#include <lumen/base/clock.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lumen::tls {
namespace {

// Plaintext of one receive: a large body does not keep other connections waiting.
constexpr int64_t kMostPlainAtOnce = int64_t{256} << 10;
constexpr int64_t kNothingYet = -EAGAIN;

}  // namespace

// --- the handshake -------------------------------------------------------------------------------

void TlsConnection::open(net::Socket socket) noexcept {
  cipher_.end();  // it may have seen the end of a connection without a handshake
  state_ = State::kWaiting;
  step_ = Cipher::Progress::kWantsBytes;
  wanted_ = Wanted::kNothing;
  plain_ = {};
  broken_ = 0;
  receiving_ = Receiving::kNothing;
  is_sending_inner_ = is_sending_ = ends_sending_ = has_said_goodbye_ = false;
  is_over_ = is_step_due_ = is_ending_ = closes_on_return_ = knows_it_is_gone_ = false;
  in_loop_ = host_.inner_loop().add(inner_, socket).ok();
  if (!in_loop_) {
    state_ = State::kClosing;
    after_closed();
    return;
  }
  host_.handshakes().start(timeout_, coarse_now_ns());
  receive_more();
}

void TlsConnection::begin_step() noexcept {
  // The thread writes behind the bytes that are to be sent, so these leave first.
  is_step_due_ = !is_flushed();
  if (is_step_due_) return;
  state_ = State::kAway;
  host_.submit(*this);
}

unsigned long TlsConnection::run(const Certificates& certificates) noexcept {
  unsigned long error = 0;
  if (is_ending_) {
    cipher_.end();
  } else if (cipher_.has_begun() || cipher_.begin(*certificates.current())) {
    step_ = cipher_.handshake();
    if (step_ == Cipher::Progress::kFailed) error = cipher_.error();
  } else {
    step_ = Cipher::Progress::kFailed;
  }
  host_.post(*this);  // from here on it is its I/O thread's
  return error;
}

void TlsConnection::on_returned() noexcept {
  if (is_ending_) {
    state_ = State::kFree;
    host_.connection_closed(*this);
    return;
  }
  state_ = State::kWaiting;
  if (closes_on_return_) {
    close_inner(net::Loop::Closing::kOrderly);
    return;
  }
  flush();
  switch (step_) {
    case Cipher::Progress::kWantsBytes: receive_more(); return;
    case Cipher::Progress::kDone: begin_serving(); return;
    default: leave(); return;
  }
}

void TlsConnection::begin_serving() noexcept {
  timeout_.unlink();
  state_ = State::kOpen;
  host_.handshake_done(cipher_.has_resumed());
  if (!host_.pass_on(*this)) close_inner(net::Loop::Closing::kReset);
}

// --- the end -------------------------------------------------------------------------------------

void TlsConnection::leave() noexcept {
  state_ = State::kLeaving;
  flush();
  if (is_flushed() || broken_ < 0) {
    close_inner(net::Loop::Closing::kOrderly);
  } else {
    host_.goodbyes().start(timeout_, coarse_now_ns());
  }
}

void TlsConnection::close_inner(net::Loop::Closing how) noexcept {
  if (state_ == State::kClosing || state_ == State::kFree) return;
  state_ = State::kClosing;
  timeout_.unlink();
  host_.inner_loop().close(inner_, how);
}

void TlsConnection::on_drain() noexcept {
  if (state_ == State::kWaiting) close_inner(net::Loop::Closing::kOrderly);
  if (state_ == State::kAway) closes_on_return_ = true;
}

void TlsConnection::close_now() noexcept {
  switch (state_) {
    case State::kWaiting: close_inner(net::Loop::Closing::kOrderly); return;
    case State::kLeaving: close_inner(net::Loop::Closing::kReset); return;
    case State::kAway: closes_on_return_ = true; return;
    default: return;  // an open one is the outer side's
  }
}

void TlsConnection::on_closed(net::Stream&) noexcept {
  in_loop_ = false;
  after_closed();
}

void TlsConnection::after_closed() noexcept {
  if (step_ != Cipher::Progress::kDone) host_.handshake_failed();
  if (net::Stream* const outer = std::exchange(outer_, nullptr)) outer->handler->on_closed(*outer);
  if (!buffers_.empty()) {
    cipher_.lend({}, {});
    host_.give_buffer(std::exchange(buffers_, {}));
  }
  if (cipher_.has_begun()) {
    is_ending_ = true;
    host_.submit(*this);
    return;
  }
  state_ = State::kFree;
  host_.connection_closed(*this);
}

// --- the inner side ------------------------------------------------------------------------------

void TlsConnection::take_buffers() noexcept {
  if (!buffers_.empty()) return;
  buffers_ = host_.take_buffer();
  cipher_.lend(buffers_.first(kInBytes), buffers_.subspan(kInBytes));
}

void TlsConnection::give_buffers_up() noexcept {
  if (buffers_.empty() || receiving_ == Receiving::kFills || is_sending_inner_ ||
      !cipher_.is_empty()) {
    return;
  }
  cipher_.lend({}, {});
  host_.give_buffer(std::exchange(buffers_, {}));
}

void TlsConnection::receive_more() noexcept {
  if (receiving_ == Receiving::kFills) return;
  if (wanted_ == Wanted::kData) {
    take_buffers();
  } else {
    give_buffers_up();
  }
  if (receiving_ == Receiving::kWaits) return;
  if (!buffers_.empty()) return receive_into_buffer();
  receiving_ = Receiving::kWaits;
  host_.inner_loop().wait_readable(inner_);
}

void TlsConnection::receive_into_buffer() noexcept {
  receiving_ = Receiving::kFills;
  const std::span<char> room = cipher_.room();
  in_segment_ = {room.data(), room.size()};
  host_.inner_loop().receive(inner_, std::span(&in_segment_, 1));
}

void TlsConnection::on_readable(net::Stream&, std::span<char> lent) noexcept {
  receiving_ = Receiving::kNothing;
  take_buffers();
  if (lent.empty()) return receive_into_buffer();
  const std::span<char> room = cipher_.room();
  LUMEN_CHECK(lent.size() <= room.size());
  std::memcpy(room.data(), lent.data(), lent.size());
  host_.inner_loop().give_back(lent);
  came_in(static_cast<int64_t>(lent.size()));
}

void TlsConnection::on_received(net::Stream&, int64_t result) noexcept {
  receiving_ = Receiving::kNothing;
  came_in(result);
}

void TlsConnection::came_in(int64_t result) noexcept {
  if (result > 0) cipher_.received(static_cast<size_t>(result));
  if (result == 0) cipher_.has_ended();
  if (result < 0) broken_ = result;
  if (state_ == State::kOpen) {
    tell();
  } else if (state_ == State::kWaiting && result > 0) {
    begin_step();
  } else if (state_ == State::kWaiting) {
    close_inner(net::Loop::Closing::kOrderly);
  }
}

void TlsConnection::flush() noexcept {
  const std::span<char> bytes = cipher_.to_send();
  if (is_sending_inner_ || bytes.empty() || broken_ < 0) return;
  is_sending_inner_ = true;
  out_segment_ = {bytes.data(), bytes.size()};
  host_.inner_loop().send(inner_, std::span(&out_segment_, 1));
}

void TlsConnection::on_sent(net::Stream&, int64_t result) noexcept {
  is_sending_inner_ = false;
  if (result < 0) {
    broken_ = result;
  } else {
    cipher_.sent(static_cast<size_t>(result));
  }
  switch (state_) {
    case State::kLeaving:
      flush();
      if (is_flushed() || broken_ < 0) close_inner(net::Loop::Closing::kOrderly);
      return;
    case State::kWaiting:
      if (broken_ < 0) {
        close_inner(net::Loop::Closing::kOrderly);
        return;
      }
      flush();
      if (is_step_due_) begin_step();
      return;
    case State::kOpen:
      if (is_sending_ && broken_ == 0) encrypt();
      flush();
      if (ends_sending_ && is_flushed()) (void)host_.inner_loop().end_sending(inner_);
      tell();
      return;
    default: return;
  }
}

void TlsConnection::on_gone(net::Stream&) noexcept {
  broken_ = -ECONNRESET;
  switch (state_) {
    case State::kOpen: tell(); return;
    case State::kAway: closes_on_return_ = true; return;
    default: close_inner(net::Loop::Closing::kOrderly); return;
  }
}

// --- the outer side ------------------------------------------------------------------------------

void TlsConnection::close(net::Loop::Closing how) noexcept {
  is_over_ = true;
  wanted_ = Wanted::kNothing;
  is_sending_ = false;
  plain_ = {};
  if (how == net::Loop::Closing::kReset || broken_ < 0) {
    close_inner(how);
    return;
  }
  (void)end_sending();
  leave();
}

void TlsConnection::wait_readable() noexcept {
  wanted_ = Wanted::kReadable;
  host_.make_ready(*this);
}

void TlsConnection::receive(std::span<iovec> buffers) noexcept {
  wanted_ = Wanted::kData;
  wanted_buffers_ = buffers;
  host_.make_ready(*this);
}

void TlsConnection::cancel_receive() noexcept {
  if (wanted_ == Wanted::kNothing) return;
  wanted_ = Wanted::kCancelled;
  host_.make_ready(*this);
}

void TlsConnection::send(std::span<iovec> buffers) noexcept {
  is_sending_ = true;
  plain_ = buffers;
  plain_taken_ = 0;
  encrypt();
  if (broken_ < 0 || is_flushed()) host_.make_ready(*this);  // or there was nothing to send
}

bool TlsConnection::look_now() noexcept { return host_.inner_loop().look_now(inner_); }

bool TlsConnection::end_sending() noexcept {
  if (broken_ < 0) return false;
  if (!std::exchange(has_said_goodbye_, true)) {
    take_buffers();
    cipher_.say_goodbye();
  }
  flush();
  ends_sending_ = true;
  return !is_flushed() || host_.inner_loop().end_sending(inner_);
}

bool TlsConnection::had_unread() noexcept {
  return cipher_.has_unread() || host_.inner_loop().had_unread(inner_);
}

void TlsConnection::run() noexcept {
  if (state_ == State::kOpen) tell();
}

// --- plaintext -----------------------------------------------------------------------------------

void TlsConnection::encrypt() noexcept {
  take_buffers();
  while (!plain_.empty() && cipher_.has_room()) {
    const std::span<const char> piece = next_plain();
    if (piece.empty()) break;
    if (cipher_.write(piece) != Cipher::Progress::kDone) {
      broken_ = -EPROTO;
      return;
    }
    take_plain(piece.size());
  }
  flush();
}

std::span<const char> TlsConnection::next_plain() noexcept {
  while (!plain_.empty() && plain_.front().iov_len == 0) plain_ = plain_.subspan(1);
  if (plain_.empty()) return {};
  const iovec& first = plain_.front();
  if (plain_.size() == 1 || first.iov_len >= Cipher::kPlainBytes) {
    return {static_cast<const char*>(first.iov_base), std::min(first.iov_len, Cipher::kPlainBytes)};
  }
  // A head and a small body are one record.
  const std::span<char> scratch = host_.scratch();
  size_t size = 0;
  for (const iovec& piece : plain_) {
    const size_t part = std::min(piece.iov_len, scratch.size() - size);
    if (part > 0) std::memcpy(scratch.data() + size, piece.iov_base, part);
    size += part;
    if (size == scratch.size()) break;
  }
  return scratch.first(size);
}

void TlsConnection::take_plain(size_t bytes) noexcept {
  plain_taken_ += bytes;
  while (bytes > 0) {
    iovec& first = plain_.front();
    const size_t part = std::min(bytes, first.iov_len);
    first.iov_base = static_cast<char*>(first.iov_base) + part;
    first.iov_len -= part;
    bytes -= part;
    if (first.iov_len == 0) plain_ = plain_.subspan(1);
  }
}

void TlsConnection::tell() noexcept {
  if (std::exchange(is_telling_, true)) return;
  while (outer_ != nullptr && !is_over_ && state_ == State::kOpen) {
    const bool is_sent = plain_.empty() && is_flushed();
    if (is_sending_ && (broken_ < 0 || is_sent)) {
      is_sending_ = false;
      plain_ = {};
      outer_->handler->on_sent(*outer_, broken_ < 0 ? broken_ : static_cast<int64_t>(plain_taken_));
      continue;
    }
    if (!tell_received()) break;
  }
  is_telling_ = false;
}

bool TlsConnection::tell_received() noexcept {
  net::Stream& outer = *outer_;
  int64_t result = 0;
  switch (wanted_) {
    case Wanted::kNothing:
      if (broken_ == 0 || is_sending_ || std::exchange(knows_it_is_gone_, true)) return false;
      outer.handler->on_gone(outer);
      return true;
    case Wanted::kReadable: {
      const bool is_there = cipher_.look() != Cipher::Progress::kWantsBytes || broken_ < 0;
      flush();
      if (!is_there) {
        receive_more();
        return false;
      }
      wanted_ = Wanted::kNothing;
      outer.handler->on_readable(outer, {});
      return true;
    }
    case Wanted::kCancelled: result = -ECANCELED; break;
    default:
      result = read_some();
      flush();
      if (result == kNothingYet && broken_ < 0) result = broken_;
      if (result == kNothingYet) {
        receive_more();
        return false;
      }
  }
  wanted_ = Wanted::kNothing;
  outer.handler->on_received(outer, result);
  return true;
}

int64_t TlsConnection::read_some() noexcept {
  int64_t total = 0;
  for (const iovec& buffer : wanted_buffers_) {
    std::span<char> room(static_cast<char*>(buffer.iov_base), buffer.iov_len);
    while (!room.empty()) {
      if (total >= kMostPlainAtOnce) return total;
      size_t got = 0;
      const Cipher::Progress progress = cipher_.read(room, got);
      if (progress != Cipher::Progress::kDone) {
        if (total > 0) return total;
        if (progress == Cipher::Progress::kWantsBytes) return kNothingYet;
        return progress == Cipher::Progress::kEnded ? 0 : -EPROTO;
      }
      total += static_cast<int64_t>(got);
      room = room.subspan(got);
    }
  }
  return total;
}

}  // namespace lumen::tls
