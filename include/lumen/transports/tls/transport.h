// The transport of TLS: takes the connections of TCP listeners, and passes their plaintext to the
// transport of HTTP, as the loop that moves the bytes of these connections.
// Threads: its I/O thread; make_transport() before it runs. Memory: buffers in make_transport(); of
// a connection OpenSSL's, most of it from its handshake. Errors: a connection that can't be served
// is closed.
#pragma once
#include <lumen/transports/common/transport.h>
#include <lumen/transports/tls/handshakes.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lumen::tls {

struct Options {
  size_t max_connections = 1024;  // of this I/O thread, in a handshake and after it
  // From the accept to the handshake's end.
  uint64_t handshake_timeout_ns = 10'000'000'000;
};

struct Services {
  Options options;
  Handshakes& handshakes;
};

[[nodiscard]] Result<std::unique_ptr<transports::Transport>> make_transport(
    const Services& services, const transports::ThreadServices& thread);

}  // namespace lumen::tls
