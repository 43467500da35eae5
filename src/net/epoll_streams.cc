// The epoll loop's work on a stream: attempts at once, and goes on when epoll tells. Its loop's
// thread only; allocates nothing; failures are the operation's result.
//
// The first kMostReceivedAtOnce bytes of a request are received at once. Later receives of the same
// request go into the list of postponed receives. A turn tries them after its events, first in
// first out and each stream once, until it has taken kMostPostponedBytesPerTurn. An edge only tells
// of new bytes, so a receive leaves the list in four ways alone: it is tried, it is cancelled, the
// stream is closed, or look_now() tries it. The loop does not sleep while the list holds one. The
// close of the peer and errors need no way of their own: the receive finds them when it is tried.
#include "net/connected_socket.h"
#include "net/epoll_loop.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace lumen::net {
namespace {

// One segment, as most requests and replies are, goes by recv and send: the kernel need not copy in
// a msghdr and a list of segments, 0.1 us a call of 1 to 3.
ssize_t receive_some(int fd, std::span<iovec> buffers, int flags) noexcept {
  if (buffers.size() == 1) return ::recv(fd, buffers[0].iov_base, buffers[0].iov_len, flags);
  msghdr message{};
  message.msg_iov = buffers.data();
  message.msg_iovlen = buffers.size();
  return ::recvmsg(fd, &message, flags);
}

ssize_t send_some(int fd, std::span<iovec> buffers) noexcept {
  if (buffers.size() == 1) {
    return ::send(fd, buffers[0].iov_base, buffers[0].iov_len, MSG_NOSIGNAL);
  }
  msghdr message{};
  message.msg_iov = buffers.data();
  message.msg_iovlen = std::min<size_t>(buffers.size(), IOV_MAX);
  return ::sendmsg(fd, &message, MSG_NOSIGNAL);
}

EpollStream& of(Stream& stream) noexcept { return stream.state<EpollStream>(); }

}  // namespace

Status EpollLoop::add(Stream& stream, Socket socket) noexcept {
  configure_stream(socket.number);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  EpollStream& state = stream.begin(EpollStream{.stream = &stream, .fd = socket.number});
  event.data.u64 = reinterpret_cast<uint64_t>(&state) | kStreamTag;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.number, &event) != 0) {
    Status status = Status::from_errno(errno, "adding a connection to epoll");
    ::close(socket.number);
    return status;
  }
  return {};
}

// Closing takes the socket out of epoll, since nobody holds a duplicate, and frees the buffers at
// once. Events of this turn may still name the stream: on_closed() comes behind them.
void EpollLoop::close(Stream& stream, Closing how) noexcept {
  EpollStream& state = of(stream);
  take_off_postponed(state);
  if (how == Closing::kReset) reset_on_close(state.fd);
  ::close(std::exchange(state.fd, -1));
  queue_completion(state);
}

void EpollLoop::wait_readable(Stream& stream) noexcept {
  EpollStream& state = of(stream);
  state.receiving = EpollStream::Receiving::kReadiness;
  state.received = 0;  // the next request does not wait behind the bodies of others
  if (!state.readable) return;
  // A receive that filled its buffers exactly (a body, as a rule) leaves it open whether more is
  // there. Taken for readable, an idle connection would be given a request's memory and the timeout
  // of a head of which no byte has come; one look costs 0.2 us and only after such a receive.
  if (peek(state)) queue_completion(state);
}

// Whether there is something to receive, be it the end or an error.
bool EpollLoop::peek(EpollStream& state) noexcept {
  char byte = 0;
  ++system_calls_;
  const ssize_t got = ::recv(state.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  state.readable = got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  return state.readable;
}

bool EpollLoop::look_now(Stream& stream) noexcept {
  EpollStream& state = of(stream);
  if (state.queued) return true;  // its handler runs in the next turn
  const int64_t sent_before = state.send_result;
  if (state.sending) try_send(state);
  take_off_postponed(state);
  if (state.receiving == EpollStream::Receiving::kData) {
    (void)try_receive(state, kMostReceivedAtOnce);
  }
  if (state.receiving == EpollStream::Receiving::kReadiness && peek(state)) queue_completion(state);
  return state.queued || state.send_result != sent_before;
}

void EpollLoop::receive(Stream& stream, std::span<iovec> buffers) noexcept {
  begin_receive(of(stream), buffers, false);
}

void EpollLoop::drop(Stream& stream, std::span<iovec> buffers) noexcept {
  begin_receive(of(stream), buffers, true);
}

void EpollLoop::begin_receive(EpollStream& state, std::span<iovec> buffers, bool drops) noexcept {
  state.receiving = EpollStream::Receiving::kData;
  state.receive_buffers = buffers;
  state.dropping = drops;
  if (state.readable) try_receive_or_postpone(state);
}

void EpollLoop::cancel_receive(Stream& stream) noexcept {
  EpollStream& state = of(stream);
  if (state.receiving == EpollStream::Receiving::kNo) return;
  take_off_postponed(state);
  if (state.receiving != EpollStream::Receiving::kDone) state.receive_result = -ECANCELED;
  state.receiving = EpollStream::Receiving::kDone;
  queue_completion(state);
}

void EpollLoop::send(Stream& stream, std::span<iovec> buffers) noexcept {
  EpollStream& state = of(stream);
  state.sending = true;
  state.send_buffers = buffers;
  state.send_result = 0;
  // Attempted without waiting for readiness: a reply nearly always fits the socket's buffer.
  if (state.writable) try_send(state);
}

// Goes on with the operations in flight.
void EpollLoop::on_stream_event(EpollStream& state, uint32_t events) noexcept {
  if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) state.peer_closed = true;
  if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
    state.readable = true;
    if (state.receiving == EpollStream::Receiving::kData) try_receive_or_postpone(state);
    if (state.receiving == EpollStream::Receiving::kReadiness) queue_completion(state);
  }
  if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) {
    state.writable = true;
    if (state.sending) try_send(state);
  }
  if (events & (EPOLLHUP | EPOLLERR)) {
    state.gone = true;
    queue_completion(state);
  }
}

void EpollLoop::try_receive_or_postpone(EpollStream& state) noexcept {
  if (state.received < kMostReceivedAtOnce) {
    (void)try_receive(state, kMostReceivedAtOnce - state.received);
  } else {
    postpone(state);
  }
}

void EpollLoop::postpone(EpollStream& state) noexcept {
  state.receiving = EpollStream::Receiving::kPostponed;
  state.next_postponed = nullptr;
  if (first_postponed_ == nullptr) {
    first_postponed_ = &state;
  } else {
    last_postponed_->next_postponed = &state;
  }
  last_postponed_ = &state;
}

// Walks the list: a second link has no room in Stream, the list is no longer than there are bodies
// under way, and few connections are closed or cancelled within one.
void EpollLoop::take_off_postponed(EpollStream& state) noexcept {
  if (state.receiving != EpollStream::Receiving::kPostponed) return;
  state.receiving = EpollStream::Receiving::kData;
  EpollStream* before = nullptr;
  for (EpollStream* one = first_postponed_; one != &state; one = one->next_postponed) before = one;
  if (before == nullptr) {
    first_postponed_ = state.next_postponed;
  } else {
    before->next_postponed = state.next_postponed;
  }
  if (last_postponed_ == &state) last_postponed_ = before;
}

// Each stream once: its next receive comes from its handler, which runs later in the turn.
void EpollLoop::receive_postponed() noexcept {
  size_t left = kMostPostponedBytesPerTurn;
  while (first_postponed_ != nullptr && left >= kMostReceivedAtOnce) {
    EpollStream& state = *first_postponed_;
    take_off_postponed(state);
    left -= try_receive(state, kMostReceivedAtOnce);
  }
}

// Returns how many bytes came.
size_t EpollLoop::try_receive(EpollStream& state, size_t at_most) noexcept {
  size_t wanted = 0;
  size_t count = 0;
  const size_t most = std::min<size_t>(state.receive_buffers.size(), IOV_MAX);
  while (count < most && wanted < at_most) wanted += state.receive_buffers[count++].iov_len;
  const std::span<iovec> buffers = state.receive_buffers.first(count);
  // Shortens the last one for this call only: the caller's segments stay as they are.
  const size_t beyond = wanted - std::min(wanted, at_most);
  if (beyond > 0) buffers.back().iov_len -= beyond;
  wanted -= beyond;
  ssize_t got = 0;
  do {
    ++system_calls_;
    got = receive_some(state.fd, buffers, state.dropping ? MSG_TRUNC : 0);
  } while (got < 0 && errno == EINTR);
  if (beyond > 0) buffers.back().iov_len += beyond;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    state.readable = false;
    return 0;
  }
  // A short read has emptied the socket (epoll(7)), so the next attempt waits for an edge and the
  // read that would only say EAGAIN is spared. Not after the peer's close: no edge will come.
  if (got > 0 && static_cast<size_t>(got) < wanted && !state.peer_closed) state.readable = false;
  state.receive_result = static_cast<int32_t>(got < 0 ? -errno : got);
  state.receiving = EpollStream::Receiving::kDone;
  queue_completion(state);
  const size_t bytes = got < 0 ? 0 : static_cast<size_t>(got);
  state.received =
      static_cast<uint32_t>(std::min<size_t>(state.received + bytes, kMostReceivedAtOnce));
  return bytes;
}

void EpollLoop::try_send(EpollStream& state) noexcept {
  while (!state.send_buffers.empty()) {
    ++system_calls_;
    const ssize_t sent = send_some(state.fd, state.send_buffers);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        state.writable = false;
        return;
      }
      state.send_result = -errno;
      break;
    }
    state.send_result += sent;
    size_t left = static_cast<size_t>(sent);
    while (!state.send_buffers.empty() && left >= state.send_buffers.front().iov_len) {
      left -= state.send_buffers.front().iov_len;
      state.send_buffers = state.send_buffers.subspan(1);
    }
    if (left > 0) {
      iovec& first = state.send_buffers.front();
      first.iov_base = static_cast<char*>(first.iov_base) + left;
      first.iov_len -= left;
    }
  }
  state.sending = false;
  state.send_done = true;
  queue_completion(state);
}

uint64_t EpollLoop::sent_so_far(Stream& stream) noexcept {
  return static_cast<uint64_t>(std::max<int64_t>(of(stream).send_result, 0));
}

bool EpollLoop::end_sending(Stream& stream) noexcept {
  return ::shutdown(of(stream).fd, SHUT_WR) == 0;
}

void EpollLoop::limit_unsent_time(Stream& stream, uint64_t ns) noexcept {
  net::limit_unsent_time(of(stream).fd, ns);
}

bool EpollLoop::had_unread(Stream& stream) noexcept { return peek(of(stream)); }

bool EpollLoop::had_unsent(Stream& stream) noexcept { return net::had_unsent(of(stream).fd); }

std::optional<PeerCredentials> EpollLoop::peer_credentials(Stream& stream) noexcept {
  return lumen::peer_credentials(of(stream).fd);
}

std::optional<sockaddr_storage> EpollLoop::own_address(Stream& stream) noexcept {
  return net::own_address(of(stream).fd);
}

}  // namespace lumen::net
