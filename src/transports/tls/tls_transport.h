// TlsTransport: the connections of TLS of one I/O thread. See the transport's face.
#pragma once

#include "transports/tls/tls_connection.h"

#include <lumen/memory/mapping.h>
#include <lumen/net/timeout_list.h>
#include <lumen/transports/tls/transport.h>

#include <atomic>
#include <deque>
#include <span>
#include <vector>

namespace lumen::tls {

class TlsTransport final : public transports::Transport,
                           public transports::ConnectionGiver,
                           public net::Loop,
                           public net::ListenerHandler {
 public:
  TlsTransport(const Services& services, const transports::ThreadServices& thread);
  [[nodiscard]] Status create();

  // --- Transport ---------------------------------------------------------------------------------
  net::ListenerHandler* acceptor(bool is_local) noexcept override {
    return is_local ? nullptr : this;
  }
  transports::ConnectionGiver* tls() noexcept override { return this; }
  void pass_connections_to(transports::ConnectionTaker& taker) noexcept override {
    taker_ = &taker;
  }
  size_t take_returned() noexcept override;
  size_t serve_waiting() noexcept override;
  bool owes_a_turn() const noexcept override { return first_ready_ != nullptr; }
  bool is_waiting() const noexcept override { return away_ > 0; }
  void end_turn(uint64_t now_ns) noexcept override;
  uint64_t next_deadline_ns() noexcept override;
  void begin_drain() noexcept override;
  void close_all() noexcept override;
  bool is_empty() const noexcept override { return open_ == 0; }

  // --- ListenerHandler ---------------------------------------------------------------------------
  bool on_accepted(net::Socket socket) noexcept override;
  void on_accept_failed(int error_number) noexcept override;

  // --- Loop, of the outer streams ----------------------------------------------------------------
  const char* name() const noexcept override { return "TLS"; }
  Status add(net::Stream& stream, net::Socket socket) noexcept override;
  void close(net::Stream& stream, Closing how) noexcept override { of(stream).close(how); }
  void wait_readable(net::Stream& stream) noexcept override { of(stream).wait_readable(); }
  void receive(net::Stream& stream, std::span<iovec> buffers) noexcept override {
    of(stream).receive(buffers);
  }
  void drop(net::Stream& stream, std::span<iovec> buffers) noexcept override {
    of(stream).receive(buffers);  // decrypted in any case, and so is written somewhere
  }
  void cancel_receive(net::Stream& stream) noexcept override { of(stream).cancel_receive(); }
  void send(net::Stream& stream, std::span<iovec> buffers) noexcept override {
    of(stream).send(buffers);
  }
  uint64_t sent_so_far(net::Stream& stream) noexcept override { return of(stream).sent_so_far(); }
  bool look_now(net::Stream& stream) noexcept override { return of(stream).look_now(); }
  bool end_sending(net::Stream& stream) noexcept override { return of(stream).end_sending(); }
  void limit_unsent_time(net::Stream& stream, uint64_t ns) noexcept override {
    inner_loop().limit_unsent_time(of(stream).inner(), ns);
  }
  bool had_unread(net::Stream& stream) noexcept override { return of(stream).had_unread(); }
  bool had_unsent(net::Stream& stream) noexcept override {
    return inner_loop().had_unsent(of(stream).inner());
  }
  std::optional<PeerCredentials> peer_credentials(net::Stream&) noexcept override {
    return std::nullopt;
  }
  std::optional<sockaddr_storage> own_address(net::Stream& stream) noexcept override {
    return inner_loop().own_address(of(stream).inner());
  }
  void give_back(std::span<char>) noexcept override {}  // it lends none
  Status add(net::Listener&) noexcept override;
  void remove(net::Listener&) noexcept override {}
  size_t run_once(uint64_t) noexcept override { return serve_waiting(); }
  void wake() noexcept override { inner_loop().wake(); }
  uint64_t last_turn_ns() const noexcept override { return thread_.loop.last_turn_ns(); }
  uint64_t wakeups() const noexcept override { return 0; }

  // --- for connections ---------------------------------------------------------------------------
  [[nodiscard]] net::Loop& inner_loop() noexcept { return thread_.loop; }
  [[nodiscard]] std::span<char> take_buffer() noexcept;
  void give_buffer(std::span<char> buffer) noexcept;
  // For small pieces of plaintext that go into one record.
  [[nodiscard]] std::span<char> scratch() noexcept { return scratch_; }
  void submit(TlsConnection& connection) noexcept;
  // Its step is done. By the thread of Handshakes.
  void post(TlsConnection& connection) noexcept;
  void make_ready(TlsConnection& connection) noexcept;
  // False: it can't be served.
  [[nodiscard]] bool pass_on(TlsConnection& connection) noexcept;
  [[nodiscard]] net::TimeoutList& handshakes() noexcept { return handshakes_; }
  [[nodiscard]] net::TimeoutList& goodbyes() noexcept { return goodbyes_; }
  void handshake_done(bool is_resumed) noexcept;
  void handshake_failed() noexcept { thread_.counters.add("tls_handshakes_failed"); }
  void connection_closed(TlsConnection& connection) noexcept;

 private:
  [[nodiscard]] static TlsConnection& of(net::Stream& stream) noexcept {
    return *stream.state<TlsConnection*>();
  }

  const Services services_;
  const transports::ThreadServices thread_;
  transports::ConnectionTaker* taker_ = nullptr;
  std::deque<TlsConnection> connections_;  // a deque, since they must not move
  TlsConnection* free_ = nullptr;
  size_t open_ = 0;
  size_t away_ = 0;
  Mapping memory_;
  std::vector<char*> free_buffers_;  // the one that was used last is taken first
  std::vector<char> scratch_;
  TlsConnection* first_ready_ = nullptr;
  TlsConnection* last_ready_ = nullptr;
  std::atomic<TlsConnection*> returned_{nullptr};
  TlsConnection* arriving_ = nullptr;  // the one that add() is called for
  net::TimeoutList handshakes_;
  net::TimeoutList goodbyes_;
  bool draining_ = false;
};

}  // namespace lumen::tls
