// GrpcConnection: one client's HTTP/2 conversation: nghttp2's session between the loop's bytes and
// the calls of its streams. What a call means is the handler's.
//
//   loop ─► receive buffer ─► session ─► Request of each stream ─► CallHandler
//   loop ◄─ frames' heads, and the replies where they lie ◄─ session ◄─ answer(), refuse()
//
// One receive and one send are in flight at most. The session is asked for bytes only where the
// last send has ended, so that a slow client holds up no more than its own replies.
// Threads: its I/O thread. Memory: its buffers, made at start; the session's from SessionMemory.
// Errors: a client that breaks HTTP/2 is told so by a GOAWAY, and the connection ends.
#pragma once

#include "transports/grpc/request.h"

#include <lumen/net/loop.h>
#include <lumen/net/timeout_list.h>

#include <nghttp2/nghttp2.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::grpc {

class GrpcTransport;

class GrpcConnection final : public net::StreamHandler {
 public:
  static constexpr size_t kReceiveBytes = size_t{32} << 10;
  static constexpr size_t kSendBytes = size_t{16} << 10;  // of frames' heads

  // `buffers`: kReceiveBytes + kSendBytes.
  GrpcConnection(GrpcTransport& host, std::span<char> buffers) noexcept
      : host_(host),
        receive_(buffers.first(kReceiveBytes)),
        send_(buffers.subspan(kReceiveBytes, kSendBytes)) {
    timeout_.owner = this;
  }
  GrpcConnection(const GrpcConnection&) = delete;
  GrpcConnection& operator=(const GrpcConnection&) = delete;

  // False: no session could be made, and the stream is its caller's still.
  [[nodiscard]] bool open(net::Stream& stream, std::span<const char> received,
                          bool is_local) noexcept;
  void close(net::Loop::Closing how = net::Loop::Closing::kOrderly) noexcept;

  // --- the replies of its calls -----------------------------------------------------------------
  // request.reply leaves, with status OK.
  void answer(Request& request) noexcept;
  void refuse(Request& request, const Status& refused) noexcept;
  void on_late(Request& request) noexcept;
  // Of a request whose stream has ended: nothing is in flight of it any more.
  void forget(Request& request) noexcept;
  void drop_ended() noexcept;
  // Bytes that the session has ready leave.
  void flush() noexcept;

  // No new calls; ends once the present ones are answered.
  void begin_drain() noexcept;
  // Nothing has happened for the time of the list that it was in.
  void on_timeout() noexcept;

  void on_readable(net::Stream& stream, std::span<char> lent) noexcept override;
  void on_received(net::Stream& stream, int64_t result) noexcept override;
  void on_sent(net::Stream& stream, int64_t result) noexcept override;
  void on_gone(net::Stream& stream) noexcept override;
  void on_closed(net::Stream& stream) noexcept override;

  GrpcConnection* next_free = nullptr;
  // Of its transport: it has replies that were not handed to the loop.
  GrpcConnection* next_with_replies = nullptr;
  bool has_replies = false;

 private:
  enum class State : uint8_t { kFree, kOpen, kClosing };

  friend struct Callbacks;
  [[nodiscard]] bool feed(std::string_view bytes) noexcept;
  void begin_receive() noexcept;
  void begin_call(int32_t stream) noexcept;
  void on_head_complete(Request* request, int32_t stream) noexcept;
  void on_header(Request& request, std::string_view name, std::string_view value) noexcept;
  void on_data(Request& request, std::string_view bytes) noexcept;
  void on_end(Request& request) noexcept;
  void on_stream_closed(Request& request) noexcept;
  void submit_status(Request* request, int32_t stream, int http_status, bool has_grpc) noexcept;
  [[nodiscard]] ssize_t read_reply(Request& request, size_t most, uint32_t& flags) noexcept;
  [[nodiscard]] int send_data(Request& request, const uint8_t* frame_head, size_t bytes) noexcept;
  [[nodiscard]] size_t gather() noexcept;

  void finish_closing() noexcept;

  GrpcTransport& host_;
  std::span<char> receive_;
  std::span<char> send_;
  net::Stream* stream_ = nullptr;
  net::StreamHandler* giver_ = nullptr;
  nghttp2_session* session_ = nullptr;
  Request* requests_ = nullptr;
  net::TimeoutEntry timeout_;
  iovec receive_segment_{};
  std::array<iovec, 64> segments_{};
  size_t segment_count_ = 0;
  size_t send_used_ = 0;
  State state_ = State::kFree;
  bool is_sending_ = false;
  bool is_feeding_ = false;  // inside the session: it may not be asked for bytes
  bool is_local_ = false;
  bool is_draining_ = false;
  bool is_broken_ = false;  // the session has no memory
};

}  // namespace lumen::grpc
