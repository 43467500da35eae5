// The io_uring loop's work on a stream: an operation is noted, gathers with others, and goes to the
// kernel as an entry; its completion becomes a result that a turn delivers. Its loop's thread only;
// allocates nothing; failures are the operation's result.
//
// While an entry is in the kernel, so are its buffers: close() cancels the entries, and
// on_closed() comes when the last has completed. The descriptor is closed then, too: the kernel
// holds the socket for as long as an entry names it.
//
// The first bytes of a request come into a lent buffer, which the kernel takes when there is
// something; all others come straight into the memory that receive() names, at most
// kMostReceivedAtOnce bytes by an entry. From that many bytes of a request on, its receives wait in
// the list of postponed receives, of which a turn submits a bounded number, first in first out.
#include "net/connected_socket.h"
#include "net/uring_loop.h"

#include <lumen/base/check.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace lumen::net {
namespace {

// Operations that gather before they are submitted, though the turn goes on: a turn of hundreds of
// requests would keep the first replies for its whole length, and so many share the call's cost.
constexpr uint32_t kMostGathered = 32;

// The completion of a non-blocking descriptor says EAGAIN instead of waiting for readiness.
Status make_blocking(int fd) noexcept {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0 && (flags & O_NONBLOCK) == 0) return {};
  if (flags >= 0 && ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0) return {};
  return Status::from_errno(errno, "making a connection's descriptor blocking");
}

// Whether there is something to receive, be it the end or an error.
bool had_something(int fd) noexcept {
  char byte = 0;
  return ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
         (errno != EAGAIN && errno != EWOULDBLOCK);
}

// Nothing happened to the operation, which is to be tried again.
bool is_to_be_tried_again(int32_t result) noexcept { return result == -EINTR || result == -EAGAIN; }

}  // namespace

Status UringLoop::add(Stream& stream, Socket socket) noexcept {
  configure_stream(socket.number);
  if (Status status = make_blocking(socket.number); !status.ok()) {
    ::close(socket.number);
    return status;
  }
  UringStream& state = stream.begin(UringStream{.stream = &stream, .fd = socket.number});
  state.has_place = ring_->set_file(static_cast<uint32_t>(state.fd), state.fd);
  gather(state);  // for its hang-up
  return {};
}

// --- operations ----------------------------------------------------------------------------------

void UringLoop::gather(UringStream& state) noexcept {
  if (std::exchange(state.gathered, true)) return;
  gathered_.push(state);
  if (++gathered_count_ >= kMostGathered) submit();
}

void UringLoop::close(Stream& stream, Closing how) noexcept {
  UringStream& state = of(stream);
  if (state.postponed) {
    postponed_.remove(state);
    state.postponed = false;
  }
  if (state.receiving == UringStream::Receiving::kReadable && state.has_lent) {
    lent_.give_back(lent_.lend(state.lent_index, 0));
  }
  if (how == Closing::kReset) reset_on_close(state.fd);
  state.closing = true;
  gather(state);
}

void UringLoop::wait_readable(Stream& stream) noexcept {
  UringStream& state = of(stream);
  state.received = 0;  // the next request does not wait behind the bodies of others
  if (state.has_early) {
    state.receiving = UringStream::Receiving::kReadable;
    return complete(state);
  }
  state.receiving = UringStream::Receiving::kReadiness;
  state.receive_asked = true;
  gather(state);
}

void UringLoop::receive(Stream& stream, std::span<iovec> buffers) noexcept {
  ask_receive(of(stream), buffers, false);
}

void UringLoop::drop(Stream& stream, std::span<iovec> buffers) noexcept {
  ask_receive(of(stream), buffers, true);
}

void UringLoop::ask_receive(UringStream& state, std::span<iovec> buffers, bool drops) noexcept {
  if (std::exchange(state.has_early, false)) {
    state.receiving = UringStream::Receiving::kReceived;
    return complete(state);
  }
  state.receiving = UringStream::Receiving::kData;
  state.receive_buffers = buffers;
  state.dropping = drops;
  if (state.received < kMostReceivedAtOnce) {
    state.receive_asked = true;
    gather(state);
  } else {
    state.postponed = true;
    postponed_.push(state);
  }
}

void UringLoop::cancel_receive(Stream& stream) noexcept {
  UringStream& state = of(stream);
  if (state.receiving != UringStream::Receiving::kReadiness &&
      state.receiving != UringStream::Receiving::kData) {
    return;  // none, or the result that it had before follows
  }
  if (state.receive_in_kernel) {
    state.cancel_asked = true;
    return gather(state);
  }
  if (state.postponed) {
    postponed_.remove(state);
    state.postponed = false;
  }
  state.receive_asked = false;
  state.receive_result = -ECANCELED;
  state.receiving = UringStream::Receiving::kReceived;
  complete(state);
}

void UringLoop::send(Stream& stream, std::span<iovec> buffers) noexcept {
  UringStream& state = of(stream);
  state.sending = true;
  state.send_buffers = buffers;
  state.send_result = 0;
  state.send_asked = true;
  gather(state);
}

// --- entries -------------------------------------------------------------------------------------

void UringLoop::write_entries(UringStream& state) noexcept {
  if (state.closing) {
    write_cancels(state);
    return end_close_if_idle(state);
  }
  if (!state.poll_in_kernel && !state.gone) write_poll(state);
  if (state.send_asked) write_send(state);
  if (state.receive_asked) {
    write_receive(state);
  } else if (state.cancel_asked && state.receive_in_kernel) {
    cancel(user_data(state, kReceive));
  }
}

Uring::Entry UringLoop::entry_of(UringStream& state, Operation operation) noexcept {
  const Uring::Entry entry = ring_->next_entry();
  entry.sqe.fd = state.fd;
  entry.sqe.flags = state.has_place ? IOSQE_FIXED_FILE : 0;
  entry.sqe.user_data = user_data(state, operation);
  return entry;
}

// Hang-ups and errors are told without being asked for. Level-triggered it would tell of a
// half-close again and again.
void UringLoop::write_poll(UringStream& state) noexcept {
  const Uring::Entry entry = entry_of(state, kPoll);
  entry.sqe.opcode = IORING_OP_POLL_ADD;
  entry.sqe.len = IORING_POLL_ADD_MULTI;
  state.poll_in_kernel = true;
}

void UringLoop::write_receive(UringStream& state) noexcept {
  const Uring::Entry entry = entry_of(state, kReceive);
  entry.sqe.opcode = IORING_OP_RECV;
  state.receive_asked = false;
  state.receive_in_kernel = true;
  if (state.receiving == UringStream::Receiving::kReadiness) {
    entry.sqe.flags |= IOSQE_BUFFER_SELECT;
    entry.sqe.buf_group = LentBuffers::kGroup;
    entry.sqe.len = LentBuffers::kBytes;
    // The next request comes after the reply, which has just left or leaves with this submission.
    entry.sqe.ioprio = IORING_RECVSEND_POLL_FIRST;
    return;
  }
  // As many whole segments as fit the bound, or a part of the first.
  const size_t at_most = state.received < kMostReceivedAtOnce ? kMostReceivedAtOnce - state.received
                                                              : kMostReceivedAtOnce;
  std::span<iovec> all = state.receive_buffers;
  while (all.size() > 1 && all.front().iov_len == 0) all = all.subspan(1);  // alone: the end
  size_t count = 0;
  for (size_t bytes = 0; count < std::min<size_t>(all.size(), IOV_MAX); ++count) {
    bytes += all[count].iov_len;
    if (bytes > at_most) break;
  }
  entry.sqe.msg_flags = state.dropping ? MSG_TRUNC : 0;
  if (count <= 1) {
    entry.sqe.addr = reinterpret_cast<uint64_t>(all.front().iov_base);
    entry.sqe.len = static_cast<uint32_t>(std::min(all.front().iov_len, at_most));
    return;
  }
  entry.message.msg_iov = all.data();
  entry.message.msg_iovlen = count;
  entry.sqe.opcode = IORING_OP_RECVMSG;
  entry.sqe.addr = reinterpret_cast<uint64_t>(&entry.message);
  entry.sqe.len = 1;
}

void UringLoop::write_send(UringStream& state) noexcept {
  const Uring::Entry entry = entry_of(state, kSend);
  entry.sqe.opcode = IORING_OP_SEND;
  entry.sqe.msg_flags = MSG_NOSIGNAL;
  state.send_asked = false;
  state.send_in_kernel = true;
  if (state.send_buffers.size() == 1) {
    const iovec& only = state.send_buffers.front();
    entry.sqe.addr = reinterpret_cast<uint64_t>(only.iov_base);
    entry.sqe.len = static_cast<uint32_t>(std::min<size_t>(only.iov_len, INT_MAX));
    return;
  }
  entry.message.msg_iov = state.send_buffers.data();
  entry.message.msg_iovlen = std::min<size_t>(state.send_buffers.size(), IOV_MAX);
  entry.sqe.opcode = IORING_OP_SENDMSG;
  entry.sqe.addr = reinterpret_cast<uint64_t>(&entry.message);
  entry.sqe.len = 1;
}

void UringLoop::write_cancels(UringStream& state) noexcept {
  if (state.receive_in_kernel) cancel(user_data(state, kReceive));
  if (state.send_in_kernel) cancel(user_data(state, kSend));
  if (state.poll_in_kernel) cancel(user_data(state, kPoll));
}

// --- completions ---------------------------------------------------------------------------------

void UringLoop::on_receive(UringStream& state, const io_uring_cqe& completion) noexcept {
  state.receive_in_kernel = false;
  const bool has_lent = (completion.flags & IORING_CQE_F_BUFFER) != 0;
  const auto lent_index = static_cast<uint16_t>(completion.flags >> IORING_CQE_BUFFER_SHIFT);
  if (has_lent && (state.closing || completion.res <= 0)) {
    lent_.give_back(lent_.lend(lent_index, 0));
  }
  if (state.closing) return end_close_if_idle(state);
  const bool is_cancelled = std::exchange(state.cancel_asked, false);
  if (is_to_be_tried_again(completion.res) && !is_cancelled) {
    state.receive_asked = true;
    return gather(state);
  }
  state.receive_result = is_to_be_tried_again(completion.res) ? -ECANCELED : completion.res;
  if (state.receiving == UringStream::Receiving::kReadiness && state.receive_result != -ECANCELED) {
    state.receiving = UringStream::Receiving::kReadable;
    state.has_lent = has_lent && completion.res > 0;
    state.lent_index = lent_index;
    state.has_early = !state.has_lent && completion.res != -ENOBUFS;
  } else {
    state.receiving = UringStream::Receiving::kReceived;
  }
  if (completion.res > 0) {
    state.received =
        std::min(state.received + static_cast<uint32_t>(completion.res), kMostReceivedAtOnce);
  }
  complete(state);
}

void UringLoop::on_send(UringStream& state, int32_t result) noexcept {
  state.send_in_kernel = false;
  if (state.closing) return end_close_if_idle(state);
  if (is_to_be_tried_again(result)) result = 0;
  if (result < 0) {
    state.send_result = result;
  } else {
    state.send_result += result;
    auto left = static_cast<size_t>(result);
    while (!state.send_buffers.empty() && left >= state.send_buffers.front().iov_len) {
      left -= state.send_buffers.front().iov_len;
      state.send_buffers = state.send_buffers.subspan(1);
    }
    if (!state.send_buffers.empty()) {
      iovec& first = state.send_buffers.front();
      first.iov_base = static_cast<char*>(first.iov_base) + left;
      first.iov_len -= left;
      state.send_asked = true;
      return gather(state);
    }
  }
  state.sending = false;
  state.send_done = true;
  complete(state);
}

void UringLoop::on_poll(UringStream& state, const io_uring_cqe& completion) noexcept {
  state.poll_in_kernel = (completion.flags & IORING_CQE_F_MORE) != 0;
  if (state.closing) return end_close_if_idle(state);
  if (completion.res < 0 || (completion.res & (POLLHUP | POLLERR)) != 0) {
    state.gone = true;
    return complete(state);
  }
  if (!state.poll_in_kernel) gather(state);  // a half-close, and no room for more completions
}

void UringLoop::end_close_if_idle(UringStream& state) noexcept {
  if (state.fd < 0 || state.gathered || state.receive_in_kernel || state.send_in_kernel ||
      state.poll_in_kernel) {
    return;
  }
  if (state.has_place && !ring_->set_file(static_cast<uint32_t>(state.fd), -1)) {
    (void)::shutdown(state.fd, SHUT_RDWR);  // the table keeps the socket, but not its connection
  }
  ::close(std::exchange(state.fd, -1));
  complete(state);
}

// --- delivery ------------------------------------------------------------------------------------

size_t UringLoop::deliver(UringStream& state) noexcept {
  Stream& stream = *state.stream;
  if (state.closing && state.fd >= 0) return 0;
  wake_handler_.before_delivery();
  if (state.fd < 0) {
    stream.handler->on_closed(stream);
    return 1;
  }
  size_t ran = 0;
  if (std::exchange(state.send_done, false)) {
    stream.handler->on_sent(stream, state.send_result);
    ++ran;
    if (state.closing) return ran;
  }
  ran += deliver_receive(state);
  // The handler may have closed the stream and, in on_closed() only, ended its life.
  if (!state.closing && state.gone && state.receiving == UringStream::Receiving::kNo &&
      !state.sending) {
    state.gone = false;
    stream.handler->on_gone(stream);
    ++ran;
  }
  return ran;
}

size_t UringLoop::deliver_receive(UringStream& state) noexcept {
  Stream& stream = *state.stream;
  if (state.receiving == UringStream::Receiving::kReceived) {
    state.receiving = UringStream::Receiving::kNo;
    stream.handler->on_received(stream, state.receive_result);
    return 1;
  }
  if (state.receiving != UringStream::Receiving::kReadable) return 0;
  state.receiving = UringStream::Receiving::kNo;
  std::span<char> lent;
  if (std::exchange(state.has_lent, false)) {
    lent = lent_.lend(state.lent_index, static_cast<uint32_t>(state.receive_result));
  }
  stream.handler->on_readable(stream, lent);
  return 1;
}

// --- looks ---------------------------------------------------------------------------------------

const io_uring_cqe* UringLoop::find_completion(uint64_t user_data) const noexcept {
  const uint32_t count = ring_->completions();
  for (uint32_t i = 0; i < count; ++i) {
    if (ring_->completion(i).user_data == user_data) return &ring_->completion(i);
  }
  return nullptr;
}

uint64_t UringLoop::sent_so_far(Stream& stream) noexcept {
  return static_cast<uint64_t>(std::max<int64_t>(of(stream).send_result, 0));
}

// Bytes that wait in the socket will complete the receive that is in the kernel or on its way
// there, so a look at the socket and at the completions that have come in says it.
bool UringLoop::look_now(Stream& stream) noexcept {
  UringStream& state = of(stream);
  submit();
  look();
  if (state.completed) return true;
  if (state.sending) {
    if (find_completion(user_data(state, kSend)) != nullptr) return true;
    pollfd writable{.fd = state.fd, .events = POLLOUT, .revents = 0};
    if (::poll(&writable, 1, 0) == 1) return true;
  }
  if (state.receiving == UringStream::Receiving::kNo) return false;
  return find_completion(user_data(state, kReceive)) != nullptr || had_something(state.fd);
}

bool UringLoop::had_unread(Stream& stream) noexcept {
  const UringStream& state = of(stream);
  if (state.has_lent || state.has_early) return true;
  const io_uring_cqe* completion = find_completion(user_data(state, kReceive));
  if (completion != nullptr && completion->res >= 0) return true;
  return had_something(state.fd);
}

bool UringLoop::had_unsent(Stream& stream) noexcept {
  return of(stream).sending || net::had_unsent(of(stream).fd);
}

bool UringLoop::end_sending(Stream& stream) noexcept {
  return ::shutdown(of(stream).fd, SHUT_WR) == 0;
}

void UringLoop::limit_unsent_time(Stream& stream, uint64_t ns) noexcept {
  net::limit_unsent_time(of(stream).fd, ns);
}

std::optional<PeerCredentials> UringLoop::peer_credentials(Stream& stream) noexcept {
  return lumen::peer_credentials(of(stream).fd);
}

std::optional<sockaddr_storage> UringLoop::own_address(Stream& stream) noexcept {
  return net::own_address(of(stream).fd);
}

}  // namespace lumen::net
