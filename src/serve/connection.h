// Connection: one client's HTTP/1.1 conversation, a state machine driven by the loop.
//
//   idle -> head -> (continue) -> json | chunked -> tensors -> running -> writing -> idle | head
//                                                     errors: ... -> writing -> discard | linger
//
// One request at a time: a pipelined one stays in the receive buffer (or the socket) until the
// reply before it is out, so replies keep their order and a client's memory is bounded.
// Threads: its I/O thread. Memory: none of its own; a request's bytes live in a RequestContext.
// Errors: JSON error replies; closes when the stream of requests can't be trusted any more.
#pragma once

#include "serve/request_context.h"

#include <lumen/net/loop.h>
#include <lumen/net/timeout_list.h>

#include <cstdint>
#include <string_view>

namespace lumen::serve {

class IoThread;

[[nodiscard]] Status model_not_found(const Route& route) noexcept;
[[nodiscard]] Status model_unavailable(const engine::Model& model) noexcept;

class Connection final : public net::StreamHandler {
 public:
  // How often a send that waits is looked at within its timeout: when the reader stopped taking bytes
  // is known that well. Readiness alone says too little, TCP tells it of a third of the buffer at once.
  static constexpr uint64_t kWriteLooks = 8;

  explicit Connection(IoThread& io_thread) noexcept : io_(io_thread) { timeout_.owner = this; }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  enum class State : uint8_t {
    kFree,
    kIdle,            // no request, no context
    kWaitingContext,  // bytes are there, but all contexts are taken
    kHead,
    kWaitingRoom,  // the head is there, but there is no memory for the rest; nothing more is read
    kContinue,     // "100 Continue" is leaving
    kJson,         // the JSON of the body, into the receive buffer
    kJsonDirect,   // the same, into the arena: too long for the receive buffer
    kTensors,      // binary tensors, straight into their places
    kChunked,
    kRunning,  // the engine has it
    kWriting,
    kDiscard,    // dropping the rest of a refused body, the connection lives on
    kLinger,     // our side is closed, dropping what still comes
    kTimedOut,   // waits for the loop to give the buffers back, then answers 408
    kAbandoned,  // closed by force while the engine has its request
    kClosing,    // until the loop has let go of the stream and of the context's memory
  };

  // `is_local`: by the unix socket, whose users may change the engine.
  void open(net::Socket socket, bool is_local) noexcept;
  void close(net::Loop::Closing how = net::Loop::Closing::kOrderly) noexcept;
  // A context became free for a connection in kWaitingContext.
  void resume(RequestContext& context) noexcept;
  // There is memory now for a connection in kWaitingRoom.
  void begin_reading() noexcept;
  // Its context is wanted by others: a head that comes in pieces is answered 408, a request that waits
  // for memory 429. False: it is neither.
  [[nodiscard]] bool give_way() noexcept;
  [[nodiscard]] RequestContext& context() noexcept { return *context_; }
  // The engine has completed its request.
  void on_infer_done() noexcept;
  void on_timeout() noexcept;
  // Drain: a connection without a request closes now, another after its reply.
  void on_drain() noexcept;

  void on_readable(net::Stream& stream, std::span<char> lent) noexcept override;
  void on_received(net::Stream& stream, int64_t result) noexcept override;
  void on_sent(net::Stream& stream, int64_t result) noexcept override;
  void on_gone(net::Stream& stream) noexcept override;
  void on_closed(net::Stream& stream) noexcept override;

  [[nodiscard]] State state() const noexcept { return state_; }
  Connection* next_free = nullptr;  // in the I/O thread's pool or waiting list

 private:
  void begin_head() noexcept;
  void parse_head() noexcept;
  void on_head() noexcept;
  [[nodiscard]] bool is_page_elsewhere() noexcept;
  void answer_document() noexcept;
  void begin_infer() noexcept;
  void begin_call() noexcept;
  void begin_engine() noexcept;
  void ask_control(std::string_view body) noexcept;
  void answer_metrics() noexcept;
  void begin_body() noexcept;
  void begin_length_body() noexcept;
  void begin_chunked_body() noexcept;
  void continue_json() noexcept;
  void continue_chunked() noexcept;
  // `rest`: bytes of the body behind the JSON that have been received already.
  void on_json(std::string_view json, std::string_view rest, size_t binary_bytes) noexcept;
  void place_tensors(std::string_view rest) noexcept;
  void receive_pending() noexcept;
  [[nodiscard]] service::Places& places() noexcept;  // of the receive that is in flight
  void on_body_complete() noexcept;
  void continue_discard() noexcept;
  void drop_some(size_t at_most) noexcept;
  void begin_linger() noexcept;
  void next_request() noexcept;
  void receive_into(std::span<char> space) noexcept;
  void take_body_bytes(size_t bytes) noexcept;

  void respond_copy(std::string_view document) noexcept;
  void respond_json(int status, std::string_view body, std::string_view extra = {}) noexcept;
  void respond(int status, std::string_view content_type, std::string_view body,
               std::string_view extra = {}) noexcept;
  // `extra`: header lines.
  void respond_error(const Status& refused, std::string_view extra = {}) noexcept;
  void answer_error(int status, std::string_view message, std::string_view extra) noexcept;
  void refuse(const Status& status) noexcept;          // answers, then closes
  void refuse(const wire::Refusal& refusal) noexcept;  // the same, by the words of the codec
  void respond_infer() noexcept;
  void send(size_t segments, int status) noexcept;
  [[nodiscard]] std::span<iovec> gathered(std::span<iovec> segments) noexcept;
  void handle_received(size_t bytes) noexcept;
  void end_late_head() noexcept;
  [[nodiscard]] bool body_is_late() noexcept;
  void end_late_receive() noexcept;
  void watch_send() noexcept;
  void end_stalled_send() noexcept;
  void begin_closing() noexcept;
  void finish_closing() noexcept;

  IoThread& io_;
  net::Stream stream_{this};
  net::TimeoutEntry timeout_;
  RequestContext* context_ = nullptr;
  std::span<char> lent_;  // the loop's, with the first bytes of a request that waits for a context
  iovec receive_segment_{};
  uint64_t progress_bytes_ = 0;  // received since the current timeout began
  uint64_t sent_ns_ = 0;         // when the reply that is being sent was last seen to move
  uint64_t sent_bytes_ = 0;      // how much of it the kernel had then
  uint64_t accepted_ns_ = 0;     // until the first request has taken it
  State state_ = State::kFree;
  bool in_loop_ = false;
  bool close_after_ = false;
  bool is_local_ = false;
  bool is_overdue_ = false;  // its time was up when what is being delivered was still in the socket
};

}  // namespace lumen::serve
