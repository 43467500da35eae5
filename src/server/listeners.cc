// See the header for threads, memory and errors.
#include "server/listeners.h"

#include <lumen/base/cpu.h>
#include <lumen/net/socket.h>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lumen::server {
namespace {

// 1,820 refusals, and as many replies of up to 576 bytes, at once.
constexpr uint64_t kBusRingBytes = uint64_t{1} << 20;

}  // namespace

Status Listeners::open(const ServerOptions& options, const Report& report) {
  threads_ = options.io_thread_count;
  const auto& given = options.listening_sockets;
  const bool has_unix = std::ranges::any_of(given, &net::ListeningSocket::is_unix);
  const bool has_tcp = !std::ranges::all_of(given, &net::ListeningSocket::is_unix);
  for (const net::ListeningSocket& socket : given) LUMEN_RETURN_IF_ERROR(take(socket));
  if (!has_tcp) {
    LUMEN_RETURN_IF_ERROR(open_tcp(options, options.http_address, http_address_));
    LUMEN_RETURN_IF_ERROR(open_tcp(options, options.grpc_address, grpc_address_));
  }
  LUMEN_RETURN_IF_ERROR(open_bus(options));
  return has_unix ? Status() : open_unix(options, report);
}

Status Listeners::take(const net::ListeningSocket& socket) {
  UniqueFd fd(::fcntl(socket.fd, F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) return Status::from_errno(errno, "sharing the socket %s", socket.name.c_str());
  given_.push_back({.fd = std::move(fd), .is_local = socket.is_unix});
  std::string& tcp_address = http_address_.empty() ? http_address_ : grpc_address_;
  (socket.is_unix ? unix_path_ : tcp_address) = socket.name;
  return {};
}

Status Listeners::open_tcp(const ServerOptions& options, const std::string& wanted,
                           std::string& got) {
  if (wanted == kOff) return {};
  Result<net::TcpAddress> address = net::parse_tcp_address(wanted);
  if (!address.ok()) return address.status();
  for (uint32_t i = 0; i < options.io_thread_count; ++i) {
    Result<net::TcpListener> listener = net::listen_tcp(*address, options.io_thread_count > 1);
    if (!listener.ok()) return listener.status();
    address->port = listener->address.port;
    got = listener->address.text();
    tcp_.push_back(std::move(listener->fd));
  }
  return {};
}

Status Listeners::open_bus(const ServerOptions& options) {
  if (options.bus_path.empty()) return {};
  const size_t area_bytes = (options.bus_area_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  Result<std::unique_ptr<bus::Listener>> listener = bus::Listener::create(
      options.bus_path,
      {.role = bus::Role::kBoth,
       .capacity = kBusRingBytes,
       .area_bytes = area_bytes,
       .max_connections = kMaxBusConnections,
       .max_connections_per_user = kMaxBusConnections,
       .max_bytes = kMaxBusConnections * (area_bytes + 4 * kBusRingBytes),
       .max_bytes_per_user = kMaxBusConnections * (area_bytes + 4 * kBusRingBytes)});
  if (!listener.ok()) return listener.status();
  bus_ = std::move(*listener);
  bus_path_ = bus_->path();
  return {};
}

// The path that nobody asked for may be another server's: then this one goes without and says so.
Status Listeners::open_unix(const ServerOptions& options, const Report& report) {
  if (options.unix_path == kOff) return {};
  const bool asked_for = !options.unix_path.empty();
  const std::string path = asked_for ? options.unix_path : default_unix_path();
  if (path.empty()) {
    report(LogLevel::kInfo,
           "no unix socket for live changes: $XDG_RUNTIME_DIR is not set; --unix PATH makes one");
    return {};
  }
  Result<UnixListener> listener = listen_unix(path);
  const bool is_only_one = http_address_.empty() && grpc_address_.empty();
  if (!listener.ok() && (asked_for || is_only_one)) return listener.status();
  if (!listener.ok()) {
    unix_note_ = listener.status().message();
    return {};
  }
  unix_ = std::move(*listener);
  unix_path_ = unix_.path();
  return {};
}

Result<std::vector<ListenerSocket>> Listeners::sockets_of(uint32_t thread) {
  std::vector<ListenerSocket> sockets;
  for (size_t i = thread; i < tcp_.size(); i += threads_) {
    sockets.push_back({.fd = std::move(tcp_[i]), .is_local = false, .is_shared = false});
  }
  const auto share = [&](int fd, bool is_local) -> Status {
    UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!own.valid()) return Status::from_errno(errno, "sharing a socket with the I/O threads");
    sockets.push_back({.fd = std::move(own), .is_local = is_local, .is_shared = threads_ > 1});
    return {};
  };
  for (const Shared& one : given_) LUMEN_RETURN_IF_ERROR(share(one.fd.get(), one.is_local));
  if (unix_.fd() >= 0) LUMEN_RETURN_IF_ERROR(share(unix_.fd(), true));
  return sockets;
}

void Listeners::close() noexcept {
  unix_.close();
  given_.clear();
}

}  // namespace lumen::server
