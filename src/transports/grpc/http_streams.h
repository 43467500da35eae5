// HttpStreams: the streams of HTTP/2 whose requests are not calls of gRPC: the REST surface. Each
// is a connection of HTTP/1.1 with one request to the transport of HTTP, and this is the loop that
// moves the bytes of these connections, so that a request is answered as over HTTP/1.1, by the same
// code.
//
//   session ─► on_head(), on_data(), on_end() ─► on_readable(), on_received() of the connection
//   session ◄─ read(), take() ◄─ send() of the connection
//
// Bytes that come while nothing is being received wait in the stream's backlog, and its window with
// them. A handler is called while the session's bytes are read, or by run(); never within an
// operation.
// Threads: its I/O thread. Memory: the backlogs of the calls; the kernel reads a reply where the
// connection has it. Errors: a stream that can't be served is reset.
#pragma once

#include "transports/grpc/call_stream.h"

#include <lumen/net/loop.h>
#include <lumen/transports/common/stream_taker.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::grpc {

class GrpcTransport;

class HttpStreams final : public net::Loop {
 public:
  explicit HttpStreams(GrpcTransport& host) noexcept : host_(host) {}

  void pass_to(transports::RequestTaker& taker) noexcept { taker_ = &taker; }
  // Whether there is a transport of HTTP.
  [[nodiscard]] bool is_served() const noexcept { return taker_ != nullptr; }

  // --- of a connection's session -----------------------------------------------------------------
  // `head`: as HTTP/1.1 has it. False: the transport of HTTP has no connection free.
  [[nodiscard]] bool on_head(CallStream& call, std::string_view head, bool in_chunks,
                             bool is_local) noexcept;
  void on_data(CallStream& call, std::string_view bytes) noexcept;
  // call.has_ended is true.
  void on_end(CallStream& call) noexcept;
  // The session has forgotten it.
  void on_stream_closed(CallStream& call) noexcept;
  // Bytes of the reply for one frame, of `most_pieces` pieces at most; nullopt: there is no reply.
  [[nodiscard]] std::optional<size_t> read(CallStream& call, size_t most,
                                           size_t most_pieces) noexcept;
  // The reply ends with the next `bytes`.
  [[nodiscard]] bool is_last(CallStream& call, size_t bytes) noexcept;
  // Of them the next piece.
  [[nodiscard]] iovec take(CallStream& call, size_t most) noexcept;
  // The kernel has all that was taken.
  void on_sent(CallStream& call) noexcept;

  // Calls the handlers that have something to be told; returns how many streams had.
  size_t run() noexcept;
  [[nodiscard]] bool has_work() const noexcept { return first_ready_ != nullptr; }

  // --- net::Loop, of the streams -----------------------------------------------------------------
  const char* name() const noexcept override { return "streams of HTTP/2"; }
  Status add(net::Stream& stream, net::Socket socket) noexcept override;
  void close(net::Stream& stream, Closing how) noexcept override;
  void wait_readable(net::Stream& stream) noexcept override;
  void receive(net::Stream& stream, std::span<iovec> buffers) noexcept override;
  void drop(net::Stream& stream, std::span<iovec> buffers) noexcept override;
  void cancel_receive(net::Stream& stream) noexcept override;
  void send(net::Stream& stream, std::span<iovec> buffers) noexcept override;
  uint64_t sent_so_far(net::Stream& stream) noexcept override;
  bool end_sending(net::Stream& stream) noexcept override;
  bool had_unread(net::Stream& stream) noexcept override;
  std::optional<PeerCredentials> peer_credentials(net::Stream& stream) noexcept override;
  std::optional<sockaddr_storage> own_address(net::Stream& stream) noexcept override;
  // It lends no buffer.
  void give_back(std::span<char>) noexcept override {}
  // Its bytes come with those of other streams.
  bool look_now(net::Stream&) noexcept override { return false; }
  void limit_unsent_time(net::Stream&, uint64_t) noexcept override {}
  bool had_unsent(net::Stream&) noexcept override { return false; }

  // --- of a loop that runs by itself: it has no listeners, and its turns are the transport's -------
  Status add(net::Listener&) noexcept override;
  void remove(net::Listener&) noexcept override {}
  size_t run_once(uint64_t) noexcept override { return run(); }
  void wake() noexcept override {}
  uint64_t last_turn_ns() const noexcept override { return 0; }
  uint64_t wakeups() const noexcept override { return 0; }

 private:
  struct State;

  [[nodiscard]] static State& state_of(CallStream& call) noexcept;
  // `incoming`: bytes of the body behind those in the backlog; the rest goes there.
  void deliver(net::Stream& stream, std::string_view incoming) noexcept;
  // True: its handler was called, and there may be more to tell.
  [[nodiscard]] bool tell(net::Stream& stream, std::string_view& incoming) noexcept;
  [[nodiscard]] bool tell_received(net::Stream& stream, std::string_view& incoming) noexcept;
  void tell_closed(net::Stream& stream) noexcept;
  // Takes bytes off the backlog and off `incoming`; returns how many, with the framing.
  [[nodiscard]] size_t fill(State& state, std::span<char> room,
                            std::string_view& incoming) noexcept;
  void reset(CallStream& call, uint32_t error_code) noexcept;
  void make_ready(net::Stream& stream) noexcept;

  GrpcTransport& host_;
  transports::RequestTaker* taker_ = nullptr;
  CallStream* arriving_ = nullptr;  // the one that add() is called for
  net::Stream* first_ready_ = nullptr;
  net::Stream* last_ready_ = nullptr;
};

}  // namespace lumen::grpc
