// Unix sockets: a listener whose file two servers can't both have, and which no client can open too
// early; the peer's credentials.
// Threads: any. Memory: control plane (std::string). Errors: Status with the path and the reason.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <sys/types.h>
#include <sys/un.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lumen {

// Refuses a path that can't be a socket's: empty, longer than the kernel's 107 bytes, a NUL in it.
[[nodiscard]] Status check_unix_path(std::string_view path);

// $XDG_RUNTIME_DIR/lumen.sock; empty where that is not set, not absolute or too long.
[[nodiscard]] std::string default_unix_path();

enum class UnixSocketKind : uint8_t {
  kStream,
  kMessages,  // SOCK_SEQPACKET: each send() is received whole
};

// The path as the kernel takes it; it has passed check_unix_path().
[[nodiscard]] sockaddr_un unix_address(std::string_view path) noexcept;

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
[[nodiscard]] Result<UnixListener> listen_unix(const std::string& path,
                                               UnixSocketKind kind = UnixSocketKind::kStream);

// The process at the other end of a unix socket.
struct PeerCredentials {
  pid_t pid;
  uid_t uid;
  gid_t gid;
};

// As the kernel noted them at connect(). nullopt: not a unix socket.
[[nodiscard]] std::optional<PeerCredentials> peer_credentials(int fd) noexcept;

}  // namespace lumen
