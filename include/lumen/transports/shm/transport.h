// Transport: inference over the bus for one I/O thread: its connections, their requests, their replies. What is in
// the frames stands in wire/bus_infer.h; tensors are read and written where the client has them.
// Threads: its I/O thread; create() before it runs. Memory: calls at create(); a connection when it comes.
// Errors: create() returns why; afterwards replies with a status.
#pragma once

#include <lumen/bus/listener.h>
#include <lumen/engine/engine.h>
#include <lumen/net/loop.h>
#include <lumen/service/catalog.h>
#include <lumen/service/dispatcher.h>
#include <lumen/service/request_recorder.h>
#include <lumen/telemetry/counters.h>

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

// What the transports of all I/O threads share.
struct Services {
  const Options& options;
  const service::Documents& documents;
  bus::Listener& listener;  // each takes connections from it; outlives them
};

// What its I/O thread lends it.
struct ThreadServices {
  net::Loop& loop;
  engine::Submitter& submitter;
  service::Dispatcher& dispatcher;
  service::Catalog::Reader& catalog;
  telemetry::CounterWriter& counters;
  service::RequestRecorder& recorder;
};

class Transport {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Transport>> create(const Services& services,
                                                                 const ThreadServices& thread);
  virtual ~Transport() = default;

  // Takes what clients have asked, up to a bound for each; returns how many requests.
  virtual size_t take_requests() noexcept = 0;
  // Answers what has come back from the engine; returns how many.
  virtual size_t take_returned() noexcept = 0;
  // As net::WakeHandler has them.
  [[nodiscard]] virtual bool poll_memory() noexcept = 0;
  virtual void before_sleep() noexcept = 0;
  virtual void after_sleep() noexcept = 0;
  // Something is in the engine and comes back.
  [[nodiscard]] virtual bool is_waiting() const noexcept = 0;
  // After each turn: lets connections go that have ended.
  virtual void end_turn() noexcept = 0;
  // Nobody connects any more; what is in flight is answered, and what comes is refused.
  virtual void begin_drain() noexcept = 0;
  virtual void close_all() noexcept = 0;
  [[nodiscard]] virtual bool is_empty() const noexcept = 0;
};

}  // namespace lumen::shm
