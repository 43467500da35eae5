// The transport of HTTP/1.1.
// Threads: its I/O thread; make_transport() before it runs. Memory: everything in make_transport().
// Errors: make_transport() returns why; afterwards error replies.
#pragma once

#include <lumen/models/backends.h>
#include <lumen/service/compression.h>
#include <lumen/service/job.h>
#include <lumen/service/readiness.h>
#include <lumen/transports/common/api_keys.h>
#include <lumen/transports/common/transport.h>
#include <lumen/transports/http/options.h>

#include <memory>

namespace lumen::service {
class Documents;
}

namespace lumen::http {

class Cors;
class HostCheck;

// The parts that the transports of all I/O threads share.
struct Services {
  const Options& options;
  const service::Documents& documents;
  const HostCheck& hosts;
  const Cors& cors;
  const transports::ApiKeysInUse& keys;
  const service::Readiness& readiness;
  models::Backends& backends;   // which are told of the requests' memory
  service::JobThread& control;  // settings, recordings, shared memory
  service::JobThread& loader;   // models that come and go
  service::JobThread& metrics;
  service::CompressionThread* compressor;  // of replies; nullptr: none is compressed
};

[[nodiscard]] Result<std::unique_ptr<transports::Transport>> make_transport(
    const Services& services, const transports::ThreadServices& thread);

}  // namespace lumen::http
