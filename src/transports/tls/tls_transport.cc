// See the header.
#include "transports/tls/tls_transport.h"

#include <lumen/base/check.h>
#include <lumen/base/clock.h>

#include <utility>

namespace lumen::tls {
namespace {

// A closed connection's object is free only once the loop has let go of it, which takes a turn.
constexpr size_t kSpareConnections = 64;
// For a client that does not take the last bytes: it has the rest in its socket.
constexpr uint64_t kGoodbyeNs = 1'000'000'000;

}  // namespace

Result<std::unique_ptr<transports::Transport>> make_transport(
    const Services& services, const transports::ThreadServices& thread) {
  auto host = std::make_unique<TlsTransport>(services, thread);
  LUMEN_RETURN_IF_ERROR(host->create());
  return std::unique_ptr<transports::Transport>(std::move(host));
}

TlsTransport::TlsTransport(const Services& services, const transports::ThreadServices& thread)
    : services_(services),
      thread_(thread),
      scratch_(Cipher::kPlainBytes),
      handshakes_(services.options.handshake_timeout_ns),
      goodbyes_(kGoodbyeNs) {}

Status TlsTransport::create() {
  const size_t count = services_.options.max_connections + kSpareConnections;
  for (size_t i = 0; i < count; ++i) {
    TlsConnection& connection = connections_.emplace_back(*this);
    connection.next_free = std::exchange(free_, &connection);
  }
  Result<Mapping> memory = Mapping::create(count * TlsConnection::kBufferBytes);
  if (!memory.ok()) return memory.status();
  memory_ = std::move(*memory);
  free_buffers_.reserve(count);
  auto* const begin = reinterpret_cast<char*>(memory_.bytes().data());
  for (size_t i = count; i > 0; --i) {
    free_buffers_.push_back(begin + (i - 1) * TlsConnection::kBufferBytes);
  }
  return {};
}

bool TlsTransport::on_accepted(net::Socket socket) noexcept {
  TlsConnection* const connection = free_;
  // The handshake that stands still for longest makes room for the next one.
  if (connection == nullptr && handshakes_.oldest() != nullptr) {
    static_cast<TlsConnection*>(handshakes_.oldest()->owner)->close_now();
  }
  if (connection == nullptr || draining_ || taker_ == nullptr) {
    thread_.counters.add("connections_refused");
    return false;
  }
  free_ = std::exchange(connection->next_free, nullptr);
  ++open_;
  connection->open(socket);
  return true;
}

void TlsTransport::on_accept_failed(int error_number) noexcept {
  (void)error_number;  // EMFILE and its like: the loop has refused the connection
  thread_.counters.add("connections_refused");
}

Status TlsTransport::add(net::Stream& stream, net::Socket) noexcept {
  LUMEN_CHECK(arriving_ != nullptr);
  stream.begin<TlsConnection*>(std::move(arriving_));
  std::exchange(arriving_, nullptr)->bind(stream);
  return {};
}

Status TlsTransport::add(net::Listener&) noexcept {
  return Status::error(Code::kUnsupported, "the loop '%s' has no listeners", name());
}

bool TlsTransport::pass_on(TlsConnection& connection) noexcept {
  arriving_ = &connection;
  const bool is_taken = taker_->accept(*this, net::Socket{}, false);
  return std::exchange(arriving_, nullptr) == nullptr && is_taken;
}

std::span<char> TlsTransport::take_buffer() noexcept {
  LUMEN_CHECK(!free_buffers_.empty());  // as many as connections
  char* const buffer = free_buffers_.back();
  free_buffers_.pop_back();
  return {buffer, TlsConnection::kBufferBytes};
}

void TlsTransport::give_buffer(std::span<char> buffer) noexcept {
  free_buffers_.push_back(buffer.data());
}

void TlsTransport::submit(TlsConnection& connection) noexcept {
  ++away_;
  services_.handshakes.submit(connection);
}

void TlsTransport::post(TlsConnection& connection) noexcept {
  net::Loop& loop = inner_loop();  // the connection may be gone after the exchange
  connection.next_returned = returned_.load(std::memory_order_relaxed);  // relaxed: looked at again
  // sync[tls.returned]: release of the step's work
  while (!returned_.compare_exchange_weak(connection.next_returned, &connection,
                                          std::memory_order_release, std::memory_order_relaxed)) {
  }
  loop.wake();
}

size_t TlsTransport::take_returned() noexcept {
  // sync[tls.returned]: acquire of the step's work
  TlsConnection* one = returned_.exchange(nullptr, std::memory_order_acquire);
  size_t done = 0;
  while (one != nullptr) {
    TlsConnection* const next = std::exchange(one->next_returned, nullptr);
    --away_;
    ++done;
    one->on_returned();
    one = next;
  }
  return done;
}

void TlsTransport::make_ready(TlsConnection& connection) noexcept {
  if (std::exchange(connection.is_ready, true)) return;
  connection.next_ready = nullptr;
  if (first_ready_ == nullptr) {
    first_ready_ = &connection;
  } else {
    last_ready_->next_ready = &connection;
  }
  last_ready_ = &connection;
}

// Those that become ready meanwhile have their turn in the next call.
size_t TlsTransport::serve_waiting() noexcept {
  size_t done = 0;
  TlsConnection* one = std::exchange(first_ready_, nullptr);
  while (one != nullptr) {
    TlsConnection* const next = std::exchange(one->next_ready, nullptr);
    one->is_ready = false;
    one->run();
    ++done;
    one = next;
  }
  return done;
}

void TlsTransport::end_turn(uint64_t now_ns) noexcept {
  for (net::TimeoutList* list : {&handshakes_, &goodbyes_}) {
    while (net::TimeoutEntry* entry = list->take_expired(now_ns)) {
      static_cast<TlsConnection*>(entry->owner)->close_now();
    }
  }
}

uint64_t TlsTransport::next_deadline_ns() noexcept {
  return std::min(handshakes_.next_deadline_ns(), goodbyes_.next_deadline_ns());
}

void TlsTransport::begin_drain() noexcept {
  draining_ = true;
  for (TlsConnection& one : connections_) one.on_drain();
}

void TlsTransport::close_all() noexcept {
  for (TlsConnection& one : connections_) one.close_now();
}

void TlsTransport::handshake_done(bool is_resumed) noexcept {
  thread_.counters.add("tls_handshakes");
  if (is_resumed) thread_.counters.add("tls_sessions_resumed");
}

void TlsTransport::connection_closed(TlsConnection& connection) noexcept {
  --open_;
  connection.next_free = std::exchange(free_, &connection);
}

}  // namespace lumen::tls
