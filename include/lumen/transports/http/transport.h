// Transport: HTTP/1.1 for one I/O thread: its connections, the memory of their requests, their timeouts. Turns
// bytes into calls and outputs into bytes.
// Threads: its I/O thread; create() before it runs.
// Memory: everything at create(). Errors: create() returns why; afterwards error replies.
#pragma once

#include <lumen/models/backends.h>
#include <lumen/net/loop.h>
#include <lumen/service/dispatcher.h>
#include <lumen/service/intake.h>
#include <lumen/service/job.h>
#include <lumen/service/request_recorder.h>
#include <lumen/telemetry/counters.h>
#include <lumen/transports/http/options.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
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
  const std::atomic<bool>& is_leaving;  // the server serves on, but is not ready any more
  models::Backends& backends;           // which are told of the requests' memory
  service::JobThread& control;          // tells and changes the engine's configuration
  service::JobThread& metrics;
};

// The parts that its I/O thread lends it.
struct ThreadServices {
  uint32_t index;  // among the I/O threads
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

  // The handler of a listener's connections. `is_local`: their users may change the engine.
  [[nodiscard]] virtual net::ListenerHandler& acceptor(bool is_local) noexcept = 0;
  // Answers calls that came back from the engine and the control plane; returns how many.
  virtual size_t take_returned() noexcept = 0;
  // Something is there and comes back.
  [[nodiscard]] virtual bool is_waiting() const noexcept = 0;
  // Once a turn's completions are handled: contexts and memory that have come free go to requests that wait
  // for them. Returns how many of these went on.
  virtual size_t serve_waiting() noexcept = 0;
  // Another turn has to follow at once: something came free after serve_waiting().
  [[nodiscard]] virtual bool owes_a_turn() const noexcept = 0;
  // After each turn: ends requests that are late.
  virtual void end_turn(uint64_t now_ns) noexcept = 0;
  [[nodiscard]] virtual uint64_t next_deadline_ns() noexcept = 0;
  // Connections end with their requests; then it is empty.
  virtual void begin_drain() noexcept = 0;
  virtual void close_all() noexcept = 0;
  [[nodiscard]] virtual bool is_empty() const noexcept = 0;
  // It is empty: no request is held, waits or has memory. A fault of ours ends the process.
  virtual void check_at_rest() const noexcept = 0;
};

}  // namespace lumen::http
