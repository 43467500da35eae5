// ClientSocket: a socket that never blocks, with TLS on it where its target wants that.
// Threads: one. Memory: none of its own; OpenSSL's where there is TLS. Errors: as those of send(2)
// and recv(2); EPROTO: of TLS, and reason() says which.
#pragma once

#include <lumen/base/unique_fd.h>
#include <lumen/client/target.h>

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

struct ssl_st;

namespace lumen::client {

class ClientSocket {
 public:
  enum class Shaken : uint8_t { kDone, kPending, kFailed };

  ClientSocket() = default;
  // `fd`: connected, or connecting; it never blocks.
  ClientSocket(UniqueFd fd, const Target& target);

  [[nodiscard]] bool valid() const noexcept { return fd_.valid(); }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  void reset() noexcept;

  // Before all bytes, once the socket is connected; without TLS it is done at once. kFailed: errno
  // and reason() say why.
  [[nodiscard]] Shaken shake_hands() noexcept;
  // The number of bytes; -1 with EAGAIN: none now.
  [[nodiscard]] ssize_t send(std::string_view bytes) noexcept;
  // 0: the server has ended its side.
  [[nodiscard]] ssize_t receive(std::span<char> room) noexcept;
  // After kPending or EAGAIN: poll()'s event to wait for. With TLS a send may wait for bytes.
  [[nodiscard]] short awaited(short otherwise) const noexcept;
  [[nodiscard]] std::string_view reason() const noexcept { return reason_; }

 private:
  struct EndSession {
    void operator()(ssl_st* session) const noexcept;
  };
  // -1 and errno, or 0, from the last call of OpenSSL, which was not done.
  [[nodiscard]] ssize_t tell(int outcome) noexcept;

  UniqueFd fd_;
  std::unique_ptr<ssl_st, EndSession> session_;  // nullptr: no TLS
  std::string reason_;
};

}  // namespace lumen::client
