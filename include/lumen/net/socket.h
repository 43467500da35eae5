// TCP addresses as users write them, and TCP listeners. Unix sockets: base/unix_socket.h.
// Threads: any. Memory: control plane (std::string). Errors: Status with address and reason.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace lumen::net {

struct TcpAddress {
  std::string host;  // IPv4, IPv6 (without brackets) or "localhost"
  uint16_t port = 0;

  [[nodiscard]] std::string text() const;  // "127.0.0.1:8000", "[::1]:8000"
};

// "HOST:PORT", "[V6]:PORT" or ":PORT" (127.0.0.1). Port 0 lets the kernel choose.
[[nodiscard]] Result<TcpAddress> parse_tcp_address(std::string_view text);

// Reached from this machine alone: 127.0.0.0/8, ::1, or the former written as IPv6.
[[nodiscard]] bool is_loopback(const TcpAddress& address) noexcept;

struct TcpListener {
  UniqueFd fd;         // non-blocking, listening
  TcpAddress address;  // with the port that the kernel chose
};

// `shared_port`: SO_REUSEPORT, for one listener an I/O thread.
[[nodiscard]] Result<TcpListener> listen_tcp(const TcpAddress& address, bool shared_port);

// A socket that listens already, of this process's parent.
struct ListeningSocket {
  int fd = -1;
  bool is_unix = false;
  std::string name;  // HOST:PORT, or the path; "@NAME" for an abstract one
};
// Makes it non-blocking. Refused: a descriptor that is no stream socket that listens, of TCP or
// unix.
[[nodiscard]] Result<ListeningSocket> look_at_listener(int fd);

}  // namespace lumen::net
