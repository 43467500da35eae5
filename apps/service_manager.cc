// See the header. The variables and their forms: sd_listen_fds(3), sd_notify(3).
#include "service_manager.h"

#include <lumen/base/unique_fd.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace {

using lumen::Code;
using lumen::Result;
using lumen::Status;
using lumen::net::ListeningSocket;

constexpr int kFirstSocket = 3;  // SD_LISTEN_FDS_START
constexpr int kMostSockets = 3;  // two of TCP, as --http and --grpc, and a unix socket

// -1: not set, or no number.
int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  int number = -1;
  if (text == nullptr) return number;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, number);
  return error == std::errc() && stop == end ? number : -1;
}

Status refuse(const std::string& text) {
  return Status::error(Code::kInvalidArgument, "sockets of the service manager: %s", text.c_str());
}

}  // namespace

Result<std::vector<ListeningSocket>> take_listening_sockets() {
  const bool is_for_us = number_of("LISTEN_PID") == getpid();
  const int count = is_for_us ? number_of("LISTEN_FDS") : 0;
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) unsetenv(name);
  std::vector<ListeningSocket> sockets;
  if (count <= 0) return sockets;
  if (count > kMostSockets) {
    return refuse("got " + std::to_string(count) + ", wanted at most two of TCP and a unix socket");
  }
  for (int fd = kFirstSocket; fd < kFirstSocket + count; ++fd) {
    (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
    Result<ListeningSocket> socket = lumen::net::look_at_listener(fd);
    if (!socket.ok()) return refuse(std::string(socket.status().message()));
    sockets.push_back(std::move(*socket));
  }
  const auto unix_sockets = std::ranges::count_if(sockets, &ListeningSocket::is_unix);
  if (unix_sockets > 1 || count - unix_sockets > 2) {
    return refuse("got " + std::to_string(count - unix_sockets) + " of TCP and " +
                  std::to_string(unix_sockets) + " unix sockets, wanted at most two and one");
  }
  return sockets;
}

ServiceManager::ServiceManager() {
  if (const char* path = std::getenv("NOTIFY_SOCKET"); path != nullptr) path_ = path;
  unsetenv("NOTIFY_SOCKET");
}

void ServiceManager::send(std::string_view state) const noexcept {
  sockaddr_un address{};
  if (path_.empty() || path_.size() >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::ranges::copy(path_, address.sun_path);
  if (path_[0] == '@') address.sun_path[0] = '\0';
  const lumen::UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
  // The manager sees the end of a process by itself, and without READY=1 says so when it is late.
  (void)::sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&address), size);
}
