// Transport: inference over the bus for one I/O thread: its connections, their requests, their
// replies. wire/bus_infer.h describes the frames; tensors are read and written where the client has
// them.
// Threads: its I/O thread; create() before it runs. Memory: calls at create(); a connection when it comes.
// Errors: create() returns why; afterwards replies with a status.
#pragma once

#include <lumen/bus/listener.h>
#include <lumen/net/loop.h>
#include <lumen/service/dispatcher.h>
#include <lumen/service/intake.h>
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

// The parts that the transports of all I/O threads share.
struct Services {
  const Options& options;
  const service::Documents& documents;
  bus::Listener& listener;  // each takes connections from it; outlives them
};

// The parts that its I/O thread lends it.
struct ThreadServices {
  net::Loop& loop;
  service::Intake& intake;
  service::Dispatcher& dispatcher;
  telemetry::CounterWriter& counters;
  service::RequestRecorder& recorder;
};

class Transport {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Transport>> create(const Services& services,
                                                                 const ThreadServices& thread);
  virtual ~Transport() = default;

  // Takes the clients' requests, up to a bound for each client; returns how many.
  virtual size_t take_requests() noexcept = 0;
  // Answers calls that came back from the engine; returns how many.
  virtual size_t take_returned() noexcept = 0;
  // As net::WakeHandler has them.
  [[nodiscard]] virtual bool poll_memory() noexcept = 0;
  virtual void before_sleep() noexcept = 0;
  virtual void after_sleep() noexcept = 0;
  // Something is in the engine and comes back.
  [[nodiscard]] virtual bool is_waiting() const noexcept = 0;
  // After each turn: lets connections go that have ended.
  virtual void end_turn() noexcept = 0;
  // No client connects any more; requests in flight are answered, and new ones are refused.
  virtual void begin_drain() noexcept = 0;
  virtual void close_all() noexcept = 0;
  [[nodiscard]] virtual bool is_empty() const noexcept = 0;
};

}  // namespace lumen::shm
