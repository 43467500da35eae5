// ContextPool: the contexts of an I/O thread's requests and the memory behind them. Connections
// wait here for a context, and requests for memory.
//
// Contexts and memory that become free in a turn are only noted; serve_waiting() gives them out at
// the turn's end. A connection that gets its turn may end other requests, close and come back here,
// so nothing here is given out in the middle of such a call: a request that was begun there was
// once begun a second time by the walk around it.
// Threads: its I/O thread. Memory: everything at create(). Errors: create() returns why.
#pragma once

#include "transports/http/request_context.h"
#include "transports/http/timeouts.h"

#include <lumen/models/backends.h>
#include <lumen/service/intake.h>
#include <lumen/service/model_shares.h>
#include <lumen/telemetry/counters.h>
#include <lumen/transports/common/transport.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace lumen::http {

class HttpConnection;
class HttpTransport;

class ContextPool final : public service::CallRoom, public transports::MemoryHolder {
 public:
  ContextPool(const Options& options, models::Backends& backends, Timeouts& timeouts,
              const transports::ThreadServices& thread);
  ~ContextPool();
  ContextPool(const ContextPool&) = delete;
  ContextPool& operator=(const ContextPool&) = delete;
  [[nodiscard]] Status create(HttpTransport& host);
  [[nodiscard]] static size_t contexts_of(const Options& options) noexcept;

  // For a connection whose request has begun to arrive. nullptr: all are taken, or others wait; it
  // is resumed at the end of a turn that has one for it, and another gives way, now or in a later
  // turn. The head that has come in pieces for longest, else the request that has waited for memory
  // for longest, else a connection that sends or reads slowly something other than an inference:
  // contexts beside those of max_active_requests always come back.
  [[nodiscard]] RequestContext* acquire(HttpConnection& connection) noexcept;
  void stop_waiting(HttpConnection& connection) noexcept;
  void release(RequestContext& context) noexcept;

  // Before the body of a call is read. False: its connection waits in the timeouts' `room`, behind
  // those that wait there already.
  [[nodiscard]] bool take(service::Call& call, const service::ModelNeed& model,
                          const service::BodySize& body) noexcept override;
  // The body is there: memory that was reserved too much is given back.
  void settle(RequestContext& context) noexcept;
  // The reply is out, or the client gone: forgets the request.
  void end_request(RequestContext& context) noexcept;
  // Why a request is refused for which there is no memory; counts it.
  [[nodiscard]] const Status& no_room() noexcept {
    counters_.add("memory_refused");
    return no_room_;
  }
  // At the end of a turn, never within a connection's call: contexts and memory that have come free
  // go to connections that wait for them. Returns how many of these went on.
  size_t serve_waiting() noexcept;
  void show_memory() noexcept;
  // A connection waits for a context. Those that could not give way may be able to a moment later,
  // which no event tells: a reply that does not move.
  [[nodiscard]] bool is_awaited() const noexcept { return waiting_ > 0; }
  // serve_waiting() has something to do at once.
  [[nodiscard]] bool owes_a_turn() const noexcept {
    return owes_room_ || (free_ != nullptr && waiting_first_ != nullptr);
  }
  size_t drop_kept_pages() noexcept override;
  bool awaits_memory() const noexcept override { return timeouts_.room.oldest() != nullptr; }
  void on_memory_freed() noexcept override { owes_room_ = owes_room_ || awaits_memory(); }
  size_t charged_bytes() const noexcept override;
  // No connection is open: nothing is held, reserved or waiting. A fault of ours ends the process.
  void check_at_rest() const noexcept;

 private:
  [[nodiscard]] bool one_gives_way() noexcept;
  void set_gives_way(RequestContext& context, bool gives_way) noexcept;
  size_t give_contexts() noexcept;
  size_t give_room() noexcept;
  [[nodiscard]] bool reserve_room(RequestContext& context) noexcept;
  [[nodiscard]] bool has_share(const RequestContext& context) const noexcept;
  void end_call(RequestContext& context) noexcept;

  const Options& options_;
  models::Backends& backends_;
  Timeouts& timeouts_;
  telemetry::CounterWriter& counters_;
  transports::ThreadMemory& memory_;
  const Status no_room_;
  std::vector<std::unique_ptr<RequestContext>> contexts_;
  // Last in, first out: with few clients the same few regions stay hot in the caches.
  RequestContext* free_ = nullptr;
  HttpConnection* waiting_first_ = nullptr;  // for a context, in order
  HttpConnection* waiting_last_ = nullptr;
  size_t waiting_ = 0;
  size_t coming_ = 0;  // contexts whose connections have given way, and that are not free yet
  bool owes_room_ =
      false;  // memory or a call has come free since requests that wait for it were looked at
  // Requests that have their memory and are about to be read: empty but within give_room(). A list
  // of timeouts, since a connection that closes unlinks itself from the list that it is in; no time
  // runs here.
  net::TimeoutList granted_{UINT64_MAX / 2};
  HttpTransport* host_ = nullptr;
  service::ModelShares shares_;  // of max_active_requests and of the budget
};

}  // namespace lumen::http
