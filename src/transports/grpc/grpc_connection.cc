// HTTP/2's frames to calls and back. I/O thread only; allocates nothing but session memory.
#include "transports/grpc/grpc_connection.h"

#include "transports/grpc/grpc_transport.h"
#include "transports/grpc/headers.h"

#include <lumen/base/check.h>
#include <lumen/base/clock.h>
#include <lumen/wire/status_map.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lumen::grpc {
namespace {

// Bytes that a client may send of a stream, and of all together, before it hears that they were
// taken. They are taken at once, into memory that was reserved when the message began: this bounds
// the bytes under way alone.
constexpr int32_t kStreamWindow = 1 << 20;
constexpr int32_t kConnectionWindow = 8 << 20;
// Of one call; the default of gRPC's clients and servers.
constexpr size_t kMostHeaderBytes = 8 << 10;
constexpr uint32_t kMostStreams = 256;
// The longest thing of the session beside DATA: a reply's headers or trailers.
constexpr size_t kMostFrameBytes = 4096;
static_assert(kMostFrameBytes > Request::kMostMessageBytes + 512);
constexpr size_t kFrameHeadBytes = 9;
constexpr size_t kMostPieces = 16;  // of a reply, in one frame

Request* request_of(nghttp2_session* session, int32_t stream) noexcept {
  return static_cast<Request*>(nghttp2_session_get_stream_user_data(session, stream));
}

}  // namespace

// nghttp2's calls.
struct Callbacks {
  static GrpcConnection& of(void* self) noexcept { return *static_cast<GrpcConnection*>(self); }

  static int on_begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* self) noexcept {
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      of(self).begin_call(frame->hd.stream_id);
    }
    return 0;
  }
  static int on_header(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name,
                       size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t,
                       void* self) noexcept {
    Request* const request = request_of(session, frame->hd.stream_id);
    if (request == nullptr) return 0;
    request->header_bytes += name_bytes + value_bytes;
    if (request->header_bytes > kMostHeaderBytes) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    of(self).on_header(*request, {reinterpret_cast<const char*>(name), name_bytes},
                       {reinterpret_cast<const char*>(value), value_bytes});
    return 0;
  }
  static int on_frame(nghttp2_session* session, const nghttp2_frame* frame, void* self) noexcept {
    const bool is_head = frame->hd.type == NGHTTP2_HEADERS;
    if (!is_head && frame->hd.type != NGHTTP2_DATA) return 0;
    Request* const request = request_of(session, frame->hd.stream_id);
    const bool is_end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (request != nullptr) request->has_ended = is_end;
    if (is_head && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      of(self).on_head_complete(request, frame->hd.stream_id);
    }
    if (!is_end || request == nullptr) return 0;
    request->timeout.unlink();
    if (!request->is_answered) of(self).on_end(*request);
    return 0;
  }
  static int on_data(nghttp2_session* session, uint8_t, int32_t stream, const uint8_t* data,
                     size_t bytes, void* self) noexcept {
    Request* const request = request_of(session, stream);
    if (request != nullptr && !request->is_answered) {
      of(self).on_data(*request, {reinterpret_cast<const char*>(data), bytes});
    }
    return nghttp2_session_consume(session, stream, bytes);
  }
  static int on_stream_close(nghttp2_session* session, int32_t stream, uint32_t,
                             void* self) noexcept {
    if (Request* const request = request_of(session, stream)) of(self).on_stream_closed(*request);
    return 0;
  }
  static ssize_t read_reply(nghttp2_session*, int32_t, uint8_t*, size_t most, uint32_t* flags,
                            nghttp2_data_source* source, void* self) noexcept {
    return of(self).read_reply(*static_cast<Request*>(source->ptr), most, *flags);
  }
  static int send_data(nghttp2_session*, nghttp2_frame*, const uint8_t* head, size_t bytes,
                       nghttp2_data_source* source, void* self) noexcept {
    return of(self).send_data(*static_cast<Request*>(source->ptr), head, bytes);
  }
};

nghttp2_session_callbacks* make_callbacks() noexcept {
  nghttp2_session_callbacks* all = nullptr;
  if (nghttp2_session_callbacks_new(&all) != 0) return nullptr;
  nghttp2_session_callbacks_set_on_begin_headers_callback(all, Callbacks::on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback(all, Callbacks::on_header);
  nghttp2_session_callbacks_set_on_frame_recv_callback(all, Callbacks::on_frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(all, Callbacks::on_data);
  nghttp2_session_callbacks_set_on_stream_close_callback(all, Callbacks::on_stream_close);
  nghttp2_session_callbacks_set_send_data_callback(all, Callbacks::send_data);
  return all;
}

// --- the connection's life -----------------------------------------------------------------------

bool GrpcConnection::open(net::Stream& stream, std::span<const char> received,
                          bool is_local) noexcept {
  if (nghttp2_session_server_new3(&session_, host_.callbacks(), this, host_.session_options(),
                                  host_.session_memory()) != 0) {
    session_ = nullptr;
    return false;
  }
  state_ = State::kOpen;
  stream_ = &stream;
  giver_ = std::exchange(stream.handler, this);
  is_local_ = is_local;
  is_sending_ = is_draining_ = is_broken_ = false;
  const auto streams = static_cast<uint32_t>(
      std::min<size_t>(kMostStreams, host_.services().options.max_active_requests));
  const std::array settings = {
      nghttp2_settings_entry{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, streams},
      nghttp2_settings_entry{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
      nghttp2_settings_entry{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMostHeaderBytes}};
  const bool is_begun =
      nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size()) == 0 &&
      nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindow) == 0;
  host_.idle().start(timeout_, coarse_now_ns());
  // From here on the stream is this connection's, in any case.
  if (!is_begun || !feed({received.data(), received.size()})) {
    close();
    return true;
  }
  flush();
  if (state_ == State::kOpen) begin_receive();
  return true;
}

void GrpcConnection::close(net::Loop::Closing how) noexcept {
  if (state_ != State::kOpen) return;
  state_ = State::kClosing;
  timeout_.unlink();
  for (Request* request = requests_; request != nullptr;) {
    Request* const next = request->next;
    if (request->is_away) host_.thread().dispatcher.cancel(request->call);
    request->timeout.unlink();
    request->is_closed = true;
    request = next;
  }
  host_.thread().loop.close(*stream_, how);
}

// The loop has let go of all buffers.
void GrpcConnection::on_closed(net::Stream& stream) noexcept {
  state_ = State::kClosing;
  is_sending_ = false;
  stream.handler = std::exchange(giver_, nullptr);
  drop_ended();
  stream_ = nullptr;
  if (requests_ == nullptr) finish_closing();
  stream.handler->on_closed(stream);
}

void GrpcConnection::finish_closing() noexcept {
  nghttp2_session_del(std::exchange(session_, nullptr));
  state_ = State::kFree;
  host_.connection_closed(*this);
}

void GrpcConnection::begin_drain() noexcept {
  if (state_ != State::kOpen || is_draining_) return;
  is_draining_ = true;
  (void)nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                              nullptr, 0);
  flush();
}

// Idle, or a client that takes none of its reply's bytes.
void GrpcConnection::on_timeout() noexcept {
  if (is_sending_) {
    close(net::Loop::Closing::kReset);
    return;
  }
  if (requests_ != nullptr) {
    host_.idle().start(timeout_, coarse_now_ns());
    return;
  }
  begin_drain();
}

void GrpcConnection::on_gone(net::Stream&) noexcept { close(); }

// --- bytes in ------------------------------------------------------------------------------------

void GrpcConnection::begin_receive() noexcept {
  receive_segment_ = {receive_.data(), receive_.size()};
  host_.thread().loop.receive(*stream_, std::span(&receive_segment_, 1));
}

void GrpcConnection::on_readable(net::Stream& stream, std::span<char> lent) noexcept {
  (void)stream;
  if (!lent.empty()) host_.thread().loop.give_back(lent);
  close();  // it never waits for that
}

void GrpcConnection::on_received(net::Stream&, int64_t result) noexcept {
  if (result <= 0) {  // the client has gone, or ended its side: none of its calls can be whole
    close();
    return;
  }
  host_.thread().counters.add("received_bytes", static_cast<uint64_t>(result));
  if (!feed({receive_.data(), static_cast<size_t>(result)})) {
    flush();  // the session has a GOAWAY with the reason
    close();
    return;
  }
  if (!is_sending_) host_.idle().start(timeout_, coarse_now_ns());
  flush();
  if (state_ == State::kOpen) begin_receive();
}

bool GrpcConnection::feed(std::string_view bytes) noexcept {
  is_feeding_ = true;
  const ssize_t taken = nghttp2_session_mem_recv(
      session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  is_feeding_ = false;
  return taken == static_cast<ssize_t>(bytes.size());
}

void GrpcConnection::begin_call(int32_t stream) noexcept {
  host_.thread().counters.add("requests");
  Request* const request = host_.acquire();
  if (request == nullptr) return;
  request->connection = this;
  request->stream = stream;
  request->call.infer.times.received_ns = now_ns();
  request->next = requests_;
  if (requests_ != nullptr) requests_->previous = request;
  requests_ = request;
  (void)nghttp2_session_set_stream_user_data(session_, stream, request);
  host_.receiving().start(request->timeout, coarse_now_ns());
}

void GrpcConnection::on_header(Request& request, std::string_view name,
                               std::string_view value) noexcept {
  if (name == ":path") {
    request.method = method_of(value);
  } else if (name == ":method") {
    request.is_post = value == "POST";
  } else if (name == "content-type") {
    request.is_grpc = is_grpc_type(value);
  } else if (name == "grpc-timeout") {
    request.timeout_us = parse_grpc_timeout(value);
  } else if (name == "traceparent") {
    request.call.traceparent = wire::parse_traceparent(value).value_or(Traceparent{});
  }
}

// Calls that are refused by their head alone.
void GrpcConnection::on_head_complete(Request* request, int32_t stream) noexcept {
  if (request == nullptr) {
    submit_status(nullptr, stream, 200, true);
    return;
  }
  if (!request->is_post || !request->is_grpc) {
    request->is_answered = true;
    request->status = request->is_post ? 415 : 405;
    submit_status(request, stream, request->status, false);
    return;
  }
  if (host_.services().wants_keys && !is_local_) {
    refuse(*request, Status::error(Code::kUnauthenticated,
                                   "this server wants a key, which it does not read over gRPC "
                                   "yet; use HTTP"));
    return;
  }
  if (request->method == Method::kUnknown) {
    const Status status = host_.handler().on_call(*request);
    refuse(*request, status);
  }
}

void GrpcConnection::on_data(Request& request, std::string_view bytes) noexcept {
  const Status status = request.receive(bytes, host_.services().options.max_message_bytes);
  if (!status.ok()) {
    refuse(request, status);
    return;
  }
  host_.receiving().start(request.timeout, coarse_now_ns());
}

void GrpcConnection::on_end(Request& request) noexcept {
  request.timeout.unlink();
  Status status = request.check_complete();
  if (status.ok()) status = host_.handler().on_call(request);
  if (!status.ok()) refuse(request, status);
}

// --- replies -------------------------------------------------------------------------------------

void GrpcConnection::answer(Request& request) noexcept {
  request.is_answered = true;
  request.status = 200;
  request.left_bytes = request.reply.bytes;
  const std::array head = {header(":status", "200"), header("content-type", "application/grpc")};
  nghttp2_data_provider provider{};
  provider.source.ptr = &request;
  provider.read_callback = Callbacks::read_reply;
  if (nghttp2_submit_response(session_, request.stream, head.data(), head.size(), &provider) != 0) {
    is_broken_ = true;
  }
  host_.flush_later(*this);
}

void GrpcConnection::refuse(Request& request, const Status& refused) noexcept {
  const Status& status =
      refused.code() == Code::kTooLarge && request.memory.was_refused() ? host_.no_room() : refused;
  request.is_answered = true;
  request.status = wire::http_status(status.code());
  request.call.infer.status = status;
  submit_status(&request, request.stream, 200, true);
  host_.flush_later(*this);
}

// The rest of a call does not come: one that has not been answered is refused, and the stream of
// one that was is reset.
void GrpcConnection::on_late(Request& request) noexcept {
  if (!request.is_answered) {
    refuse(request, Status::error(Code::kDeadlineExceeded, "the request did not arrive in time"));
    host_.receiving().start(request.timeout, coarse_now_ns());
    return;
  }
  (void)nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, request.stream, NGHTTP2_CANCEL);
  host_.flush_later(*this);
}

// Without a message. `request`: nullptr, if there was none for it.
void GrpcConnection::submit_status(Request* request, int32_t stream, int http_status,
                                   bool has_grpc) noexcept {
  const std::string_view code = http_status == 200 ? "200" : http_status == 415 ? "415" : "405";
  std::array<nghttp2_nv, 4> head{header(":status", code)};
  size_t count = 1;
  if (has_grpc) {
    const Status& status = request != nullptr ? request->call.infer.status : host_.no_room();
    head[count++] = header("content-type", "application/grpc");
    if (request != nullptr) {
      head[count++] = header("grpc-status", write_status(status.code(), request->status_text));
      head[count++] =
          header("grpc-message", percent_encode(status.message(), request->status_message));
    } else {
      head[count++] = header("grpc-status", "8");
      head[count++] = header("grpc-message", "no memory for this request: try again");
    }
  }
  if (nghttp2_submit_response(session_, stream, head.data(), count, nullptr) != 0)
    is_broken_ = true;
}

ssize_t GrpcConnection::read_reply(Request& request, size_t most, uint32_t& flags) noexcept {
  // A frame has a bounded number of pieces, so that each finds room in one send.
  size_t bytes = 0;
  const size_t end = std::min(request.piece + kMostPieces, request.reply.pieces.size());
  for (size_t i = request.piece; i < end; ++i) bytes += request.reply.pieces[i].size();
  bytes = std::min(bytes - request.sent_of_piece, most);
  flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (bytes == request.left_bytes) {
    flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    const std::array trailer = {header("grpc-status", "0")};
    if (nghttp2_submit_trailer(session_, request.stream, trailer.data(), trailer.size()) != 0) {
      return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
  }
  return static_cast<ssize_t>(bytes);
}

// A frame of the reply: its head into the buffer, its bytes where they lie.
int GrpcConnection::send_data(Request& request, const uint8_t* frame_head, size_t bytes) noexcept {
  if (segment_count_ + kMostPieces + 1 > segments_.size() ||
      send_used_ + kFrameHeadBytes > send_.size()) {
    return NGHTTP2_ERR_WOULDBLOCK;  // it comes with the next send
  }
  char* const head = send_.data() + send_used_;
  std::memcpy(head, frame_head, kFrameHeadBytes);
  send_used_ += kFrameHeadBytes;
  segments_[segment_count_++] = {head, kFrameHeadBytes};
  request.left_bytes -= bytes;
  while (bytes > 0) {
    const std::string_view piece = request.reply.pieces[request.piece];
    const size_t part = std::min(bytes, piece.size() - request.sent_of_piece);
    segments_[segment_count_++] = {const_cast<char*>(piece.data()) + request.sent_of_piece, part};
    request.sent_of_piece += part;
    bytes -= part;
    if (request.sent_of_piece == piece.size()) {
      ++request.piece;
      request.sent_of_piece = 0;
    }
  }
  return 0;
}

// Of the session, as much as one send takes. Returns the number of segments.
size_t GrpcConnection::gather() noexcept {
  segment_count_ = send_used_ = 0;
  while (send_.size() - send_used_ >= kMostFrameBytes && segment_count_ + 2 < segments_.size()) {
    const uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &bytes);
    is_broken_ = is_broken_ || size < 0;  // no memory is left
    if (size <= 0) break;                 // nothing more, or no room
    const auto length = static_cast<size_t>(size);
    LUMEN_CHECK(length <= send_.size() - send_used_);
    char* const place = send_.data() + send_used_;
    std::memcpy(place, bytes, length);
    send_used_ += length;
    segments_[segment_count_++] = {place, length};
  }
  return segment_count_;
}

void GrpcConnection::flush() noexcept {
  if (is_sending_ || is_feeding_ || state_ != State::kOpen) return;
  if (gather() > 0 && !is_broken_) {
    is_sending_ = true;
    host_.writing().start(timeout_, coarse_now_ns());
    host_.thread().loop.send(*stream_, std::span(segments_).first(segment_count_));
    return;
  }
  drop_ended();
  const bool has_ended =
      nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0;
  if (has_ended || (is_draining_ && requests_ == nullptr)) close();
}

void GrpcConnection::on_sent(net::Stream&, int64_t result) noexcept {
  is_sending_ = false;
  if (result < 0) {
    close();
    return;
  }
  host_.thread().counters.add("sent_bytes", static_cast<uint64_t>(result));
  host_.idle().start(timeout_, coarse_now_ns());
  drop_ended();
  flush();
}

// --- the end of calls ----------------------------------------------------------------------------

// All its bytes have left the session, or the client has reset it.
void GrpcConnection::on_stream_closed(Request& request) noexcept {
  request.timeout.unlink();
  request.is_closed = true;
  if (request.is_away) {
    host_.thread().dispatcher.cancel(request.call);
  } else if (is_feeding_ && !is_sending_) {
    forget(request);  // a client may give up more calls at once than there are requests
  }
}

// Those of which neither the engine nor the kernel has anything.
void GrpcConnection::drop_ended() noexcept {
  if (is_sending_) return;
  for (Request* request = requests_; request != nullptr;) {
    Request* const next = request->next;
    if (request->is_closed && !request->is_away) forget(*request);
    request = next;
  }
}

void GrpcConnection::forget(Request& request) noexcept {
  if (request.previous != nullptr) request.previous->next = request.next;
  if (request.next != nullptr) request.next->previous = request.previous;
  if (requests_ == &request) requests_ = request.next;
  host_.end_call(request);
  host_.release(request);
  if (state_ == State::kClosing && stream_ == nullptr && requests_ == nullptr) finish_closing();
}

}  // namespace lumen::grpc
