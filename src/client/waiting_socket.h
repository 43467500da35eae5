// WaitingSocket: a connection whose operations wait, until one deadline for all of them.
// Threads: one. Memory: as ClientSocket's. Errors: a Status that says why, without the server's
// name.
#pragma once

#include <lumen/client/client_socket.h>
#include <lumen/client/target.h>

#include <lumen/base/result.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::client {

class WaitingSocket {
 public:
  // `deadline_ns`: of CLOCK_MONOTONIC.
  [[nodiscard]] static Result<WaitingSocket> connect(const Target& target, uint64_t deadline_ns);

  [[nodiscard]] Status send_all(std::string_view bytes);
  // The number of bytes; 0: the peer has ended its side.
  [[nodiscard]] Result<size_t> receive(std::span<char> room);

 private:
  WaitingSocket(ClientSocket socket, uint64_t deadline_ns) noexcept
      : socket_(std::move(socket)), deadline_ns_(deadline_ns) {}
  [[nodiscard]] Status shake_hands();
  // False when the deadline passed first.
  [[nodiscard]] bool wait_for(short events) const;
  [[nodiscard]] Status failed_with(int error) const;

  ClientSocket socket_;
  uint64_t deadline_ns_;
};

}  // namespace lumen::client
