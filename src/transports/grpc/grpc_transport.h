// GrpcTransport: the HTTP/2 connections of one I/O thread, and the requests that they share.
// Threads: its I/O thread; post() from any. Memory: everything at create(). Errors: create()
// returns why.
#pragma once

#include "transports/grpc/call_handler.h"
#include "transports/grpc/grpc_connection.h"
#include "transports/grpc/session_memory.h"

#include <lumen/memory/memory_budget.h>
#include <lumen/queue/mpmc_queue.h>
#include <lumen/service/model_shares.h>
#include <lumen/transports/common/stream_taker.h>
#include <lumen/transports/grpc/transport.h>

#include <memory>
#include <vector>

namespace lumen::grpc {

class GrpcTransport final : public transports::Transport,
                            public transports::StreamTaker,
                            public service::CallRoom {
 public:
  GrpcTransport(const Services& services, const transports::ThreadServices& thread);
  ~GrpcTransport() override;
  [[nodiscard]] Status create();

  transports::StreamTaker* http2() noexcept override { return this; }
  bool take(net::Stream& stream, std::span<const char> received, bool is_local) noexcept override;
  size_t take_returned() noexcept override;
  bool is_waiting() const noexcept override { return away_ > 0; }
  void end_turn(uint64_t now_ns) noexcept override;
  uint64_t next_deadline_ns() noexcept override;
  void begin_drain() noexcept override;
  void close_all() noexcept override;
  bool is_empty() const noexcept override { return open_ == 0 && away_ == 0; }

  // A request comes back: from any thread, which wakes the loop then.
  void post(Request& request) noexcept;

  // --- for connections and the handler of their calls --------------------------------------------
  [[nodiscard]] const Services& services() const noexcept { return services_; }
  [[nodiscard]] const transports::ThreadServices& thread() const noexcept { return thread_; }
  [[nodiscard]] bool draining() const noexcept { return draining_; }
  [[nodiscard]] nghttp2_mem* session_memory() noexcept { return session_memory_.functions(); }
  [[nodiscard]] const nghttp2_session_callbacks* callbacks() const noexcept { return callbacks_; }
  [[nodiscard]] const nghttp2_option* session_options() const noexcept { return options_; }
  [[nodiscard]] CallHandler& handler() noexcept { return handler_; }
  [[nodiscard]] net::TimeoutList& idle() noexcept { return idle_; }
  [[nodiscard]] net::TimeoutList& receiving() noexcept { return receiving_; }
  [[nodiscard]] net::TimeoutList& writing() noexcept { return writing_; }
  // nullptr: all are in use.
  [[nodiscard]] Request* acquire() noexcept;
  void release(Request& request) noexcept;
  [[nodiscard]] bool submit(Request& request) noexcept;
  // Counts and records the reply of a call, and gives its model and its room back.
  void end_call(Request& request) noexcept;
  [[nodiscard]] bool take(service::Call& call, const service::ModelNeed& model,
                          const service::BodySize& body) noexcept override;
  [[nodiscard]] const Status& no_room() noexcept;
  // Its replies leave at the end of this round, so that many leave together.
  void flush_later(GrpcConnection& connection) noexcept;
  void connection_closed(GrpcConnection& connection) noexcept;

 private:
  void flush_all() noexcept;

  const Services services_;
  const transports::ThreadServices thread_;
  MemoryBudget budget_;
  const Status no_room_;
  RequestMemory buffers_;  // of connections
  SessionMemory session_memory_;
  nghttp2_session_callbacks* callbacks_ = nullptr;
  nghttp2_option* options_ = nullptr;
  std::vector<std::unique_ptr<GrpcConnection>> connections_;
  GrpcConnection* free_connections_ = nullptr;
  GrpcConnection* with_replies_ = nullptr;
  std::vector<std::unique_ptr<Request>> requests_;
  Request* free_ = nullptr;
  CallHandler handler_{*this};
  net::TimeoutList idle_, receiving_, writing_;
  service::ModelShares shares_;  // of the requests
  size_t open_ = 0;
  size_t away_ = 0;  // submitted, and not come back
  MpmcQueue<Request*> returned_;
  bool draining_ = false;
};

}  // namespace lumen::grpc
