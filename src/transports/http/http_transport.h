// HttpTransport: the connections of one I/O thread, and all that they share.
// Threads: its I/O thread; post() from any. Memory: everything at create(). Errors: create()
// returns why.
#pragma once

#include "transports/http/context_pool.h"
#include "transports/http/http_connection.h"
#include "transports/http/request_handler.h"
#include "transports/http/timeouts.h"

#include <lumen/models/smoothed_time.h>
#include <lumen/queue/mpmc_queue.h>
#include <lumen/service/documents.h>
#include <lumen/transports/http/host_check.h>
#include <lumen/transports/http/transport.h>

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace lumen::http {

class HttpTransport final : public transports::Transport,
                            public transports::RequestTaker,
                            public transports::ConnectionTaker {
 public:
  HttpTransport(const Services& services, const transports::ThreadServices& thread);
  [[nodiscard]] Status create();

  net::ListenerHandler* acceptor(bool is_local) noexcept override {
    return is_local ? &local_acceptor_ : &acceptor_;
  }
  bool take(net::Loop& loop, net::Socket socket, bool is_local) noexcept override;
  bool accept(net::Loop& loop, net::Socket socket, bool is_local) noexcept override;
  size_t take_returned() noexcept override;
  bool is_waiting() const noexcept override { return away_ > 0; }
  size_t serve_waiting() noexcept override;
  bool owes_a_turn() const noexcept override {
    return contexts_.owes_a_turn() || timeouts_.inflating.oldest() != nullptr;
  }
  void end_turn(uint64_t now_ns) noexcept override;
  uint64_t next_deadline_ns() noexcept override;
  void begin_drain() noexcept override;
  void close_all() noexcept override;
  bool is_empty() const noexcept override { return open_ + carried_ + closing_ == 0; }
  void check_at_rest() const noexcept override;

  // A request comes back: from any thread, which wakes the loop then.
  void post(RequestContext& context) noexcept;
  void wake() noexcept { thread_.loop.wake(); }

  // --- for connections and the handlers of their requests ----------------------------------------
  [[nodiscard]] const Services& services() const noexcept { return services_; }
  [[nodiscard]] const transports::ThreadServices& thread() const noexcept { return thread_; }
  [[nodiscard]] net::Loop& loop() noexcept { return thread_.loop; }
  [[nodiscard]] telemetry::CounterWriter& counters() noexcept { return thread_.counters; }
  [[nodiscard]] ContextPool& contexts() noexcept { return contexts_; }
  [[nodiscard]] Timeouts& timeouts() noexcept { return timeouts_; }
  [[nodiscard]] RequestHandler& handler() noexcept { return handler_; }
  [[nodiscard]] wire::JsonParser& json_parser() noexcept { return json_parser_; }
  [[nodiscard]] bool draining() const noexcept { return draining_; }
  [[nodiscard]] uint64_t turn() const noexcept { return turn_; }
  [[nodiscard]] std::string_view http_date() noexcept;
  // For dropped bytes: the same memory many times over, so that one call drops a whole body.
  [[nodiscard]] std::span<iovec> scratch() noexcept { return scratch_segments_; }
  // For the latency budget: the time of a request before its first byte was read and after its
  // model has run.
  [[nodiscard]] uint64_t outside_ns() const noexcept {
    return thread_.loop.last_turn_ns() + reply_time_.high_ns();
  }
  // Dispatcher::submit().
  [[nodiscard]] bool submit(RequestContext& context) noexcept;
  // Gives the request to a thread of the control plane.
  [[nodiscard]] Next ask(RequestContext& context, service::JobThread& thread,
                         std::string_view text) noexcept;
  // Gives the body of its reply to the thread that compresses. False: that has too much to do.
  [[nodiscard]] bool compress(RequestContext& context) noexcept;
  // After the last byte of a reply is out: its line in the telemetry.
  void record(const RequestContext& context) noexcept;
  // It no longer counts as open; then, once nothing holds it, it can be another client's.
  void connection_closing(const HttpConnection& connection) noexcept;
  void connection_closed(HttpConnection& connection) noexcept;

 private:
  // One a kind of listener, so that a connection knows by which it came.
  struct Acceptor final : public net::ListenerHandler {
    Acceptor(HttpTransport& owner, bool local) noexcept : host(owner), is_local(local) {}
    bool on_accepted(net::Socket socket) noexcept override {
      return host.accept(host.loop(), socket, is_local);
    }
    void on_accept_failed(int error_number) noexcept override;
    HttpTransport& host;
    bool is_local;
  };

  const Services services_;
  const transports::ThreadServices thread_;
  Acceptor acceptor_{*this, false};
  Acceptor local_acceptor_{*this, true};
  Timeouts timeouts_;
  ContextPool contexts_;
  RequestHandler handler_{*this};
  wire::JsonParser json_parser_;
  std::vector<char> scratch_;
  std::array<iovec, 16> scratch_segments_;

  std::deque<HttpConnection> connections_;  // made at create(); a deque, since they must not move
  HttpConnection* free_ = nullptr;
  size_t open_ = 0;
  size_t carried_ = 0;  // open by streams of HTTP/2
  size_t closing_ = 0;
  models::SmoothedTime reply_time_;  // from a model's end to the last byte written
  size_t away_ = 0;                  // submitted, and not come back
  MpmcQueue<RequestContext*> returned_;

  std::array<char, wire::kDateBytes> date_{};
  int64_t date_seconds_ = -1;
  uint64_t turn_ = 0;
  bool draining_ = false;
};

}  // namespace lumen::http
