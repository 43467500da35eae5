// The calls of a loop over sockets on a connection's descriptor beside its bytes. Threads: its
// loop's. Memory: none. Errors: a call that the kernel refuses has no effect.
#pragma once

#include <lumen/net/loop.h>

namespace lumen::net {

// For an accepted connection, TCP or unix: no Nagle delay, replies leave in one write.
void configure_stream(int fd) noexcept;

// Closing it drops unsent bytes and resets the connection, instead of leaving the bytes to the
// kernel.
void reset_on_close(int fd) noexcept;
// Whether the peer has not acknowledged all sent bytes. False for a descriptor that is no TCP
// socket.
[[nodiscard]] bool had_unsent(int fd) noexcept;
// See Loop.
void limit_unsent_time(int fd, uint64_t ns) noexcept;
[[nodiscard]] std::optional<sockaddr_storage> own_address(int fd) noexcept;

}  // namespace lumen::net
