// Requests of the REST surface over HTTP/2. See the header.
#include "transports/grpc/http_streams.h"

#include "transports/grpc/grpc_connection.h"
#include "transports/grpc/grpc_transport.h"
#include "transports/grpc/request_text.h"

#include <lumen/base/check.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lumen::grpc {

// Of one stream, in its net::Stream.
struct HttpStreams::State {
  CallStream* call;
  net::Stream* next_ready = nullptr;
  std::span<iovec> wanted{};  // by the receive in flight
  std::span<iovec> reply{};   // what is left of the send in flight
  uint64_t reply_bytes = 0;   // of all of that send
  uint64_t taken_bytes = 0;   // of these, by the session
  uint32_t head_bytes = 0;    // of the request, that are left in the backlog
  BodyText body{};
  bool in_chunks = false;
  bool is_ready = false;    // among the ones that run() visits
  bool is_telling = false;  // inside its handler
  bool is_waiting = false;  // wait_readable()
  bool is_receiving = false;
  bool is_cancelled = false;
  bool is_sending = false;
  bool is_sent = false;      // that send: the kernel has it, or the session
  bool is_answered = false;  // the reply's last byte was taken
  bool in_kernel = false;    // bytes of the reply are on their way
  bool is_closing = false;
  bool is_gone = false;  // its handler knows that the client is gone
};

HttpStreams::State& HttpStreams::state_of(CallStream& call) noexcept {
  return call.http->state<State>();
}

// --- from the session ----------------------------------------------------------------------------

bool HttpStreams::on_head(CallStream& call, std::string_view head, bool in_chunks,
                          bool is_local) noexcept {
  arriving_ = &call;
  const bool is_taken = taker_->take(*this, net::Socket{}, is_local);
  arriving_ = nullptr;
  if (!is_taken || call.http == nullptr) return false;
  State& state = state_of(call);
  state.head_bytes = static_cast<uint32_t>(head.size());
  state.in_chunks = in_chunks;
  deliver(*call.http, head);
  return true;
}

void HttpStreams::on_data(CallStream& call, std::string_view bytes) noexcept {
  if (call.is_over || call.http == nullptr) {
    (void)nghttp2_session_consume_stream(call.connection->session(), call.number, bytes.size());
  } else {
    deliver(*call.http, bytes);
  }
}

void HttpStreams::on_end(CallStream& call) noexcept {
  if (call.http != nullptr) deliver(*call.http, {});
}

// The session may be in the middle of a send: the handler hears of it later.
void HttpStreams::on_stream_closed(CallStream& call) noexcept {
  call.is_closed = true;
  call.backlog.clear();
  make_ready(*call.http);
}

std::optional<size_t> HttpStreams::read(CallStream& call, size_t most,
                                        size_t most_pieces) noexcept {
  if (call.http == nullptr) return std::nullopt;
  const State& state = state_of(call);
  if (state.is_closing || !state.is_sending) return std::nullopt;
  size_t bytes = 0;
  for (const iovec& piece : state.reply.first(std::min(most_pieces, state.reply.size()))) {
    bytes += piece.iov_len;
  }
  return std::min(bytes, most);
}

bool HttpStreams::is_last(CallStream& call, size_t bytes) noexcept {
  const State& state = state_of(call);
  return state.taken_bytes + bytes == state.reply_bytes;
}

iovec HttpStreams::take(CallStream& call, size_t most) noexcept {
  State& state = state_of(call);
  LUMEN_CHECK(!state.reply.empty());
  iovec& first = state.reply.front();
  const iovec piece{first.iov_base, std::min(first.iov_len, most)};
  first.iov_base = static_cast<char*>(first.iov_base) + piece.iov_len;
  first.iov_len -= piece.iov_len;
  if (first.iov_len == 0) state.reply = state.reply.subspan(1);
  state.taken_bytes += piece.iov_len;
  state.in_kernel = true;
  state.is_answered = state.taken_bytes == state.reply_bytes;
  return piece;
}

void HttpStreams::on_sent(CallStream& call) noexcept {
  State& state = state_of(call);
  state.in_kernel = false;
  state.is_sent = state.is_answered;
  make_ready(*call.http);
}

// --- to the handlers -----------------------------------------------------------------------------

void HttpStreams::make_ready(net::Stream& stream) noexcept {
  auto& state = stream.state<State>();
  if (state.is_telling || std::exchange(state.is_ready, true)) return;
  state.next_ready = nullptr;
  (first_ready_ == nullptr ? first_ready_ : last_ready_->state<State>().next_ready) = &stream;
  last_ready_ = &stream;
}

size_t HttpStreams::run() noexcept {
  size_t visited = 0;
  while (first_ready_ != nullptr) {
    net::Stream& stream = *first_ready_;
    auto& state = stream.state<State>();
    first_ready_ = state.next_ready;
    state.is_ready = false;
    host_.flush_later(*state.call->connection);
    if (state.is_closing) {
      tell_closed(stream);
    } else {
      deliver(stream, {});
    }
    ++visited;
  }
  return visited;
}

void HttpStreams::deliver(net::Stream& stream, std::string_view incoming) noexcept {
  auto& state = stream.state<State>();
  CallStream& call = *state.call;
  if (state.is_telling) return;
  state.is_telling = true;
  while (tell(stream, incoming)) {
  }
  state.is_telling = false;
  if (state.is_closing) {
    make_ready(stream);  // its end is told by run() alone
  } else if (!call.is_over && !call.is_closed && !call.backlog.append(incoming)) {
    (void)host_.no_room();
    reset(call, NGHTTP2_ENHANCE_YOUR_CALM);
  }
}

// One thing at a time: each handler may begin and end operations.
bool HttpStreams::tell(net::Stream& stream, std::string_view& incoming) noexcept {
  auto& state = stream.state<State>();
  CallStream& call = *state.call;
  if (state.is_closing) return false;
  if (state.is_sending && !state.in_kernel && (state.is_sent || call.is_closed)) {
    state.is_sending = false;
    stream.handler->on_sent(stream,
                            state.is_sent ? static_cast<int64_t>(state.reply_bytes) : -EPIPE);
    return true;
  }
  if (std::exchange(state.is_cancelled, false)) {
    stream.handler->on_received(stream, -ECANCELED);
    return true;
  }
  const bool has_bytes = !call.backlog.is_empty() || !incoming.empty();
  if (state.is_waiting && (has_bytes || call.has_ended || call.is_closed)) {
    state.is_waiting = false;
    stream.handler->on_readable(stream, {});
    return true;
  }
  if (state.is_receiving) return tell_received(stream, incoming);
  if (call.is_closed && !state.is_sending && !std::exchange(state.is_gone, true)) {
    stream.handler->on_gone(stream);
    return true;
  }
  return false;
}

bool HttpStreams::tell_received(net::Stream& stream, std::string_view& incoming) noexcept {
  auto& state = stream.state<State>();
  const CallStream& call = *state.call;
  size_t bytes = 0;
  for (const iovec& segment : state.wanted) {
    const std::span room(static_cast<char*>(segment.iov_base), segment.iov_len);
    size_t filled = 0;
    while (filled < room.size()) {
      const size_t more = fill(state, room.subspan(filled), incoming);
      if (more == 0) break;
      filled += more;
    }
    bytes += filled;
    if (filled < room.size()) break;
  }
  if (bytes == 0 && !call.is_closed && !call.has_ended) return false;
  state.is_receiving = false;
  const int64_t none = call.is_closed ? -ECONNRESET : 0;
  stream.handler->on_received(stream, bytes > 0 ? static_cast<int64_t>(bytes) : none);
  return true;
}

size_t HttpStreams::fill(State& state, std::span<char> room, std::string_view& incoming) noexcept {
  CallStream& call = *state.call;
  const bool in_backlog = !call.backlog.is_empty();
  const std::string_view source = in_backlog ? call.backlog.bytes() : incoming;
  size_t framing = 0;
  size_t bytes = std::min(source.size(), room.size());
  if (state.head_bytes > 0) {
    bytes = std::min<size_t>(bytes, state.head_bytes);
    state.head_bytes -= static_cast<uint32_t>(bytes);
  } else {
    if (state.in_chunks) {
      const bool has_ended = call.has_ended && source.empty();
      const BodyText::Step step = state.body.next(room, source.size(), has_ended);
      framing = step.framing;
      bytes = step.body;
    }
    if (bytes > 0 && !call.is_closed) {
      (void)nghttp2_session_consume_stream(call.connection->session(), call.number, bytes);
    }
  }
  source.copy(room.data() + framing, bytes);
  in_backlog ? call.backlog.drop(bytes) : incoming.remove_prefix(bytes);
  return framing + bytes;
}

// Once the kernel has let go of its bytes; otherwise on_sent() brings it here again.
void HttpStreams::tell_closed(net::Stream& stream) noexcept {
  auto& state = stream.state<State>();
  if (state.in_kernel) return;
  CallStream& call = *state.call;
  call.http = nullptr;
  if (call.is_closed) call.connection->release(call);
  stream.handler->on_closed(stream);
}

// --- operations of the connections ---------------------------------------------------------------

Status HttpStreams::add(net::Stream& stream, net::Socket) noexcept {
  LUMEN_CHECK(arriving_ != nullptr && arriving_->http == nullptr);
  arriving_->http = &stream;
  stream.begin(State{.call = arriving_});
  return {};
}

Status HttpStreams::add(net::Listener&) noexcept {
  return Status::error(Code::kUnsupported, "the loop '%s' has no listeners", name());
}

void HttpStreams::reset(CallStream& call, uint32_t error_code) noexcept {
  call.is_over = true;
  call.backlog.clear();
  if (!call.is_closed) call.connection->reset(call, error_code);
}

void HttpStreams::close(net::Stream& stream, Closing) noexcept {
  auto& state = stream.state<State>();
  CallStream& call = *state.call;
  state.is_closing = true;
  // Of a request that was answered the client need send no more (RFC 9113, 8.1).
  if (state.is_answered && call.has_ended) {
    call.is_over = true;
    call.backlog.clear();
  } else {
    reset(call, state.is_answered ? NGHTTP2_NO_ERROR : NGHTTP2_INTERNAL_ERROR);
  }
  make_ready(stream);
}

void HttpStreams::wait_readable(net::Stream& stream) noexcept {
  stream.state<State>().is_waiting = true;
  make_ready(stream);
}

void HttpStreams::receive(net::Stream& stream, std::span<iovec> buffers) noexcept {
  auto& state = stream.state<State>();
  LUMEN_CHECK(!state.is_receiving && !state.is_waiting);
  state.wanted = buffers;
  state.is_receiving = true;
  make_ready(stream);
}

void HttpStreams::drop(net::Stream& stream, std::span<iovec> buffers) noexcept {
  receive(stream, buffers);
}

void HttpStreams::cancel_receive(net::Stream& stream) noexcept {
  auto& state = stream.state<State>();
  state.is_cancelled = state.is_receiving || state.is_waiting;
  state.is_receiving = state.is_waiting = false;
  make_ready(stream);
}

// The head becomes a frame of its own, and the rest is read where it lies.
void HttpStreams::send(net::Stream& stream, std::span<iovec> buffers) noexcept {
  constexpr std::string_view kEmptyLine = "\r\n\r\n";
  auto& state = stream.state<State>();
  CallStream& call = *state.call;
  LUMEN_CHECK(!state.is_sending && !buffers.empty());
  iovec& first = buffers.front();
  const std::string_view text(static_cast<const char*>(first.iov_base), first.iov_len);
  const size_t head_bytes = text.find(kEmptyLine) + kEmptyLine.size();
  LUMEN_CHECK(head_bytes <= text.size());
  first.iov_base = static_cast<char*>(first.iov_base) + head_bytes;
  first.iov_len -= head_bytes;
  state.reply = first.iov_len == 0 ? buffers.subspan(1) : buffers;
  state.reply_bytes = 0;
  for (const iovec& piece : state.reply) state.reply_bytes += piece.iov_len;
  state.taken_bytes = 0;
  state.is_sending = true;
  const ReplyFields fields(text.substr(0, head_bytes));
  // Without a body the session has all of it.
  state.is_sent = state.reply_bytes == 0;
  state.is_answered = state.is_sent && !fields.is_interim();
  if (call.is_closed || call.is_over) {  // nobody hears it, as on_sent() will say
    state.is_sent = false;
  } else {
    call.connection->submit_reply(call, fields.fields(), !state.is_sent, fields.is_interim());
  }
  host_.flush_later(*call.connection);
  make_ready(stream);
}

uint64_t HttpStreams::sent_so_far(net::Stream& stream) noexcept {
  return stream.state<State>().taken_bytes;
}

// A reply says itself where it ends. A request that is not at its end by then is read on for a
// while: clients were seen to forget the reply when their request is reset (curl 7.88).
bool HttpStreams::end_sending(net::Stream& stream) noexcept {
  const CallStream& call = *stream.state<State>().call;
  return !call.has_ended && !call.is_closed;
}

bool HttpStreams::had_unread(net::Stream& stream) noexcept {
  return !stream.state<State>().call->backlog.is_empty();
}

std::optional<PeerCredentials> HttpStreams::peer_credentials(net::Stream& stream) noexcept {
  const GrpcConnection& connection = *stream.state<State>().call->connection;
  net::Stream* const carrier = connection.stream();
  return carrier != nullptr ? connection.loop().peer_credentials(*carrier) : std::nullopt;
}

std::optional<sockaddr_storage> HttpStreams::own_address(net::Stream& stream) noexcept {
  const GrpcConnection& connection = *stream.state<State>().call->connection;
  net::Stream* const carrier = connection.stream();
  return carrier != nullptr ? connection.loop().own_address(*carrier) : std::nullopt;
}

}  // namespace lumen::grpc
