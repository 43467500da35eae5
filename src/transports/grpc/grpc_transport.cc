// Connections that come, calls that come back, timeouts, drain. See the header.
#include "transports/grpc/grpc_transport.h"

#include <lumen/base/cache_line.h>
#include <lumen/base/check.h>
#include <lumen/base/clock.h>
#include <lumen/service/failure_reason.h>
#include <lumen/transports/grpc/memory_limits.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace lumen::grpc {
namespace {

// nghttp2's memory of one connection: its tables, buffers and streams. Virtual until touched.
constexpr size_t kSessionBytes = size_t{256} << 10;
constexpr size_t kBufferBytes = GrpcConnection::kBufferBytes;
// A connection that was given back is free once its calls are back from the engine.
constexpr size_t kSpareConnections = 64;

size_t requests_of(const Options& options) noexcept {
  return options.max_active_requests + kSpareRequests;
}

// Beside the calls at work each connection may keep one open: a stream of inference, or Watch.
size_t calls_of(const Options& options) noexcept {
  return requests_of(options) + options.max_connections;
}

}  // namespace

nghttp2_session_callbacks* make_callbacks() noexcept;  // grpc_connection.cc

Result<std::unique_ptr<transports::Transport>> make_transport(
    const Services& services, const transports::ThreadServices& thread) {
  auto host = std::make_unique<GrpcTransport>(services, thread);
  LUMEN_RETURN_IF_ERROR(host->create());
  return std::unique_ptr<transports::Transport>(std::move(host));
}

GrpcTransport::GrpcTransport(const Services& services, const transports::ThreadServices& thread)
    : services_(services),
      thread_(thread),
      no_room_(Status::error(Code::kNoMemory,
                             "no memory for this request: max_active_requests or "
                             "max_memory_bytes is used up by others; try again")),
      backlog_budget_(services.options.max_backlog_bytes),
      idle_(services.options.idle_ns),
      writing_(services.options.write_stall_ns),
      receiving_(services.options.body_period_ns),
      stalled_(services.options.write_stall_ns),
      shares_(requests_of(services.options)),
      returned_(std::bit_ceil(requests_of(services.options))) {}

GrpcTransport::~GrpcTransport() {
  nghttp2_session_callbacks_del(callbacks_);
  nghttp2_option_del(options_);
}

Status GrpcTransport::create() {
  const Options& options = services_.options;
  thread_.memory.add(*this);
  const size_t connections = options.max_connections + kSpareConnections;
  LUMEN_RETURN_IF_ERROR(session_memory_.create(connections * kSessionBytes));
  Result<RequestMemory> buffers = RequestMemory::create(connections * kBufferBytes + kPageBytes);
  if (!buffers.ok()) return buffers.status();
  buffers_ = std::move(*buffers);
  callbacks_ = make_callbacks();
  if (callbacks_ == nullptr || nghttp2_option_new(&options_) != 0) {
    return Status::error(Code::kNoMemory, "no memory for nghttp2's callbacks");
  }
  nghttp2_option_set_no_auto_window_update(options_, 1);
  // Not touched before a connection uses its part.
  auto* const all = static_cast<char*>(buffers_.allocate(connections * kBufferBytes, kCacheLine));
  LUMEN_CHECK(all != nullptr);
  for (size_t i = 0; i < connections; ++i) {
    const std::span<char> room(all + i * kBufferBytes, kBufferBytes);
    connections_.push_back(std::make_unique<GrpcConnection>(*this, room));
    connections_.back()->next_free = std::exchange(free_connections_, connections_.back().get());
  }
  LUMEN_RETURN_IF_ERROR(create_calls());
  for (size_t i = 0; i < requests_of(options); ++i) {
    auto request = std::make_unique<Request>(*this);
    Result<RequestMemory> memory =
        RequestMemory::create(most_request_bytes(options.max_message_bytes));
    if (!memory.ok()) return memory.status();
    request->memory = std::move(*memory);
    if (!request->memory.charge_to(thread_.memory.budget(), kRequestBaseBytes)) {
      return Status::error(Code::kTooLarge,
                           "max_memory_bytes: the %zu bytes of an I/O thread have no room for a "
                           "page of each request of gRPC; raise it, or lower max_active_requests",
                           thread_.memory.budget().total_bytes());
    }
    request->reset();
    request->next = std::exchange(free_, request.get());
    requests_.push_back(std::move(request));
  }
  return {};
}

Status GrpcTransport::create_calls() {
  const size_t count = calls_of(services_.options);
  Result<RequestMemory> calls = RequestMemory::create(count * sizeof(CallStream) + kPageBytes);
  if (!calls.ok()) return calls.status();
  calls_memory_ = std::move(*calls);
  Result<RequestMemory> backlogs = RequestMemory::create((count + 1) * kBacklogBytes);
  if (!backlogs.ok()) return backlogs.status();
  backlogs_ = std::move(*backlogs);
  rooms_ = {static_cast<char*>(backlogs_.allocate(count * kBacklogBytes, kPageBytes)),
            count * kBacklogBytes};
  LUMEN_CHECK(rooms_.data() != nullptr);
  return {};
}

CallStream* GrpcTransport::acquire_call() noexcept {
  if (CallStream* const call = free_calls_; call != nullptr) {
    free_calls_ = std::exchange(call->next, nullptr);
    return call;
  }
  if (calls_made_ == calls_of(services_.options)) {
    (void)no_room();
    return nullptr;
  }
  void* const place = calls_memory_.allocate(sizeof(CallStream), alignof(CallStream));
  LUMEN_CHECK(place != nullptr);
  auto* const call = ::new (place) CallStream();
  call->backlog.use(rooms_.subspan(calls_made_++ * kBacklogBytes, kBacklogBytes),
                    {backlog_budget_, thread_.memory});
  return call;
}

void GrpcTransport::release(CallStream& call) noexcept {
  call.reset();
  call.next = std::exchange(free_calls_, &call);
}

void GrpcTransport::wait_for_request(CallStream& call) noexcept {
  if (std::exchange(call.is_waiting, true)) return;
  call.next_waiting = nullptr;
  (first_waiting_ == nullptr ? first_waiting_ : last_waiting_->next_waiting) = &call;
  last_waiting_ = &call;
  // One that has got no further has no more time.
  if (!call.timeout.linked()) receiving_.start(call.timeout, coarse_now_ns());
}

void GrpcTransport::stop_waiting(CallStream& call) noexcept {
  if (!std::exchange(call.is_waiting, false)) return;
  CallStream* before = nullptr;
  for (CallStream* one = first_waiting_; one != &call; one = one->next_waiting) before = one;
  (before == nullptr ? first_waiting_ : before->next_waiting) = call.next_waiting;
  if (last_waiting_ == &call) last_waiting_ = before;
  call.next_waiting = nullptr;
}

// Each stream takes a message in its turn, so that none of them takes all requests.
size_t GrpcTransport::serve_waiting() noexcept {
  size_t done = http_streams_.run();
  has_freed_ = false;
  for (size_t before = SIZE_MAX; before != done;) {
    before = done;
    const CallStream* const last = last_waiting_;
    for (bool is_last = last == nullptr; !is_last && first_waiting_ != nullptr;) {
      CallStream& call = *first_waiting_;
      if (call.blocked == nullptr && free_ == nullptr) break;
      is_last = &call == last;
      stop_waiting(call);
      done += call.connection->resume(call) ? 1 : 0;
    }
  }
  flush_all();
  return done;
}

bool GrpcTransport::take(net::Loop& loop, net::Stream& stream, std::span<const char> received,
                         bool is_local) noexcept {
  GrpcConnection* const connection = free_connections_;
  if (connection == nullptr || draining_) return false;
  free_connections_ = std::exchange(connection->next_free, nullptr);
  ++open_;
  thread_.counters.add("http2_connections_open");
  if (connection->open(loop, stream, received, is_local)) return true;
  connection_closed(*connection);
  return false;
}

void GrpcTransport::connection_closed(GrpcConnection& connection) noexcept {
  --open_;
  thread_.counters.subtract("http2_connections_open");
  connection.next_free = std::exchange(free_connections_, &connection);
}

Request* GrpcTransport::acquire() noexcept {
  Request* const request = free_;
  if (request == nullptr) return nullptr;
  thread_.counters.add("requests");
  thread_.counters.add("grpc_requests");
  free_ = std::exchange(request->next, nullptr);
  return request;
}

void GrpcTransport::release(Request& request) noexcept {
  has_freed_ = true;
  request.reset();
  request.next = std::exchange(free_, &request);
  if (!thread_.memory.is_awaited()) return;
  request.memory.drop_kept_pages();
  thread_.memory.on_freed();
}

size_t GrpcTransport::drop_kept_pages() noexcept {
  size_t bytes = 0;
  for (Request* idle = free_; idle != nullptr; idle = idle->next) {
    bytes += idle->memory.drop_kept_pages();
  }
  return bytes;
}

size_t GrpcTransport::charged_bytes() const noexcept {
  size_t bytes = 0;
  for (const auto& request : requests_) bytes += request->memory.charged_bytes();
  return bytes;
}

bool GrpcTransport::submit(Request& request) noexcept {
  LUMEN_CHECK(!request.is_away);
  if (!thread_.dispatcher.submit(request.call)) return false;
  ++away_;
  request.is_away = true;
  return true;
}

void GrpcTransport::ask(Request& request, service::JobThread& thread) noexcept {
  LUMEN_CHECK(!request.is_away);
  ++away_;
  request.is_away = request.is_job = true;
  thread.submit(request.job);
}

void GrpcTransport::cancel(Request& request) noexcept {
  if (!request.is_job) thread_.dispatcher.cancel(request.call);
}

// The message is there; memory for the rest of the call is reserved, so that no run is in vain.
bool GrpcTransport::take(service::Call& call, const service::ModelNeed& need,
                         const service::BodySize&) noexcept {
  auto& request = static_cast<Request&>(*call.owner);
  const models::Model& model = *call.infer.model;
  is_short_ = false;
  if (thread_.intake.catalog().models.size() > 1 && !shares_.has_call_share(model)) return false;
  const size_t all =
      need.of({.binary_bytes = request.message_bytes, .may_want_text = false}).all_bytes();
  const size_t rest = all - std::min(all, request.message_bytes);
  is_short_ = !thread_.memory.take([&]() noexcept { return request.memory.reserve(rest); });
  if (is_short_) return false;
  shares_.begin(model, 0);
  request.room_of = &model;
  return true;
}

const Status& GrpcTransport::no_room() noexcept {
  thread_.counters.add("memory_refused");
  return no_room_;
}

void GrpcTransport::post(Request& request) noexcept {
  // The ring has a place for every request there is, so it can't be full.
  LUMEN_CHECK(returned_.try_push(&request));
}

size_t GrpcTransport::take_returned() noexcept {
  size_t done = 0;
  for (Request* request = nullptr; returned_.try_pop(request); ++done) {
    if (!request->is_job && !thread_.dispatcher.take_back(request->call)) continue;
    --away_;
    request->is_away = false;
    const CallStream& call = *request->stream;
    GrpcConnection& connection = *call.connection;
    if (call.is_closed || call.is_over) {
      connection.forget(*request);
      continue;
    }
    const Status status = handler_.on_returned(*request);
    if (!status.ok()) connection.refuse(*request, status);
  }
  flush_all();
  return done;
}

void GrpcTransport::count_refusal(int http_status, bool is_call) noexcept {
  thread_.counters.add("requests");
  is_call ? thread_.counters.add("grpc_requests") : thread_.counters.add("http2_requests");
  count_reply(http_status);
}

void GrpcTransport::count_reply(int http_status) noexcept {
  using telemetry::ServerCounter;
  thread_.counters.add(http_status < 400   ? ServerCounter("responses_2xx")
                       : http_status < 500 ? ServerCounter("responses_4xx")
                                           : ServerCounter("responses_5xx"));
}

// Once a request: its reply has left, or its client.
void GrpcTransport::end_request(Request& request) noexcept {
  const models::InferRequest& infer = request.call.infer;
  const int status = request.status != 0 ? request.status : 499;
  count_reply(status);
  if (infer.model != nullptr) {
    const service::ReplyMoment out = service::ReplyMoment::now();
    if (status >= 400) {
      const Code code = request.status != 0 ? infer.status.code() : Code::kCancelled;
      thread_.counters.add_time(infer.model->index(), "failure",
                                out.now_ns - infer.times.received_ns);
      thread_.counters.add(infer.model->index(), service::failure_reason(code));
    }
    thread_.recorder.record(request.call, telemetry::TransportKind::kGrpc, status,
                            request.head.id.value_or(""), out);
  }
  if (request.room_of != nullptr) shares_.end(*std::exchange(request.room_of, nullptr), 0);
  thread_.intake.leave(request.call);
}

void GrpcTransport::flush_later(GrpcConnection& connection) noexcept {
  if (std::exchange(connection.has_replies, true)) return;
  connection.next_with_replies = std::exchange(with_replies_, &connection);
}

void GrpcTransport::flush_all() noexcept {
  while (with_replies_ != nullptr) {
    GrpcConnection& connection = *with_replies_;
    with_replies_ = std::exchange(connection.next_with_replies, nullptr);
    connection.has_replies = false;
    connection.flush();
  }
}

uint64_t GrpcTransport::next_deadline_ns() noexcept {
  uint64_t next = UINT64_MAX;
  for (net::TimeoutList* list : {&idle_, &writing_, &receiving_, &stalled_}) {
    next = std::min(next, list->next_deadline_ns());
  }
  return next;
}

void GrpcTransport::end_turn(uint64_t now_ns) noexcept {
  while (net::TimeoutEntry* const entry = receiving_.take_expired(now_ns)) {
    auto& call = *static_cast<CallStream*>(entry->owner);
    call.connection->on_late(call);
  }
  while (net::TimeoutEntry* const entry = stalled_.take_expired(now_ns)) {
    auto& call = *static_cast<CallStream*>(entry->owner);
    call.connection->on_stalled(call);
  }
  for (net::TimeoutList* list : {&idle_, &writing_}) {
    while (net::TimeoutEntry* const entry = list->take_expired(now_ns)) {
      static_cast<GrpcConnection*>(entry->owner)->on_timeout();
    }
  }
  noticed_ready_ = handler_.is_ready();
  if (told_ready_ != noticed_ready_) tell_health();
  flush_all();
}

void GrpcTransport::tell_health() noexcept {
  const bool is_ready = handler_.is_ready();
  bool is_told = true;
  for (const auto& connection : connections_) is_told = connection->tell_health() && is_told;
  if (is_told) told_ready_ = is_ready;
}

void GrpcTransport::begin_drain() noexcept {
  draining_ = true;
  for (const auto& connection : connections_) connection->begin_drain();
}

void GrpcTransport::close_all() noexcept {
  for (const auto& connection : connections_) connection->close();
}

}  // namespace lumen::grpc
