// HttpConnection: one client's HTTP/1.1 conversation, a state machine driven by the loop: where to
// receive, when to send, how long to wait. The meaning of a request is its handler's.
//
//   idle -> head -> (continue) -> text -> tensors -> running -> writing -> idle | head
//                                     errors: ... -> writing -> discard | linger
//
// One request at a time: a pipelined one stays in the receive buffer (or the socket) until the
// reply before it is out, so replies keep their order and a client's memory is bounded.
// Threads: its I/O thread. Memory: none of its own; a request's bytes live in a RequestContext.
// Errors: JSON error replies; closes when the stream of requests can't be trusted any more.
#pragma once

#include "transports/http/request_handler.h"

#include <lumen/net/loop.h>
#include <lumen/net/timeout_list.h>

#include <cstdint>

namespace lumen::http {

class HttpTransport;

class HttpConnection final : public net::StreamHandler {
 public:
  explicit HttpConnection(HttpTransport& host) noexcept : host_(host) { timeout_.owner = this; }
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  enum class State : uint8_t {
    kFree,
    kIdle,            // no request, no context
    kWaitingContext,  // bytes are there, but all contexts are taken
    kHead,
    kWaitingRoom,  // the head is there, but there is no memory for the rest; nothing more is read
    kContinue,     // "100 Continue" is leaving
    kText,         // of the body
    kInflating,    // of the text bytes are there that are not inflated yet; nothing is received
    kTensors,      // straight into their places
    kRunning,      // the engine has it
    kWriting,
    kDiscard,    // dropping the rest of a refused body, the connection lives on
    kLinger,     // our side is closed, dropping bytes that still come
    kTimedOut,   // waits for the loop to give the buffers back, then answers 408
    kTaken,      // another transport has the stream: its client speaks HTTP/2
    kAbandoned,  // closed by force while the engine has its request
    kClosing,    // until the loop has let go of the stream and of the context's memory
  };

  struct Origin {
    bool is_local = false;    // by the unix socket, whose users may change the engine
    bool is_carried = false;  // by a stream of HTTP/2
  };
  // `loop`: moves its bytes.
  void open(net::Loop& loop, net::Socket socket, Origin origin) noexcept;
  void close(net::Loop::Closing how = net::Loop::Closing::kOrderly) noexcept;
  // A context became free for a connection in kWaitingContext.
  void resume(RequestContext& context) noexcept;
  // There is memory now for a connection in kWaitingRoom.
  void begin_reading() noexcept;
  // Its context is wanted by others: a head that comes in pieces is answered 408, a request that
  // waits for memory 429. False: it is neither.
  [[nodiscard]] bool give_way() noexcept;
  [[nodiscard]] RequestContext& context() noexcept { return *context_; }
  // Its request has come back.
  void on_returned() noexcept;
  void on_timeout() noexcept;
  // In kInflating, in a turn after the last one.
  void inflate_on() noexcept;
  [[nodiscard]] uint64_t inflated_in_turn() const noexcept { return inflated_in_turn_; }
  // Drain: a connection without a request closes now, another after its reply.
  void on_drain() noexcept;

  void on_readable(net::Stream& stream, std::span<char> lent) noexcept override;
  void on_received(net::Stream& stream, int64_t result) noexcept override;
  void on_sent(net::Stream& stream, int64_t result) noexcept override;
  void on_gone(net::Stream& stream) noexcept override;
  void on_closed(net::Stream& stream) noexcept override;

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] net::Loop& loop() const noexcept { return *loop_; }
  // A stream of HTTP/2 carries it, whose bytes are counted there.
  [[nodiscard]] bool is_carried() const noexcept { return is_carried_; }
  HttpConnection* next_free =
      nullptr;  // in its host's pool or the list of those that wait for a context

 private:
  void begin_head() noexcept;
  void read_head() noexcept;
  [[nodiscard]] bool reads_preface() noexcept;
  void hand_over() noexcept;
  void go_on(Next next) noexcept;
  void go_on(RequestBody::Progress progress) noexcept;
  void begin_body() noexcept;
  void handle_received(size_t bytes) noexcept;
  void send() noexcept;
  void watch_send() noexcept;
  void begin_discard() noexcept;
  void continue_discard() noexcept;
  void begin_linger() noexcept;
  void drop_some(size_t at_most) noexcept;
  void next_request() noexcept;
  void end_late_head() noexcept;
  [[nodiscard]] bool body_is_late() noexcept;
  void end_late_receive() noexcept;
  void look_at_send(bool has_moved) noexcept;
  void begin_closing() noexcept;
  void finish_closing() noexcept;
  void start(net::TimeoutList& timeouts) noexcept;

  HttpTransport& host_;
  net::Loop* loop_ = nullptr;
  net::Stream stream_{this};
  net::TimeoutEntry timeout_;
  RequestContext* context_ = nullptr;
  std::span<char> lent_;  // the loop's, with the first bytes of a request that waits for a context
  iovec drop_segment_{};
  uint64_t progress_bytes_ = 0;    // received since the current timeout began
  uint64_t inflated_in_turn_ = 0;  // its transport's number
  uint64_t accepted_ns_ = 0;       // until the first request has taken it
  State state_ = State::kFree;
  bool in_loop_ = false;
  bool is_local_ = false;
  bool is_carried_ = false;
  // Its time was up when bytes that are being delivered were still in the socket.
  bool is_overdue_ = false;
};

}  // namespace lumen::http
