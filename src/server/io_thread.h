// IoThread: one loop, its listeners, the transports that have their connections, and the thread's
// way to the engine.
// Threads: run() on its own thread; wake() from workers; request_drain() from the control thread.
// Memory: everything at create(). Errors: create() returns why.
#pragma once

#include <lumen/engine/engine.h>
#include <lumen/net/loop.h>
#include <lumen/server/options.h>
#include <lumen/service/catalog.h>
#include <lumen/service/dispatcher.h>
#include <lumen/service/intake.h>
#include <lumen/service/request_recorder.h>
#include <lumen/telemetry/counters.h>
#include <lumen/transports/common/transport.h>

#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <vector>

namespace lumen::server {

// A listener of an I/O thread.
struct ListenerSocket {
  UniqueFd fd;
  bool is_local;   // a unix socket: its users may change the engine
  bool is_shared;  // other I/O threads accept from duplicates of it
};

class IoThread final : public net::WakeHandler, public models::CompletionSink {
 public:
  struct Parts {
    uint32_t index;  // among the I/O threads
    net::LoopKind loop;
    telemetry::Counters& counters;
    service::RecordReaders record_readers;
    engine::Submitter& submitter;
    service::Catalog& catalog;
    std::span<service::Step* const> steps;  // outlive it
    const ServerOptions& options;
  };
  // The first transport that has an acceptor gets the connections of the sockets.
  [[nodiscard]] static Result<std::unique_ptr<IoThread>> create(
      const Parts& parts, std::span<const transports::MakeTransport> make_transports,
      std::vector<ListenerSocket> sockets);
  // By the thread that will run(), and before: its own allocations.
  void begin() noexcept;
  // Serves until drained. Blocks.
  void run() noexcept;
  // Any thread: stop accepting, finish the requests in flight, return from run().
  void request_drain() noexcept;

  // Any worker: the engine has completed requests.
  void wake() noexcept override { loop_->wake(); }
  void before_delivery() noexcept override { submitter_.wake_if_late(); }
  size_t on_wake() noexcept override;
  size_t on_turn_end() noexcept override;
  bool may_spin() noexcept override;
  bool poll_memory() noexcept override;
  void before_sleep() noexcept override;
  void after_sleep() noexcept override;

 private:
  explicit IoThread(const Parts& parts);
  [[nodiscard]] Status listen(std::vector<ListenerSocket> sockets);
  [[nodiscard]] bool is_empty() const noexcept;
  size_t take_returned() noexcept;
  void expire_timeouts() noexcept;
  void begin_drain() noexcept;
  [[nodiscard]] uint64_t next_deadline_ns() noexcept;

  const uint32_t index_;
  telemetry::CounterWriter counters_;
  engine::Submitter& submitter_;
  service::Catalog::Reader& catalog_;
  service::Intake intake_;
  service::Dispatcher dispatcher_;
  transports::ThreadMemory memory_;
  service::RequestRecorder recorder_;
  std::deque<net::Listener> listeners_;  // a deque, since they must not move
  std::unique_ptr<net::Loop> loop_;
  std::vector<std::unique_ptr<transports::Transport>> transports_;

  const uint64_t drain_timeout_ns_;
  uint64_t drain_deadline_ns_ = UINT64_MAX;
  bool draining_ = false;
  bool has_runs_left_ = false;  // inline, for the next turn
  std::atomic<bool> drain_requested_{false};
};

}  // namespace lumen::server
