// The transport of gRPC: inference.GRPCInferenceService over HTTP/2, on connections whose clients
// begin with HTTP/2's preface.
// Threads: its I/O thread; make_transport() before it runs. Memory: everything in make_transport().
// Errors: make_transport() returns why; afterwards replies with a status of gRPC.
#pragma once

#include <lumen/service/job.h>
#include <lumen/service/readiness.h>
#include <lumen/transports/common/access.h>
#include <lumen/transports/common/transport.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lumen::service {
class Documents;
}

namespace lumen::grpc {

// Of one I/O thread.
struct Options {
  size_t max_message_bytes;
  size_t max_connections;
  size_t max_active_requests;
  size_t max_backlog_bytes;  // of all streams that wait for a request
  uint64_t idle_ns;          // a connection without a request
  uint64_t body_period_ns;   // the next body_min_bytes of a message that has begun, or its rest
  uint64_t body_min_bytes;
  uint64_t write_stall_ns;  // a reply must make progress within this time
  transports::AccessRules access;
};

// The parts that the transports of all I/O threads share.
struct Services {
  const Options& options;
  const service::Documents& documents;
  const transports::ApiKeysInUse& keys;
  service::JobThread& control;  // settings, shared memory, documents
  service::JobThread& loader;   // models that come and go
  const service::Readiness& readiness;
};

[[nodiscard]] Result<std::unique_ptr<transports::Transport>> make_transport(
    const Services& services, const transports::ThreadServices& thread);

}  // namespace lumen::grpc
