// See the header.
#include "client/waiting_socket.h"

#include <lumen/base/clock.h>

#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace lumen::client {
namespace {

Status failed(const char* what) { return Status::error(Code::kUnavailable, "%s", what); }

}  // namespace

Result<WaitingSocket> WaitingSocket::connect(const Target& target, uint64_t deadline_ns) {
  const uint64_t now = now_ns();
  Connecting connecting = start_connecting(target, deadline_ns > now ? deadline_ns - now : 1);
  if (!connecting.fd.valid()) return failed(strerror(connecting.error));
  ClientSocket made(std::move(connecting.fd), target);
  if (!made.valid()) return failed(strerror(ENOMEM));
  WaitingSocket socket(std::move(made), deadline_ns);
  if (!connecting.connected) {
    if (!socket.wait_for(POLLOUT)) return failed("no connection in time");
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket.socket_.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return failed(strerror(error));
  }
  LUMEN_RETURN_IF_ERROR(socket.shake_hands());
  return socket;
}

Status WaitingSocket::shake_hands() {
  for (;;) {
    switch (socket_.shake_hands()) {
      case ClientSocket::Shaken::kDone: return {};
      case ClientSocket::Shaken::kFailed: return failed(std::string(socket_.reason()).c_str());
      case ClientSocket::Shaken::kPending: break;
    }
    if (!wait_for(socket_.awaited(POLLIN))) return failed("no handshake of TLS in time");
  }
}

bool WaitingSocket::wait_for(short events) const {
  for (;;) {
    const uint64_t now = now_ns();
    if (now >= deadline_ns_) return false;
    pollfd entry{socket_.fd(), events, 0};
    const int count = poll(&entry, 1, static_cast<int>((deadline_ns_ - now) / 1'000'000u) + 1);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
  }
}

Status WaitingSocket::failed_with(int error) const {
  const std::string reason(socket_.reason());
  return failed(reason.empty() ? strerror(error) : reason.c_str());
}

Status WaitingSocket::send_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = socket_.send(bytes);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!wait_for(socket_.awaited(POLLOUT))) return failed("no time left to send");
    } else if (errno != EINTR) {
      return failed_with(errno);
    }
  }
  return {};
}

Result<size_t> WaitingSocket::receive(std::span<char> room) {
  for (;;) {
    const ssize_t count = socket_.receive(room);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return failed_with(errno);
    if (!wait_for(socket_.awaited(POLLIN))) return failed("no reply in time");
  }
}

}  // namespace lumen::client
