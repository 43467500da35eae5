// The connection's life, and its bytes to frames. Calls: calls.cc; replies: replies.cc. I/O thread
// only; allocates nothing but session memory.
#include "transports/grpc/grpc_connection.h"

#include "transports/grpc/grpc_transport.h"

#include <lumen/base/clock.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lumen::grpc {
namespace {

// Bytes that a client may send of all streams together before it hears that they were taken. They
// are taken at once, into memory that was reserved when the message began, or by the stream's
// backlog: this bounds the bytes under way alone.
constexpr int32_t kConnectionWindow = 8 << 20;
// Of one call; the default of gRPC's clients and servers.
constexpr size_t kMostHeaderBytes = 8 << 10;
constexpr uint32_t kMostStreams = 256;
// A frame as large as the window lets a client send a tensor's bytes in one piece, whose place is
// known from its beginning. nghttp2 keeps nothing of a frame's bytes but those of GOAWAY.
constexpr uint32_t kMostFrameBytes = GrpcConnection::kStreamWindowBytes;
constexpr size_t kMostGoawayBytes = 16 << 10;

CallStream* call_of(nghttp2_session* session, int32_t number) noexcept {
  return static_cast<CallStream*>(nghttp2_session_get_stream_user_data(session, number));
}

}  // namespace

// nghttp2's calls.
struct Callbacks {
  static GrpcConnection& of(void* self) noexcept { return *static_cast<GrpcConnection*>(self); }

  static int on_begin_frame(nghttp2_session* session, const nghttp2_frame_hd* head,
                            void* self) noexcept {
    if (head->type == NGHTTP2_GOAWAY && head->length > kMostGoawayBytes) {
      (void)nghttp2_session_terminate_session(session, NGHTTP2_ENHANCE_YOUR_CALM);
      return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (head->type == NGHTTP2_DATA) of(self).on_data_frame(*head);
    return 0;
  }
  static int on_begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* self) noexcept {
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      of(self).begin_call(frame->hd.stream_id);
    }
    return 0;
  }
  static int on_header(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name,
                       size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t,
                       void* self) noexcept {
    CallStream* const call = call_of(session, frame->hd.stream_id);
    if (call == nullptr) return 0;
    call->header_bytes += name_bytes + value_bytes;
    if (call->header_bytes > kMostHeaderBytes) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    of(self).on_header(*call, {reinterpret_cast<const char*>(name), name_bytes},
                       {reinterpret_cast<const char*>(value), value_bytes});
    return 0;
  }
  static int on_frame(nghttp2_session* session, const nghttp2_frame* frame, void* self) noexcept {
    const bool is_head = frame->hd.type == NGHTTP2_HEADERS;
    if (!is_head && frame->hd.type != NGHTTP2_DATA) return 0;
    CallStream* const call = call_of(session, frame->hd.stream_id);
    const bool has_ended = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (is_head && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      of(self).on_head_complete(call, frame->hd.stream_id, has_ended);
    }
    if (has_ended && call != nullptr) of(self).on_end(*call);
    return 0;
  }
  static int on_data(nghttp2_session* session, uint8_t, int32_t number, const uint8_t* data,
                     size_t bytes, void* self) noexcept {
    of(self).data_left_ -= std::min(of(self).data_left_, bytes);
    if (CallStream* const call = call_of(session, number)) {
      of(self).on_data(*call, {reinterpret_cast<const char*>(data), bytes});
      return nghttp2_session_consume_connection(session, bytes);
    }
    return nghttp2_session_consume(session, number, bytes);
  }
  static int on_stream_close(nghttp2_session* session, int32_t number, uint32_t,
                             void* self) noexcept {
    if (CallStream* const call = call_of(session, number)) of(self).on_stream_closed(*call);
    return 0;
  }
  static int send_data(nghttp2_session*, nghttp2_frame*, const uint8_t* head, size_t bytes,
                       nghttp2_data_source* source, void* self) noexcept {
    return of(self).send_data(*static_cast<CallStream*>(source->ptr), head, bytes);
  }
};

nghttp2_session_callbacks* make_callbacks() noexcept {
  nghttp2_session_callbacks* all = nullptr;
  if (nghttp2_session_callbacks_new(&all) != 0) return nullptr;
  nghttp2_session_callbacks_set_on_begin_frame_callback(all, Callbacks::on_begin_frame);
  nghttp2_session_callbacks_set_on_begin_headers_callback(all, Callbacks::on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback(all, Callbacks::on_header);
  nghttp2_session_callbacks_set_on_frame_recv_callback(all, Callbacks::on_frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(all, Callbacks::on_data);
  nghttp2_session_callbacks_set_on_stream_close_callback(all, Callbacks::on_stream_close);
  nghttp2_session_callbacks_set_send_data_callback(all, Callbacks::send_data);
  return all;
}

// --- the connection's life -----------------------------------------------------------------------

bool GrpcConnection::open(net::Loop& loop, net::Stream& stream, std::span<const char> received,
                          bool is_local) noexcept {
  if (nghttp2_session_server_new3(&session_, host_.callbacks(), this, host_.session_options(),
                                  host_.session_memory()) != 0) {
    session_ = nullptr;
    return false;
  }
  state_ = State::kOpen;
  loop_ = &loop;
  stream_ = &stream;
  giver_ = std::exchange(stream.handler, this);
  is_local_ = is_local;
  is_sending_ = is_draining_ = is_broken_ = false;
  data_left_ = 0;
  const auto streams = static_cast<uint32_t>(
      std::min<size_t>(kMostStreams, host_.services().options.max_active_requests));
  const std::array settings = {
      nghttp2_settings_entry{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, streams},
      nghttp2_settings_entry{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindowBytes},
      nghttp2_settings_entry{NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kMostFrameBytes},
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
  for (CallStream* call = calls_; call != nullptr; call = call->next) {
    for (Request* request = call->requests; request != nullptr; request = request->next) {
      if (request->is_away) host_.cancel(*request);
    }
    call->stop_timeouts();
    call->is_closed = true;
  }
  loop_->close(*stream_, how);
}

// The loop has let go of all buffers.
void GrpcConnection::on_closed(net::Stream& stream) noexcept {
  state_ = State::kClosing;
  is_sending_ = false;
  landing_ = {};
  stream.handler = std::exchange(giver_, nullptr);
  drop_sent();
  for (CallStream* call = calls_; call != nullptr;) {
    CallStream* const next = call->next;
    on_stream_closed(*call);
    call = next;
  }
  drop_sent();
  stream_ = nullptr;
  if (calls_ == nullptr) finish_closing();
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
  (void)tell_health();
  for (CallStream* call = calls_; call != nullptr; call = call->next) end_if_through(*call);
  flush();
}

// Idle, or a client that takes none of its reply's bytes.
void GrpcConnection::on_timeout() noexcept {
  if (is_sending_) {
    host_.thread().counters.add("timeouts");
    close(net::Loop::Closing::kReset);
    return;
  }
  if (calls_ != nullptr) {
    host_.idle().start(timeout_, coarse_now_ns());
    return;
  }
  begin_drain();
}

void GrpcConnection::on_gone(net::Stream&) noexcept { close(); }

transports::Client GrpcConnection::client_of(const CallStream& call) noexcept {
  return {.loop = *loop_, .stream = *stream_, .is_local = is_local_, .role = call.role};
}

// --- bytes in ------------------------------------------------------------------------------------

void GrpcConnection::on_data_frame(const nghttp2_frame_hd& head) noexcept {
  data_stream_ = head.stream_id;
  data_left_ = (head.flags & NGHTTP2_FLAG_PADDED) != 0 ? 0 : head.length;
}

// The rest of a frame may turn out to be no message's: the session reads it from there as from the
// receive buffer.
GrpcConnection::Landing GrpcConnection::next_landing() noexcept {
  if (data_left_ == 0) return {};
  const CallStream* const call = call_of(session_, data_stream_);
  if (call == nullptr || call->receiving == nullptr) return {};
  const std::span<char> place = call->receiving->place();
  if (place.empty()) return {};
  return {.request = call->receiving, .place = place.first(std::min(place.size(), data_left_))};
}

void GrpcConnection::begin_receive() noexcept {
  landing_ = next_landing();
  receive_segments_ = {iovec{landing_.place.data(), landing_.place.size()},
                       iovec{receive_.data(), receive_.size()}};
  const size_t count = landing_.place.empty() ? 1 : 2;
  loop_->receive(*stream_, std::span(receive_segments_).last(count));
}

void GrpcConnection::end_landing() noexcept {
  const Landing ended = std::exchange(landing_, {});
  if (ended.is_given_up) forget(*ended.request);
}

void GrpcConnection::on_readable(net::Stream& stream, std::span<char> lent) noexcept {
  (void)stream;
  if (!lent.empty()) loop_->give_back(lent);
  close();  // it never waits for that
}

void GrpcConnection::on_received(net::Stream&, int64_t result) noexcept {
  const bool is_cancelled = result == -ECANCELED && landing_.is_given_up;
  if (result <= 0 && !is_cancelled) {
    // The client has gone, or ended its side: none of its calls can be whole.
    close();
    return;
  }
  const size_t bytes = is_cancelled ? 0 : static_cast<size_t>(result);
  const size_t landed = std::min(bytes, landing_.place.size());
  host_.thread().counters.add("received_bytes", bytes);
  host_.thread().counters.add("received_direct_bytes", landed);
  bool is_fed = feed({landing_.place.data(), landed});
  end_landing();
  is_fed = is_fed && feed({receive_.data(), bytes - landed});
  if (!is_fed) {
    flush();  // the session has a GOAWAY with the reason
    close();
    return;
  }
  if (!is_sending_) host_.idle().start(timeout_, coarse_now_ns());
  flush();
  if (state_ == State::kOpen) begin_receive();
}

bool GrpcConnection::feed(std::string_view bytes) noexcept {
  if (bytes.empty()) return true;
  is_feeding_ = true;
  const ssize_t taken = nghttp2_session_mem_recv(
      session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  is_feeding_ = false;
  return taken == static_cast<ssize_t>(bytes.size());
}

}  // namespace lumen::grpc
