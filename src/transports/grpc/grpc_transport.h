// GrpcTransport: the HTTP/2 connections of one I/O thread, and the requests that they share.
// Threads: its I/O thread; post() from any. Memory: everything at create(). Errors: create()
// returns why.
#pragma once

#include "transports/grpc/call_handler.h"
#include "transports/grpc/grpc_connection.h"
#include "transports/grpc/http_streams.h"
#include "transports/grpc/reflection.h"
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
                            public service::CallRoom,
                            public transports::MemoryHolder {
 public:
  GrpcTransport(const Services& services, const transports::ThreadServices& thread);
  ~GrpcTransport() override;
  [[nodiscard]] Status create();

  transports::StreamTaker* http2() noexcept override { return this; }
  bool take(net::Loop& loop, net::Stream& stream, std::span<const char> received,
            bool is_local) noexcept override;
  size_t take_returned() noexcept override;
  size_t serve_waiting() noexcept override;
  void pass_requests_to(transports::RequestTaker& taker) noexcept override {
    http_streams_.pass_to(taker);
  }
  bool owes_a_turn() const noexcept override {
    return http_streams_.has_work() || with_replies_ != nullptr ||
           (first_waiting_ != nullptr && has_freed_) || noticed_ready_ != handler_.is_ready();
  }
  void owe_a_turn() noexcept { has_freed_ = true; }
  bool is_waiting() const noexcept override { return away_ > 0; }
  void end_turn(uint64_t now_ns) noexcept override;
  uint64_t next_deadline_ns() noexcept override;
  void begin_drain() noexcept override;
  void close_all() noexcept override;
  bool is_empty() const noexcept override { return open_ == 0 && away_ == 0; }

  // Of its requests. A message for which there is no memory is refused: while it waited, it would
  // keep its own.
  size_t drop_kept_pages() noexcept override;
  size_t charged_bytes() const noexcept override;

  // A request comes back: from any thread, which wakes the loop then.
  void post(Request& request) noexcept;

  // --- for connections and the handler of their calls --------------------------------------------
  [[nodiscard]] const Reflection& reflection() const noexcept { return reflection_; }
  [[nodiscard]] const Services& services() const noexcept { return services_; }
  [[nodiscard]] const transports::ThreadServices& thread() const noexcept { return thread_; }
  [[nodiscard]] bool draining() const noexcept { return draining_; }
  [[nodiscard]] nghttp2_mem* session_memory() noexcept { return session_memory_.functions(); }
  [[nodiscard]] const nghttp2_session_callbacks* callbacks() const noexcept { return callbacks_; }
  [[nodiscard]] const nghttp2_option* session_options() const noexcept { return options_; }
  [[nodiscard]] CallHandler& handler() noexcept { return handler_; }
  [[nodiscard]] HttpStreams& http_streams() noexcept { return http_streams_; }
  [[nodiscard]] net::TimeoutList& idle() noexcept { return idle_; }            // of connections
  [[nodiscard]] net::TimeoutList& writing() noexcept { return writing_; }      // of connections
  [[nodiscard]] net::TimeoutList& receiving() noexcept { return receiving_; }  // of calls
  [[nodiscard]] net::TimeoutList& stalled() noexcept { return stalled_; }      // of calls
  // nullptr: all are in use.
  [[nodiscard]] CallStream* acquire_call() noexcept;
  void release(CallStream& call) noexcept;
  [[nodiscard]] Request* acquire() noexcept;
  void release(Request& request) noexcept;
  // Its connection resumes it once a request is free, in the order of these calls.
  void wait_for_request(CallStream& call) noexcept;
  void stop_waiting(CallStream& call) noexcept;
  [[nodiscard]] bool submit(Request& request) noexcept;
  // The control plane has it, until it comes back.
  void ask(Request& request, service::JobThread& thread) noexcept;
  // Nobody waits for its reply any more; it comes back all the same.
  void cancel(Request& request) noexcept;
  // Counts and records the reply of a request, and gives its model and its room back.
  void end_request(Request& request) noexcept;
  // Of a call that had no request, or of a request of REST that its transport has not seen.
  void count_refusal(int http_status, bool is_call = true) noexcept;
  [[nodiscard]] bool take(service::Call& call, const service::ModelNeed& model,
                          const service::BodySize& body) noexcept override;
  // The last take() has failed for lack of memory.
  [[nodiscard]] bool is_short() const noexcept { return is_short_; }
  [[nodiscard]] const Status& no_room() noexcept;
  // Its replies leave at the end of this round, so that many leave together.
  void flush_later(GrpcConnection& connection) noexcept;
  void connection_closed(GrpcConnection& connection) noexcept;

 private:
  [[nodiscard]] Status create_calls();
  void count_reply(int http_status) noexcept;
  void flush_all() noexcept;
  void tell_health() noexcept;

  const Services services_;
  const transports::ThreadServices thread_;
  const Status no_room_;
  RequestMemory buffers_;  // of connections
  SessionMemory session_memory_;
  nghttp2_session_callbacks* callbacks_ = nullptr;
  nghttp2_option* options_ = nullptr;
  std::vector<std::unique_ptr<GrpcConnection>> connections_;
  GrpcConnection* free_connections_ = nullptr;
  GrpcConnection* with_replies_ = nullptr;
  RequestMemory calls_memory_;  // of CallStreams, which are made when they are needed first
  RequestMemory backlogs_;      // of all of them
  MemoryBudget backlog_budget_;
  std::span<char> rooms_;
  size_t calls_made_ = 0;
  CallStream* free_calls_ = nullptr;
  bool has_freed_ = false;  // a request, since serve_waiting() began
  CallStream* first_waiting_ = nullptr;
  CallStream* last_waiting_ = nullptr;
  std::vector<std::unique_ptr<Request>> requests_;
  Request* free_ = nullptr;
  const Reflection reflection_;
  CallHandler handler_{*this};
  HttpStreams http_streams_{*this};
  net::TimeoutList idle_, writing_, receiving_, stalled_;
  service::ModelShares shares_;  // of the requests
  bool is_short_ = false;
  size_t open_ = 0;
  size_t away_ = 0;  // submitted, and not come back
  MpmcQueue<Request*> returned_;
  bool draining_ = false;
  bool told_ready_ = true;     // to the calls of Watch
  bool noticed_ready_ = true;  // at the end of the last turn; the catalog changes between turns
};

}  // namespace lumen::grpc
