// IoThread: one loop with its connections, their request contexts and timeouts.
// Threads: run() on its own thread; post() from workers; request_drain() from the control thread.
// Memory: everything at create(). Errors: create() returns why.
#pragma once

#include "serve/connection.h"
#include "serve/control_thread.h"
#include "serve/documents.h"
#include "serve/host_check.h"
#include "serve/metrics_thread.h"
#include "serve/request_handler.h"

#include <lumen/engine/engine.h>
#include <lumen/memory/memory_budget.h>
#include <lumen/net/loop.h>
#include <lumen/net/timeout_list.h>
#include <lumen/queue/mpmc_queue.h>
#include <lumen/serve/options.h>
#include <lumen/service/catalog.h>
#include <lumen/service/dispatcher.h>
#include <lumen/telemetry/counters.h>
#include <lumen/telemetry/trace_log.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

namespace lumen::serve {

// What all I/O threads share, owned by the Server.
struct Services {
  const ServerOptions& options;
  engine::ModelRepository& repository;
  const Documents& documents;
  service::Catalog& catalog;
  const HostCheck& hosts;
  engine::Engine& engine;
  telemetry::Counters& counters;   // with a shard for each I/O thread
  telemetry::TraceLog* trace_log;  // nullptr: none is kept
  ControlThread& control;
  MetricsThread& metrics;
};

// The sockets that an I/O thread accepts from.
struct ListenerSockets {
  UniqueFd tcp;  // invalid: none
  UniqueFd unix_socket;
};

class IoThread final : public net::WakeHandler, public engine::CompletionSink {
 public:
  // `index`: among the I/O threads, and of its shard of the stage histograms.
  [[nodiscard]] static Result<std::unique_ptr<IoThread>> create(const Services& services,
                                                                uint32_t index,
                                                                engine::Submitter& submitter,
                                                                ListenerSockets sockets);
  ~IoThread();
  // Serves until drained. Blocks.
  void run() noexcept;
  // Any thread: stop accepting, finish what is in flight, return from run().
  void request_drain() noexcept;
  // Any worker: the engine has completed this request; flush() makes the loop look.
  void post(RequestContext& context) noexcept;
  void flush() noexcept override { loop_->wake(); }

  // --- for Connection, on the loop's thread -----------------------------------------------------
  [[nodiscard]] RequestContext* acquire_context(Connection& connection) noexcept;
  void release_context(RequestContext& context) noexcept;
  // Before the body comes: whether the latency budget would let the request in as things are.
  [[nodiscard]] bool fits_budget(RequestContext& context) noexcept;
  [[nodiscard]] engine::SubmitOutcome submit(RequestContext& context) noexcept;
  void cancel(RequestContext& context) noexcept { dispatcher_.cancel(context.call); }
  // After the last byte of a reply is out: its line in the telemetry.
  void record(const RequestContext& context) noexcept;
  [[nodiscard]] service::Catalog::Reader& catalog() noexcept { return catalog_; }
  [[nodiscard]] engine::Submitter& submitter() noexcept { return submitter_; }
  // Before the body of a call is read: counts it among those in memory and reserves what it needs. False:
  // not now; its connection waits in timeouts().room.
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
  // By the control thread; comes back as from the engine.
  void ask_control(RequestContext& context, std::string_view body) noexcept;
  // The same by the metrics thread.
  void ask_metrics(RequestContext& context) noexcept;
  // No context is free: it waits, and another gives way, now or in a later turn. The head that has come in
  // pieces for longest, else the request that has waited for memory for longest, else who sends or reads
  // slowly what is no inference: contexts beside those of max_active_requests always come back.
  void wait_for_context(Connection& connection) noexcept;
  void stop_waiting(Connection& connection) noexcept;
  // It no longer counts as open; then, once nothing holds it, it can be another client's.
  void connection_closing() noexcept;
  void connection_closed(Connection& connection) noexcept;
  [[nodiscard]] std::string_view http_date() noexcept;
  // For dropped bytes: the same memory many times over, so that one call drops a whole body.
  [[nodiscard]] std::span<iovec> scratch() noexcept { return scratch_segments_; }
  [[nodiscard]] bool draining() const noexcept { return draining_; }
  [[nodiscard]] net::Loop& loop() noexcept { return *loop_; }
  [[nodiscard]] const Services& services() const noexcept { return services_; }
  [[nodiscard]] telemetry::CounterWriter& counters() noexcept { return counters_; }
  [[nodiscard]] wire::JsonParser& json_parser() noexcept { return json_parser_; }
  [[nodiscard]] RequestHandler& handler() noexcept { return handler_; }

  struct Timeouts {
    explicit Timeouts(const TimeoutOptions& options) noexcept
        : idle(options.idle_ns),
          head(options.head_ns),
          body(options.body_period_ns),
          write(std::max<uint64_t>(options.write_stall_ns / Connection::kWriteLooks, 1)),
          linger(options.linger_ns),
          room(options.room_ns) {}
    net::TimeoutList idle, head, body, write, linger, room;
    [[nodiscard]] std::array<net::TimeoutList*, 6> all() noexcept {
      return {&idle, &head, &body, &write, &linger, &room};
    }
  };
  [[nodiscard]] Timeouts& timeouts() noexcept { return timeouts_; }

  size_t on_wake() noexcept override;
  size_t on_turn_end() noexcept override;
  bool may_spin() noexcept override { return in_engine_ == 0 && !draining_; }

 private:
  // One a listener, so that a connection knows by which it came.
  struct Acceptor final : public net::ListenerHandler {
    Acceptor(IoThread& thread, bool local) noexcept : io(thread), is_local(local) {}
    bool on_accepted(net::Socket socket) noexcept override { return io.accept(socket, is_local); }
    void on_accept_failed(int error_number) noexcept override;
    IoThread& io;
    bool is_local;
  };

  IoThread(const Services& services, uint32_t index, engine::Submitter& submitter,
           ListenerSockets sockets);
  [[nodiscard]] bool accept(net::Socket socket, bool is_local) noexcept;
  void expire_timeouts() noexcept;
  void begin_drain() noexcept;
  void grant_room() noexcept;
  void make_way() noexcept;
  [[nodiscard]] bool one_gives_way() noexcept;
  void show_memory() noexcept;
  [[nodiscard]] bool reserve_room(RequestContext& context) noexcept;
  [[nodiscard]] uint64_t next_deadline_ns() noexcept;

  Services services_;
  const uint32_t index_;
  telemetry::CounterWriter counters_;
  engine::Submitter& submitter_;
  service::Catalog::Reader& catalog_;
  service::Dispatcher dispatcher_;
  Acceptor tcp_acceptor_{*this, false};
  Acceptor unix_acceptor_{*this, true};
  net::Listener tcp_listener_;
  net::Listener unix_listener_;
  std::unique_ptr<net::Loop> loop_;
  Timeouts timeouts_;
  wire::JsonParser json_parser_;
  RequestHandler handler_{*this};
  std::vector<char> scratch_;
  std::array<iovec, 16> scratch_segments_;

  std::deque<Connection> connections_;  // made at create(); a deque, since they must not move
  Connection* free_connections_ = nullptr;
  Connection* waiting_first_ = nullptr;  // for a context, in order
  Connection* waiting_last_ = nullptr;
  size_t ways_owed_ = 0;  // of those that wait, for how many nobody has given way yet
  MemoryBudget budget_;   // of all requests of this thread
  Status no_room_;
  std::vector<std::unique_ptr<RequestContext>> contexts_;
  // Last in, first out: with few clients the same few arenas stay hot in the caches.
  RequestContext* free_contexts_ = nullptr;
  size_t calls_in_memory_ = 0;  // of max_active_requests
  size_t open_connections_ = 0;
  size_t closing_connections_ = 0;
  uint64_t recorded_ = 0;
  engine::SmoothedTime reply_time_;  // from a model's end to the last byte written
  size_t in_engine_ = 0;             // submitted, or with the control thread, and not come back
  MpmcQueue<RequestContext*> completions_;

  std::array<char, wire::kDateBytes> date_{};
  int64_t date_seconds_ = -1;
  bool draining_ = false;
  uint64_t drain_deadline_ns_ = UINT64_MAX;
  std::atomic<bool> drain_requested_{false};
};

}  // namespace lumen::serve
