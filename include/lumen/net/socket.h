// Sockets: addresses as users write them, and listeners.
// Threads: any. Memory: control plane (std::string). Says no: Status with address and reason.
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

struct TcpListener {
  UniqueFd fd;         // non-blocking, listening
  TcpAddress address;  // with the port that the kernel chose
};

// `shared_port`: SO_REUSEPORT, for one listener an I/O thread.
[[nodiscard]] Result<TcpListener> listen_tcp(const TcpAddress& address, bool shared_port);

// For an accepted connection: no Nagle delay, replies leave in one write.
void configure_stream(int fd) noexcept;

}  // namespace lumen::net
