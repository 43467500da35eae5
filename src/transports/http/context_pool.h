// ContextPool: the contexts of an I/O thread's requests and the memory behind them: who gets them, who waits.
// Threads: its I/O thread. Memory: everything at create(). Errors: create() returns why.
#pragma once

#include "transports/http/request_context.h"
#include "transports/http/timeouts.h"

#include <lumen/engine/backends.h>
#include <lumen/memory/memory_budget.h>
#include <lumen/service/model_shares.h>
#include <lumen/telemetry/counters.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace lumen::http {

class Connection;
class ConnectionHost;

class ContextPool {
 public:
  ContextPool(const Options& options, engine::Backends& backends, Timeouts& timeouts,
              telemetry::CounterWriter& counters);
  ~ContextPool();
  ContextPool(const ContextPool&) = delete;
  ContextPool& operator=(const ContextPool&) = delete;
  [[nodiscard]] Status create(ConnectionHost& host);
  [[nodiscard]] static size_t contexts_of(const Options& options) noexcept;

  // For a connection whose request has begun to arrive. nullptr: all are taken; it is resumed once there is
  // one, and another gives way, now or in a later turn. The head that has come in pieces for longest, else
  // the request that has waited for memory for longest, else who sends or reads slowly what is no
  // inference: contexts beside those of max_active_requests always come back.
  [[nodiscard]] RequestContext* acquire(Connection& connection) noexcept;
  void stop_waiting(Connection& connection) noexcept;
  void release(RequestContext& context) noexcept;

  // Before the body of a call is read: counts it among those in memory and reserves what it needs. False:
  // not now; its connection waits in the timeouts' `room`.
  [[nodiscard]] bool take_room(RequestContext& context) noexcept;
  // The body is there: what was reserved too much is given back.
  void settle(RequestContext& context) noexcept;
  // The reply is out, or the client gone: forgets the request, and begins others that wait for memory.
  void end_request(RequestContext& context) noexcept;
  // Why a request is refused for which there is no memory; counts it.
  [[nodiscard]] const Status& no_room() noexcept {
    counters_.add("memory_refused");
    return no_room_;
  }
  void end_turn() noexcept;
  // Somebody waits for whom nobody has given way yet.
  [[nodiscard]] bool owes_ways() const noexcept { return ways_owed_ > 0; }

 private:
  void wait(Connection& connection) noexcept;
  void make_way() noexcept;
  [[nodiscard]] bool one_gives_way() noexcept;
  void show_memory() noexcept;
  void grant_room() noexcept;
  [[nodiscard]] bool reserve_room(RequestContext& context) noexcept;
  [[nodiscard]] bool has_share(const RequestContext& context) const noexcept;
  void end_call(RequestContext& context) noexcept;

  const Options& options_;
  engine::Backends& backends_;
  Timeouts& timeouts_;
  telemetry::CounterWriter& counters_;
  MemoryBudget budget_;  // of all requests of this thread
  const Status no_room_;
  std::vector<std::unique_ptr<RequestContext>> contexts_;
  // Last in, first out: with few clients the same few regions stay hot in the caches.
  RequestContext* free_ = nullptr;
  Connection* waiting_first_ = nullptr;  // for a context, in order
  Connection* waiting_last_ = nullptr;
  size_t ways_owed_ = 0;  // of those that wait, for how many nobody has given way yet
  ConnectionHost* host_ = nullptr;
  service::ModelShares shares_;  // of max_active_requests and of the budget
};

}  // namespace lumen::http
