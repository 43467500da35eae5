// The connection's steps. Its load thread alone; nothing is allocated after the constructor but the
// text of an error.
#include <lumen/client/client_connection.h>

#include "client/grpc_codec.h"

#include <lumen/base/clock.h>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lumen::client {

ClientConnection::ClientConnection(const Target& target, int epoll_fd, void* tag,
                                   uint64_t timeout_ns)
    : target_(&target),
      epoll_fd_(epoll_fd),
      tag_(tag),
      timeout_ns_(timeout_ns),
      buffer_(std::make_unique_for_overwrite<char[]>(kBufferBytes)) {
  if (target.is_grpc) grpc_ = std::make_unique<GrpcCodec>(target);
}

ClientConnection::~ClientConnection() = default;

Step ClientConnection::begin(std::string_view request) noexcept {
  request_ = request;
  sent_ = 0;
  kept_ = 0;
  received_ = 0;
  reply_bytes_ = 0;
  began_ns_ = now_ns();
  connected_ns_ = began_ns_;
  connected_anew_ = !socket_.valid();
  if (grpc_ != nullptr) grpc_->begin("ModelInfer", request);
  if (connected_anew_) return connect_now();
  state_ = State::kBusy;
  return send_rest();
}

Step ClientConnection::connect_now() noexcept {
  Connecting connecting = start_connecting(*target_, timeout_ns_);
  if (!connecting.fd.valid()) return fail(Failure::kConnect, connecting.error, {});
  socket_ = ClientSocket(std::move(connecting.fd), *target_);
  if (!socket_.valid()) return fail(Failure::kConnect, ENOMEM, {});
  // Edge-triggered for both directions: registered once, no epoll_ctl on the way. Added after
  // connect(), because a socket that has not begun to connect reports EPOLLHUP.
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLET;
  event.data.ptr = tag_;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, socket_.fd(), &event) != 0) {
    return fail(Failure::kConnect, errno, {});
  }
  state_ = State::kConnecting;
  return connecting.connected ? finish_connecting() : Step::kPending;
}

Step ClientConnection::finish_connecting() noexcept {
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return fail(Failure::kConnect, error, {});
  state_ = State::kShaking;
  return shake_hands();
}

Step ClientConnection::shake_hands() noexcept {
  switch (socket_.shake_hands()) {
    case ClientSocket::Shaken::kPending: return Step::kPending;
    case ClientSocket::Shaken::kFailed: return fail(Failure::kConnect, errno, socket_.reason());
    case ClientSocket::Shaken::kDone: break;
  }
  connected_ns_ = now_ns();
  state_ = State::kBusy;
  return send_rest();
}

Step ClientConnection::advance() noexcept {
  if (!socket_.valid()) return Step::kPending;  // closed in the same turn that reported it
  switch (state_) {
    case State::kConnecting: return finish_connecting();
    case State::kShaking: return shake_hands();
    case State::kBusy:
      if (grpc_ != nullptr || sent_ < request_.size()) {
        if (const Step step = send_rest(); step != Step::kPending) return step;
      }
      return receive();
    case State::kIdle: break;
  }
  if (grpc_ != nullptr) return idle_frames();
  // Nothing was asked: the server ends an idle connection.
  char byte = 0;
  const ssize_t bytes = socket_.receive({&byte, 1});
  if (bytes >= 0 || (errno != EAGAIN && errno != EINTR)) close();
  return Step::kPending;
}

Step ClientConnection::send_rest() noexcept {
  if (grpc_ != nullptr) return send_frames();
  while (sent_ < request_.size()) {
    const ssize_t bytes = socket_.send(request_.substr(sent_));
    if (bytes >= 0) {
      sent_ += static_cast<size_t>(bytes);
    } else if (errno == EAGAIN) {
      return Step::kPending;
    } else if (errno != EINTR) {
      // A server may refuse a request early, answer and close: its answer is worth more than EPIPE.
      const int error = errno;
      const Step step = receive();
      return step == Step::kReplied ? step : fail(Failure::kClosed, error, {});
    }
  }
  return Step::kPending;
}

Step ClientConnection::receive() noexcept {
  for (;;) {
    // Once the head is there, the body is read over the same bytes again.
    const size_t offset = grpc_ != nullptr    ? 0
                          : reply_bytes_ == 0 ? kept_
                                              : std::min(kept_, kBufferBytes / 2);
    const ssize_t bytes = socket_.receive({buffer_.get() + offset, kBufferBytes - offset});
    if (bytes == 0) return fail(Failure::kClosed, 0, "the server closed the connection");
    if (bytes < 0) {
      if (errno == EAGAIN) return Step::kPending;
      if (errno == EINTR) continue;
      return fail(Failure::kClosed, errno, socket_.reason());
    }
    // Most often a reply is whole after one recv(); the next edge tells of more.
    if (const Step step = take(static_cast<size_t>(bytes)); step != Step::kPending) return step;
  }
}

Step ClientConnection::take(size_t bytes) noexcept {
  if (grpc_ != nullptr) return take_frames(bytes);
  received_ += bytes;
  if (reply_bytes_ == 0) {
    kept_ += bytes;
    const ReplyHeadResult result = parse_reply_head({buffer_.get(), kept_});
    if (result.state == HeadState::kBroken) return fail(Failure::kBroken, 0, result.reason);
    if (result.state == HeadState::kNeedMore) {
      if (kept_ == kBufferBytes) return fail(Failure::kBroken, 0, "a head of over 64 KiB");
      return Step::kPending;
    }
    head_ = result.head;
    if (!head_.content_length) {
      return fail(Failure::kBroken, 0, "a reply without Content-Length");
    }
    reply_bytes_ = head_.head_bytes + *head_.content_length;
  }
  if (received_ < reply_bytes_) return Step::kPending;
  if (received_ > reply_bytes_) {
    return fail(Failure::kBroken, 0, "more bytes than the reply's Content-Length");
  }
  state_ = State::kIdle;
  // An early reply leaves the rest of the request unsent: the connection can't be used again.
  if (head_.closes || sent_ < request_.size()) close();
  return Step::kReplied;
}

Step ClientConnection::send_frames() noexcept {
  for (auto out = grpc_->output(); !out.empty(); out = grpc_->output()) {
    const ssize_t bytes = socket_.send(out);
    if (bytes >= 0) {
      grpc_->sent(static_cast<size_t>(bytes));
    } else if (errno == EAGAIN) {
      return Step::kPending;
    } else if (errno != EINTR) {
      return fail(Failure::kClosed, errno, socket_.reason());
    }
  }
  return grpc_->error().empty() ? Step::kPending : fail(Failure::kBroken, 0, grpc_->error());
}

Step ClientConnection::take_frames(size_t bytes) noexcept {
  const auto progress = grpc_->receive({buffer_.get(), bytes});
  if (progress == GrpcCodec::Progress::kBroken) return fail(Failure::kBroken, 0, grpc_->error());
  if (const Step step = send_frames(); step != Step::kPending) return step;
  if (progress == GrpcCodec::Progress::kPending) return Step::kPending;
  head_ = {};
  head_.status = grpc_->status();
  reply_bytes_ = grpc_->reply_bytes();
  kept_ = grpc_->status_text().copy(buffer_.get(), kBufferBytes);
  state_ = State::kIdle;
  return Step::kReplied;
}

// Nothing was asked: windows and pings, or the connection's end.
Step ClientConnection::idle_frames() noexcept {
  for (;;) {
    const ssize_t bytes = socket_.receive({buffer_.get(), kBufferBytes});
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) return Step::kPending;
    if (bytes <= 0 || !grpc_->stays_open({buffer_.get(), static_cast<size_t>(bytes)}) ||
        send_frames() != Step::kPending) {
      close();
      return Step::kPending;
    }
  }
}

void ClientConnection::close() noexcept {
  if (grpc_ != nullptr) grpc_->close();
  socket_.reset();  // leaves the epoll set with it: nobody else holds the description
  state_ = State::kIdle;
}

Step ClientConnection::fail(Failure failure, int error, std::string_view reason) noexcept {
  failure_ = failure;
  error_ = error;
  reason_ = reason;  // a copy: the socket's goes with it
  close();
  return Step::kFailed;
}

std::string ClientConnection::error_text() const {
  std::string text(kFailureNames[static_cast<size_t>(failure_)]);
  return text + ": " + (reason_.empty() ? std::string(strerror(error_)) : reason_);
}

}  // namespace lumen::client
