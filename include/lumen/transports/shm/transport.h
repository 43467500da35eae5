// The transport of the bus: wire/bus_infer.h describes the frames; tensors are read and written
// where the client has them.
// Threads: its I/O thread; make_transport() before it runs. Memory: calls in make_transport(); a
// connection when it comes. Errors: make_transport() returns why; afterwards replies with a status.
#pragma once

#include <lumen/bus/listener.h>
#include <lumen/service/readiness.h>
#include <lumen/transports/common/transport.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lumen::service {
class Documents;
}

namespace lumen::shm {

struct Options {
  uint32_t overload_status;    // of a reply to one request too many
  size_t max_body_bytes;       // of all inputs of a request
  size_t max_active_requests;  // of one I/O thread
};

// The parts that the transports of all I/O threads share.
struct Services {
  const Options& options;
  const service::Documents& documents;
  const service::Readiness& readiness;
  bus::Listener& listener;  // each takes connections from it; outlives them
};

[[nodiscard]] Result<std::unique_ptr<transports::Transport>> make_transport(
    const Services& services, const transports::ThreadServices& thread);

}  // namespace lumen::shm
