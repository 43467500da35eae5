// Transport: a protocol's connections on one I/O thread. It turns the bytes of its clients into
// calls and the outputs into bytes. The I/O thread runs all of its transports in each of its turns,
// and knows nothing else of them.
//
//   the loop delivers to the transport's connections ─► take_returned(), take_requests()
//   ─► serve_waiting() ─► the engine's turn ─► end_turn()
//
// Threads: its I/O thread. Memory: as the transport says. Errors: a transport that can't be made
// says why; afterwards each request is answered, with an error where need be.
#pragma once

#include <lumen/base/result.h>
#include <lumen/net/loop.h>
#include <lumen/service/dispatcher.h>
#include <lumen/service/intake.h>
#include <lumen/service/request_recorder.h>
#include <lumen/telemetry/counters.h>
#include <lumen/transports/common/stream_taker.h>
#include <lumen/transports/common/thread_memory.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace lumen::transports {

// The parts of an I/O thread that its transports use. They outlive these.
struct ThreadServices {
  uint32_t index;  // of the I/O thread
  net::Loop& loop;
  service::Intake& intake;
  service::Dispatcher& dispatcher;
  telemetry::CounterWriter& counters;
  service::RequestRecorder& recorder;
  ThreadMemory& memory;  // of its requests
  // Of transports that were made before; nullptr: there is none.
  StreamTaker* http2 = nullptr;
  ConnectionGiver* tls = nullptr;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // The handler of stream listeners whose clients speak this protocol; nullptr: it has none.
  // `is_local`: the listener is a unix socket, whose users may change the engine.
  [[nodiscard]] virtual net::ListenerHandler* acceptor(bool is_local) noexcept {
    (void)is_local;
    return nullptr;
  }

  // Takes connections that begin with HTTP/2's preface; nullptr: it speaks no HTTP/2.
  [[nodiscard]] virtual StreamTaker* http2() noexcept { return nullptr; }

  // Accepts connections in place of the transport that serves them; nullptr: it does not.
  [[nodiscard]] virtual ConnectionGiver* tls() noexcept { return nullptr; }

  // Takes requests that the loop does not deliver, up to a bound for each client; returns how many.
  virtual size_t take_requests() noexcept { return 0; }
  // Answers calls that came back from the engine and the control plane; returns how many.
  virtual size_t take_returned() noexcept = 0;
  // Memory and calls that have come free go to requests that wait for them. Returns how many of
  // these went on.
  virtual size_t serve_waiting() noexcept { return 0; }
  // Another turn has to follow at once: something came free after serve_waiting().
  [[nodiscard]] virtual bool owes_a_turn() const noexcept { return false; }
  // Something is with the engine or the control plane and comes back.
  [[nodiscard]] virtual bool is_waiting() const noexcept = 0;
  // After each turn: ends requests that are late, and connections that have ended.
  virtual void end_turn(uint64_t now_ns) noexcept = 0;
  // When end_turn() has something to do by the clock alone; UINT64_MAX: never.
  [[nodiscard]] virtual uint64_t next_deadline_ns() noexcept { return UINT64_MAX; }

  // As net::WakeHandler has them.
  [[nodiscard]] virtual bool poll_memory() noexcept { return false; }
  virtual void before_sleep() noexcept {}
  virtual void after_sleep() noexcept {}

  // Takes no new connection; each one ends once its requests are answered, then is_empty().
  virtual void begin_drain() noexcept = 0;
  virtual void close_all() noexcept = 0;
  [[nodiscard]] virtual bool is_empty() const noexcept = 0;
  // It is empty: no request is held, waits or has memory. A fault of ours ends the process.
  virtual void check_at_rest() const noexcept {}
};

// Makes a transport for one I/O thread, before that runs.
using MakeTransport = std::function<Result<std::unique_ptr<Transport>>(const ThreadServices&)>;

}  // namespace lumen::transports
