// A connection's replies: from requests to the session, and from there to the loop. I/O thread
// only; allocates nothing but session memory.
#include "transports/grpc/grpc_connection.h"
#include "transports/grpc/grpc_transport.h"
#include "transports/grpc/headers.h"

#include <lumen/base/check.h>
#include <lumen/base/clock.h>
#include <lumen/wire/status_map.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace lumen::grpc {
namespace {

// The longest thing of the session beside DATA: a reply's headers or trailers.
constexpr size_t kMostFrameBytes = 4096;
static_assert(kMostFrameBytes > CallStream::kMostMessageBytes + 512);
constexpr size_t kFrameHeadBytes = 9;
constexpr size_t kMostPieces = 16;  // of a reply, in one frame

}  // namespace

// --- to the session ------------------------------------------------------------------------------

void GrpcConnection::answer(Request& request) noexcept {
  CallStream& call = *request.stream;
  if (request.status == 0) request.status = 200;
  request.left_bytes = request.reply.bytes;
  call.push_reply(request);
  --call.unanswered;
  if (!replies_many(call.method)) call.is_over = true;
  host_.stalled().start(call.stall, coarse_now_ns());
  call.has_head ? wake_reply(call) : begin_reply(call);
  host_.flush_later(*this);
  end_if_through(call);
}

void GrpcConnection::refuse(Request& request, const Status& refused) noexcept {
  const Status& status =
      refused.code() == Code::kTooLarge && request.memory.was_refused() ? host_.no_room() : refused;
  CallStream& call = *request.stream;
  request.status = wire::http_status(status.code());
  request.call.infer.status = status;
  if (call.method == Method::kModelStreamInfer && !call.ends_by_errors) {
    const Result<wire::GrpcMessage> said =
        wire::encode_grpc_stream_error(status.message(), request.head.id, request.memory);
    if (said.ok()) {
      request.reply = *said;
      answer(request);
      return;
    }
  }
  end_call(call, Status(status));
}

// Its bytes as the session asks for them.
nghttp2_data_provider GrpcConnection::reply_of(CallStream& call) noexcept {
  nghttp2_data_provider provider{};
  provider.source.ptr = &call;
  provider.read_callback = [](nghttp2_session*, int32_t, uint8_t*, size_t most, uint32_t* flags,
                              nghttp2_data_source* source, void* self) noexcept -> ssize_t {
    auto& of = *static_cast<CallStream*>(source->ptr);
    auto& connection = *static_cast<GrpcConnection*>(self);
    return of.is_http ? connection.read_http_reply(of, most, *flags)
                      : connection.read_reply(of, most, *flags);
  };
  return provider;
}

void GrpcConnection::begin_reply(CallStream& call) noexcept {
  call.has_head = true;
  const std::array head = {header(":status", "200"), header("content-type", "application/grpc")};
  const nghttp2_data_provider provider = reply_of(call);
  if (nghttp2_submit_response(session_, call.number, head.data(), head.size(), &provider) != 0) {
    is_broken_ = true;
  }
}

void GrpcConnection::submit_reply(CallStream& call, std::span<const nghttp2_nv> fields,
                                  bool has_body, bool is_interim) noexcept {
  nghttp2_data_provider provider = reply_of(call);
  const int result = is_interim
                         ? nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, call.number, nullptr,
                                                  fields.data(), fields.size(), nullptr)
                         : nghttp2_submit_response(session_, call.number, fields.data(),
                                                   fields.size(), has_body ? &provider : nullptr);
  if (result != 0) is_broken_ = true;
}

void GrpcConnection::reset(CallStream& call, uint32_t error_code) noexcept {
  if (nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, call.number, error_code) != 0) {
    is_broken_ = true;
  }
  host_.flush_later(*this);
}

void GrpcConnection::wake_reply(CallStream& call) noexcept {
  if (!call.is_deferred) return;
  call.is_deferred = false;
  if (nghttp2_session_resume_data(session_, call.number) != 0) is_broken_ = true;
}

// Without a message.
void GrpcConnection::submit_status(CallStream& call) noexcept {
  call.has_head = true;
  const std::array head = {
      header(":status", "200"), header("content-type", "application/grpc"),
      header("grpc-status", write_status(call.status.code(), call.status_text)),
      header("grpc-message", percent_encode(call.status.message(), call.status_message))};
  if (nghttp2_submit_response(session_, call.number, head.data(), head.size(), nullptr) != 0) {
    is_broken_ = true;
  }
}

// Of a stream for which there was no CallStream.
void GrpcConnection::submit_no_room(int32_t number) noexcept {
  const std::array head = {header(":status", "200"), header("content-type", "application/grpc"),
                           header("grpc-status", "8"),
                           header("grpc-message", "no memory for this request: try again")};
  if (nghttp2_submit_response(session_, number, head.data(), head.size(), nullptr) != 0) {
    is_broken_ = true;
  }
}

// Of a request that is none of gRPC.
void GrpcConnection::submit_http_status(CallStream& call, int http_status) noexcept {
  call.is_over = call.has_head = true;
  const std::string_view status = http_status == 415 ? "415" : http_status == 431 ? "431" : "405";
  const std::array head = {header(":status", status)};
  if (nghttp2_submit_response(session_, call.number, head.data(), head.size(), nullptr) != 0) {
    is_broken_ = true;
  }
}

// --- out of it -----------------------------------------------------------------------------------

ssize_t GrpcConnection::read_reply(CallStream& call, size_t most, uint32_t& flags) noexcept {
  const Request* const request = call.first_reply;
  size_t bytes = 0;
  if (request != nullptr) {
    // A frame has a bounded number of pieces, so that each finds room in one send.
    const std::span<const std::string_view> pieces = request->reply.pieces;
    const size_t end = std::min(request->piece + kMostPieces, pieces.size());
    for (size_t i = request->piece; i < end; ++i) bytes += pieces[i].size();
    bytes = std::min(bytes - request->sent_of_piece, most);
  } else if (!call.is_over) {
    call.is_deferred = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  const bool is_last =
      request == nullptr || (bytes == request->left_bytes && request == call.last_reply);
  if (!is_last || !call.is_over) return static_cast<ssize_t>(bytes);
  flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
  const std::array trailer = {
      header("grpc-status", write_status(call.status.code(), call.status_text)),
      header("grpc-message", percent_encode(call.status.message(), call.status_message))};
  // An OK has no message.
  const size_t count = call.status.ok() ? 1 : trailer.size();
  if (nghttp2_submit_trailer(session_, call.number, trailer.data(), count) != 0) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  return static_cast<ssize_t>(bytes);
}

ssize_t GrpcConnection::read_http_reply(CallStream& call, size_t most, uint32_t& flags) noexcept {
  HttpStreams& streams = host_.http_streams();
  const std::optional<size_t> bytes = streams.read(call, most, kMostPieces);
  if (!bytes) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (streams.is_last(call, *bytes)) flags |= NGHTTP2_DATA_FLAG_EOF;
  return static_cast<ssize_t>(*bytes);
}

// A frame of the reply: its head into the buffer, its bytes where they lie.
int GrpcConnection::send_data(CallStream& call, const uint8_t* frame_head, size_t bytes) noexcept {
  if (segment_count_ + kMostPieces + 1 > segments_.size() ||
      send_used_ + kFrameHeadBytes > send_.size()) {
    return NGHTTP2_ERR_WOULDBLOCK;  // it comes with the next send
  }
  char* const head = send_.data() + send_used_;
  std::memcpy(head, frame_head, kFrameHeadBytes);
  send_used_ += kFrameHeadBytes;
  segments_[segment_count_++] = {head, kFrameHeadBytes};
  if (bytes == 0) return 0;
  if (call.is_http) {
    take_http_reply(call, bytes);
    return 0;
  }
  Request& request = *call.first_reply;
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
  if (request.left_bytes == 0) {
    call.pop_reply();
    leave(request);
  }
  if (call.first_reply == nullptr) {
    call.stall.unlink();
  } else {
    host_.stalled().start(call.stall, coarse_now_ns());
  }
  return 0;
}

void GrpcConnection::take_http_reply(CallStream& call, size_t bytes) noexcept {
  while (bytes > 0) {
    const iovec piece = host_.http_streams().take(call, bytes);
    segments_[segment_count_++] = piece;
    bytes -= piece.iov_len;
  }
  if (call.is_leaving) return;
  call.is_leaving = true;
  call.next_leaving = std::exchange(leaving_http_, &call);
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
    loop_->send(*stream_, std::span(segments_).first(segment_count_));
    return;
  }
  drop_sent();
  const bool has_ended =
      nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0;
  if (has_ended || is_broken_ || (is_draining_ && calls_ == nullptr)) close();
}

void GrpcConnection::on_sent(net::Stream&, int64_t result) noexcept {
  is_sending_ = false;
  if (result < 0) {
    close();
    return;
  }
  host_.thread().counters.add("sent_bytes", static_cast<uint64_t>(result));
  host_.idle().start(timeout_, coarse_now_ns());
  drop_sent();
  flush();
}

}  // namespace lumen::grpc
