// Accepting, calls that come back, timeouts, drain. See the header.
#include "transports/http/http_transport.h"

#include <lumen/base/check.h>
#include <lumen/base/clock.h>

#include <algorithm>
#include <bit>
#include <ctime>
#include <utility>

namespace lumen::http {
namespace {

// A closed connection's object is free only once the loop has let go of it, which takes a turn; a
// turn accepts no more than this many.
constexpr size_t kSpareConnections = 64;
constexpr size_t kScratchBytes = 64 * 1024;
// While connections wait for a context: how often it is looked whether replies move.
constexpr uint64_t kLookForWaysNs = 1'000'000;

}  // namespace

Result<std::unique_ptr<transports::Transport>> make_transport(
    const Services& services, const transports::ThreadServices& thread) {
  auto host = std::make_unique<HttpTransport>(services, thread);
  LUMEN_RETURN_IF_ERROR(host->create());
  return std::unique_ptr<transports::Transport>(std::move(host));
}

HttpTransport::HttpTransport(const Services& services, const transports::ThreadServices& thread)
    : services_(services),
      thread_(thread),
      timeouts_(services.options.timeouts),
      contexts_(services.options, services.backends, timeouts_, thread),
      scratch_(kScratchBytes),
      returned_(std::bit_ceil(ContextPool::contexts_of(services.options))) {
  scratch_segments_.fill({scratch_.data(), scratch_.size()});
}

Status HttpTransport::create() {
  const size_t carried = ContextPool::contexts_of(services_.options);
  const size_t count = services_.options.max_connections + carried + kSpareConnections;
  for (size_t i = 0; i < count; ++i) {
    HttpConnection& connection = connections_.emplace_back(*this);
    connection.next_free = std::exchange(free_, &connection);
  }
  if (thread_.http2 != nullptr) thread_.http2->pass_requests_to(*this);
  if (thread_.tls != nullptr) thread_.tls->pass_connections_to(*this);
  return contexts_.create(*this);
}

bool HttpTransport::accept(net::Loop& loop, net::Socket socket, bool is_local) noexcept {
  counters().add("connections_accepted");
  // The oldest idle connection makes room; where all are busy the new one is refused.
  const size_t limit = services_.options.max_connections;
  net::TimeoutEntry* oldest = timeouts_.idle.oldest();
  if (open_ >= limit && oldest != nullptr) static_cast<HttpConnection*>(oldest->owner)->close();
  if (open_ >= limit || free_ == nullptr) {
    counters().add("connections_refused");
    return false;
  }
  HttpConnection* connection = free_;
  free_ = std::exchange(connection->next_free, nullptr);
  ++open_;
  counters().add("connections_open");
  connection->open(loop, socket, {.is_local = is_local, .is_carried = false});
  return true;
}

// A request that comes by HTTP/2: no more of them than can be served at once, so that connections
// have theirs.
bool HttpTransport::take(net::Loop& loop, net::Socket socket, bool is_local) noexcept {
  const size_t limit = ContextPool::contexts_of(services_.options);
  if (carried_ >= limit) {
    // Makes room for the next one: one that was answered, whose client goes on sending.
    net::TimeoutEntry* const oldest = timeouts_.linger.oldest();
    auto* const lingers = oldest != nullptr ? static_cast<HttpConnection*>(oldest->owner) : nullptr;
    if (lingers != nullptr && lingers->is_carried()) lingers->close();
    return false;
  }
  HttpConnection* const connection = free_;
  if (connection == nullptr) return false;
  free_ = std::exchange(connection->next_free, nullptr);
  ++carried_;
  connection->open(loop, socket, {.is_local = is_local, .is_carried = true});
  return true;
}

void HttpTransport::Acceptor::on_accept_failed(int error_number) noexcept {
  (void)error_number;  // EMFILE and its like: the loop has refused the connection
  host.counters().add("connections_refused");
}

void HttpTransport::connection_closing(const HttpConnection& connection) noexcept {
  ++closing_;
  if (connection.is_carried()) {
    --carried_;
    return;
  }
  --open_;
  counters().subtract("connections_open");
}

void HttpTransport::connection_closed(HttpConnection& connection) noexcept {
  --closing_;
  connection.next_free = free_;
  free_ = &connection;
}

void HttpTransport::post(RequestContext& context) noexcept {
  // The ring has a place for every context there is, so it can't be full.
  LUMEN_CHECK(returned_.try_push(&context));
}

size_t HttpTransport::take_returned() noexcept {
  size_t done = 0;
  RequestContext* context = nullptr;
  while (returned_.try_pop(context)) {
    ++done;
    LUMEN_CHECK(context->is_away);  // it comes back once
    // The call of a reply that was compressed has come back before.
    if (!context->is_compressing && !thread_.dispatcher.take_back(context->call)) continue;
    --away_;
    context->is_away = false;
    context->connection->on_returned();
  }
  return done;
}

bool HttpTransport::submit(RequestContext& context) noexcept {
  LUMEN_CHECK(!context.is_away);
  if (!thread_.dispatcher.submit(context.call)) return false;
  ++away_;
  context.is_away = true;
  return true;
}

Next HttpTransport::ask(RequestContext& context, service::JobThread& thread,
                        std::string_view text) noexcept {
  ++away_;
  context.is_away = true;
  context.job.text = text;
  thread.submit(context.job);
  return Next::kAway;
}

bool HttpTransport::compress(RequestContext& context) noexcept {
  LUMEN_CHECK(!context.is_away);
  if (!services_.compressor->submit(context.compression)) return false;
  ++away_;
  context.is_away = true;
  context.is_compressing = true;
  return true;
}

// Bodies that were not inflated within one turn go on, each a piece.
size_t HttpTransport::serve_waiting() noexcept {
  size_t done = contexts_.serve_waiting();
  ++turn_;
  for (;;) {
    net::TimeoutEntry* const entry = timeouts_.inflating.oldest();
    if (entry == nullptr) return done;
    auto& connection = *static_cast<HttpConnection*>(entry->owner);
    if (connection.inflated_in_turn() == turn_) return done;
    connection.inflate_on();
    ++done;
  }
}

std::string_view HttpTransport::http_date() noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);  // 3 ns; the value changes once a second
  if (now.tv_sec != date_seconds_) {
    date_seconds_ = now.tv_sec;
    wire::write_http_date(std::span<char, wire::kDateBytes>(date_), date_seconds_);
  }
  return {date_.data(), date_.size()};
}

uint64_t HttpTransport::next_deadline_ns() noexcept {
  uint64_t next = UINT64_MAX;
  for (net::TimeoutList* list : timeouts_.all()) next = std::min(next, list->next_deadline_ns());
  if (contexts_.is_awaited()) next = std::min(next, now_ns() + kLookForWaysNs);
  return next;
}

void HttpTransport::end_turn(uint64_t now_ns) noexcept {
  for (net::TimeoutList* list : timeouts_.all()) {
    while (net::TimeoutEntry* entry = list->take_expired(now_ns)) {
      static_cast<HttpConnection*>(entry->owner)->on_timeout();
    }
  }
  contexts_.show_memory();
}

void HttpTransport::check_at_rest() const noexcept {
  LUMEN_CHECK(away_ == 0 && open_ == 0 && carried_ == 0 && closing_ == 0);
  contexts_.check_at_rest();
}

void HttpTransport::begin_drain() noexcept {
  draining_ = true;
  for (HttpConnection& connection : connections_) connection.on_drain();
}

void HttpTransport::close_all() noexcept {
  for (HttpConnection& connection : connections_) connection.close();
}

}  // namespace lumen::http
