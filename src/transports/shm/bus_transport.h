// BusTransport: the bus connections of one I/O thread, and the requests that they share.
// Threads: its I/O thread; post() from any. Memory: requests at create(), connections as they come.
// Errors: create() returns why.
#pragma once

#include "transports/shm/bus_connection.h"
#include "transports/shm/request_ids.h"

#include <lumen/memory/memory_budget.h>
#include <lumen/queue/mpmc_queue.h>
#include <lumen/service/model_shares.h>
#include <lumen/transports/shm/transport.h>

#include <memory>
#include <vector>

namespace lumen::shm {

class BusTransport final : public transports::Transport,
                           public net::WatchHandler,
                           public service::CallRoom {
 public:
  BusTransport(const Services& services, const transports::ThreadServices& thread);
  ~BusTransport() override;
  [[nodiscard]] Status create();

  size_t take_requests() noexcept override;
  size_t take_returned() noexcept override;
  bool poll_memory() noexcept override;
  void before_sleep() noexcept override;
  void after_sleep() noexcept override;
  bool is_waiting() const noexcept override { return away_ > 0; }
  void end_turn(uint64_t now_ns) noexcept override;
  void begin_drain() noexcept override;
  void close_all() noexcept override;
  bool is_empty() const noexcept override { return connections_.empty(); }
  // The listener has a connection.
  void on_ready(net::Watch& watch, bool hung_up) noexcept override;

  // A request comes back: from any thread, which wakes the loop then.
  void post(Request& request) noexcept;

  // --- for connections ---------------------------------------------------------------------------
  [[nodiscard]] const Services& services() const noexcept { return services_; }
  [[nodiscard]] const transports::ThreadServices& thread() const noexcept { return thread_; }
  [[nodiscard]] bool draining() const noexcept { return draining_; }
  // nullptr: all are in use.
  [[nodiscard]] Request* acquire() noexcept;
  void release(Request& request) noexcept;
  // False: its model has its share of max_active_requests. The tensors lie in the client's memory,
  // and nothing is reserved for them.
  [[nodiscard]] bool take(service::Call& call, const service::ModelNeed&,
                          const service::BodySize&) noexcept override;
  // While its model is still held.
  void give_back_room(Request& request) noexcept;
  void went_away() noexcept { ++away_; }
  [[nodiscard]] RequestIds& ids() noexcept { return ids_; }
  [[nodiscard]] const Status& no_room() noexcept;

 private:
  void accept(bus::Connection bus);
  void refresh_models() noexcept;
  void drop_ended() noexcept;

  const Services services_;
  const transports::ThreadServices thread_;
  net::Watch listener_watch_;
  // Of private copies: lists, strings, data that may not lie in shared memory.
  MemoryBudget budget_;
  const Status no_room_;
  std::vector<std::unique_ptr<Request>> requests_;
  Request* free_ = nullptr;
  std::vector<std::unique_ptr<BusConnection>> connections_;
  const service::CatalogSnapshot* snapshot_ = nullptr;  // in which connections have looked
  service::ModelShares shares_;                         // of max_active_requests
  size_t away_ = 0;                                     // submitted, and not come back
  MpmcQueue<Request*> returned_;
  RequestIds ids_;
  bool draining_ = false;
};

}  // namespace lumen::shm
