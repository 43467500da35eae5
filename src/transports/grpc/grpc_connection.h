// GrpcConnection: one client's HTTP/2 conversation: nghttp2's session between the loop's bytes and
// the streams of its calls. The meaning of a call is the handler's.
//
//   loop ─► receive buffer ─► session ─► CallStream ─► Request of each message ─► CallHandler
//        └► the rest of a DATA frame, at its place in the request's message
//   loop ◄─ frames' heads, and the replies where they lie ◄─ session ◄─ answer(), refuse()
//
// One receive and one send are in flight at most. The session is asked for bytes only where the
// last send has ended, so that a slow client holds up no more than its own replies.
// Threads: its I/O thread. Memory: its buffers, made at start; the session's from SessionMemory.
// Errors: a client that breaks HTTP/2 is told so by a GOAWAY, and the connection ends.
#pragma once

#include "transports/grpc/call_stream.h"
#include "transports/grpc/request.h"
#include "transports/grpc/request_text.h"

#include <lumen/net/loop.h>
#include <lumen/net/timeout_list.h>
#include <lumen/transports/common/access.h>
#include <lumen/transports/grpc/memory_limits.h>

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
  // Bytes that a client may send of a stream before it hears that they were taken.
  static constexpr size_t kStreamWindowBytes = kWindowBytes;

  static constexpr size_t kBufferBytes = kReceiveBytes + kSendBytes + RequestText::kMostBytes;

  // `buffers`: kBufferBytes.
  GrpcConnection(GrpcTransport& host, std::span<char> buffers) noexcept
      : host_(host),
        receive_(buffers.first(kReceiveBytes)),
        send_(buffers.subspan(kReceiveBytes, kSendBytes)),
        text_(buffers.subspan(kReceiveBytes + kSendBytes, RequestText::kMostBytes)) {
    timeout_.owner = this;
  }
  GrpcConnection(const GrpcConnection&) = delete;
  GrpcConnection& operator=(const GrpcConnection&) = delete;

  // False: no session could be made, and the stream is its caller's still.
  [[nodiscard]] bool open(net::Loop& loop, net::Stream& stream, std::span<const char> received,
                          bool is_local) noexcept;
  void close(net::Loop::Closing how = net::Loop::Closing::kOrderly) noexcept;
  // No new calls; ends once the present ones are answered.
  void begin_drain() noexcept;
  // Nothing has happened for the time of the list that it was in.
  void on_timeout() noexcept;
  // The client of a call, for the rules of access.
  [[nodiscard]] transports::Client client_of(const CallStream& call) noexcept;

  // --- the calls of its streams -----------------------------------------------------------------
  // request.reply leaves.
  void answer(Request& request) noexcept;
  // An error in its place: in the stream of replies where its method has one, else as the status.
  void refuse(Request& request, const Status& refused) noexcept;
  // The call ends with that status; replies that are there leave before.
  void end_call(CallStream& call, const Status& status) noexcept;
  // Its next bytes have not come in time.
  void on_late(CallStream& call) noexcept;
  // Its client has made no room for its replies in time.
  void on_stalled(CallStream& call) noexcept;
  // A request or room has come free, which `call` may take for the next of its messages. False: it
  // could not.
  bool resume(CallStream& call) noexcept;
  // The calls of Watch are told whether the server is ready. False: not all of them yet.
  [[nodiscard]] bool tell_health() noexcept;
  // Nothing is in flight of it any more.
  void forget(Request& request) noexcept;
  // Bytes that the session has ready leave.
  void flush() noexcept;

  // --- its streams that are no calls, for HttpStreams ---------------------------------------------
  [[nodiscard]] nghttp2_session* session() noexcept { return session_; }
  // nullptr: it is closed.
  [[nodiscard]] net::Stream* stream() const noexcept { return stream_; }
  // Moves its bytes.
  [[nodiscard]] net::Loop& loop() const noexcept { return *loop_; }
  // `is_interim`: the reply itself comes later.
  void submit_reply(CallStream& call, std::span<const nghttp2_nv> fields, bool has_body,
                    bool is_interim) noexcept;
  void reset(CallStream& call, uint32_t error_code) noexcept;
  // Nothing holds it any more.
  void release(CallStream& call) noexcept;

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
  // The next bytes are received to their place in a message, which the loop may write until
  // on_received(): its request can't be forgotten before.
  struct Landing {
    Request* request = nullptr;
    std::span<char> place;
    bool is_given_up = false;  // the request is to be forgotten
  };

  [[nodiscard]] bool feed(std::string_view bytes) noexcept;
  void begin_receive() noexcept;
  [[nodiscard]] Landing next_landing() noexcept;
  // The loop has let go of the place: a request that was given up meanwhile is forgotten.
  void end_landing() noexcept;

  // --- calls.cc: their heads, messages and ends ---------------------------------------------------
  void begin_call(int32_t number) noexcept;
  void on_header(CallStream& call, std::string_view name, std::string_view value) noexcept;
  // `has_ended`: nothing follows it.
  void on_head_complete(CallStream* call, int32_t number, bool has_ended) noexcept;
  void begin_http(CallStream& call) noexcept;
  void on_data_frame(const nghttp2_frame_hd& head) noexcept;
  void on_data(CallStream& call, std::string_view bytes) noexcept;
  void on_end(CallStream& call) noexcept;
  void on_stream_closed(CallStream& call) noexcept;
  // Takes messages off the front, `most` at most; returns the number of bytes.
  [[nodiscard]] size_t take_messages(CallStream& call, std::string_view bytes,
                                     size_t most) noexcept;
  void on_message(Request& request) noexcept;
  void on_last_message(CallStream& call) noexcept;
  void end_if_through(CallStream& call) noexcept;
  // Its reply has been handed to the loop, or is not sent: it is forgotten once no send is in
  // flight.
  void leave(Request& request) noexcept;
  void drop_sent() noexcept;

  // --- replies.cc: to the session and out of it ---------------------------------------------------
  void begin_reply(CallStream& call) noexcept;
  void wake_reply(CallStream& call) noexcept;
  void submit_status(CallStream& call) noexcept;
  void submit_no_room(int32_t number) noexcept;
  void submit_http_status(CallStream& call, int http_status) noexcept;
  [[nodiscard]] static nghttp2_data_provider reply_of(CallStream& call) noexcept;
  [[nodiscard]] ssize_t read_http_reply(CallStream& call, size_t most, uint32_t& flags) noexcept;
  void take_http_reply(CallStream& call, size_t bytes) noexcept;
  [[nodiscard]] ssize_t read_reply(CallStream& call, size_t most, uint32_t& flags) noexcept;
  [[nodiscard]] int send_data(CallStream& call, const uint8_t* frame_head, size_t bytes) noexcept;
  [[nodiscard]] size_t gather() noexcept;

  void finish_closing() noexcept;

  GrpcTransport& host_;
  std::span<char> receive_;
  std::span<char> send_;
  RequestText text_;  // of the head that is being received
  net::Loop* loop_ = nullptr;
  net::Stream* stream_ = nullptr;
  net::StreamHandler* giver_ = nullptr;
  nghttp2_session* session_ = nullptr;
  CallStream* calls_ = nullptr;
  Request* leaving_ = nullptr;  // the kernel may read their replies still
  CallStream* leaving_http_ = nullptr;
  net::TimeoutEntry timeout_;
  std::array<iovec, 2> receive_segments_{};
  Landing landing_;
  int32_t data_stream_ = 0;  // of the last DATA frame
  size_t data_left_ = 0;     // of its bytes, so many have not come
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
