// Sockets: addresses as users write them, and listeners, TCP and unix.
// Threads: any. Memory: control plane (std::string). Errors: Status with address and reason.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <sys/types.h>

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

// Refuses what can't be a socket's path: empty, longer than the kernel's 107 bytes, a NUL in it.
[[nodiscard]] Status check_unix_path(std::string_view path);

// $XDG_RUNTIME_DIR/lumen.sock; empty where that is not set, not absolute or too long.
[[nodiscard]] std::string default_unix_path();

// A listening unix socket. Its file goes when it goes, if it is still the file that it made.
class UnixListener {
 public:
  UnixListener() noexcept = default;
  UnixListener(UniqueFd fd, std::string path, dev_t device, ino_t inode) noexcept;
  UnixListener(UnixListener&& other) noexcept = default;
  UnixListener& operator=(UnixListener&& other) noexcept;
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;
  ~UnixListener() { close(); }

  // Non-blocking, listening; -1 without one. For several I/O threads: each its own dup() of it.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // Removes the file and stops listening, once all copies of the descriptor are closed.
  void close() noexcept;

 private:
  UniqueFd fd_;
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Mode 0660 before anyone can connect. A socket that nobody listens on any more is replaced; one
// that answers (kAlreadyExists), and a file that is no socket, are refused and left as they are.
[[nodiscard]] Result<UnixListener> listen_unix(const std::string& path);

}  // namespace lumen::net
