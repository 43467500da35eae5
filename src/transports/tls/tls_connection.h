// TlsConnection: one connection of TLS: the network on its inner side, plaintext on the outer one.
//
//   waiting ─► away (a step of the handshake) ─► waiting | open | failing ─► closing ─► free
//
// Buffers are the connection's while bytes of it lie in them or are on their way: an idle one has
// none. An operation of the outer side never calls its handler; a result that is there at once is
// told by run() or, inside the handler of another result, after that.
// Threads: its I/O thread; a step of the handshake is the thread's of Handshakes. Memory: buffers
// from its transport. Errors: results < 0 of the outer stream's operations.
#pragma once

#include "transports/tls/cipher.h"

#include <lumen/net/loop.h>
#include <lumen/net/timeout_list.h>
#include <lumen/transports/tls/handshakes.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace lumen::tls {

class TlsTransport;

class TlsConnection final : public net::StreamHandler, public HandshakeJob {
 public:
  static constexpr size_t kInBytes = size_t{64} << 10;
  static constexpr size_t kOutBytes = (size_t{64} << 10) + 4 * 512 + Cipher::kSpareBytes;
  static constexpr size_t kBufferBytes = kInBytes + kOutBytes;

  explicit TlsConnection(TlsTransport& host) noexcept : host_(host) { timeout_.owner = this; }
  TlsConnection(const TlsConnection&) = delete;
  TlsConnection& operator=(const TlsConnection&) = delete;

  void open(net::Socket socket) noexcept;
  // The handshake took too long, or the client does not take the goodbye.
  void close_now() noexcept;
  // A step of its handshake is back.
  void on_returned() noexcept;
  // Ends a handshake.
  void on_drain() noexcept;
  // Tells results that are there.
  void run() noexcept;

  // By the thread of Handshakes.
  unsigned long run(const Certificates& certificates) noexcept override;

  // --- the outer side: as net::Loop --------------------------------------------------------------
  void bind(net::Stream& outer) noexcept { outer_ = &outer; }
  void close(net::Loop::Closing how) noexcept;
  void wait_readable() noexcept;
  void receive(std::span<iovec> buffers) noexcept;
  void cancel_receive() noexcept;
  void send(std::span<iovec> buffers) noexcept;
  [[nodiscard]] uint64_t sent_so_far() const noexcept { return plain_taken_; }
  [[nodiscard]] bool look_now() noexcept;
  [[nodiscard]] bool end_sending() noexcept;
  [[nodiscard]] bool had_unread() noexcept;
  [[nodiscard]] net::Stream& inner() noexcept { return inner_; }

  // --- the inner side ----------------------------------------------------------------------------
  void on_readable(net::Stream& stream, std::span<char> lent) noexcept override;
  void on_received(net::Stream& stream, int64_t result) noexcept override;
  void on_sent(net::Stream& stream, int64_t result) noexcept override;
  void on_gone(net::Stream& stream) noexcept override;
  void on_closed(net::Stream& stream) noexcept override;

  TlsConnection* next_free = nullptr;   // in its transport's pool
  TlsConnection* next_ready = nullptr;  // of those that run() visits
  TlsConnection* next_returned = nullptr;
  bool is_ready = false;

 private:
  enum class State : uint8_t {
    kFree,
    kWaiting,  // for bytes of the handshake
    kAway,     // a step of it is with the thread, and the buffers too
    kOpen,
    kLeaving,  // the last bytes are on their way
    kClosing,  // until the loop has let go of it, and OpenSSL's memory is freed
  };
  enum class Receiving : uint8_t { kNothing, kWaits, kFills };
  enum class Wanted : uint8_t { kNothing, kReadable, kData, kCancelled };

  void take_buffers() noexcept;
  void give_buffers_up() noexcept;
  void begin_step() noexcept;
  void begin_serving() noexcept;
  // Closes it once all bytes are out.
  void leave() noexcept;
  void close_inner(net::Loop::Closing how) noexcept;
  void receive_more() noexcept;
  void receive_into_buffer() noexcept;
  void came_in(int64_t result) noexcept;
  void flush() noexcept;
  [[nodiscard]] bool is_flushed() noexcept {
    return !is_sending_inner_ && cipher_.to_send().empty();
  }
  void encrypt() noexcept;
  // At most Cipher::kPlainBytes of the send in flight, in one piece.
  [[nodiscard]] std::span<const char> next_plain() noexcept;
  void take_plain(size_t bytes) noexcept;
  // Tells the outer side as long as there is something to tell.
  void tell() noexcept;
  [[nodiscard]] bool tell_received() noexcept;
  [[nodiscard]] int64_t read_some() noexcept;
  void after_closed() noexcept;

  TlsTransport& host_;
  net::Stream inner_{this};
  net::Stream* outer_ = nullptr;
  Cipher cipher_;
  Cipher::Progress step_ = Cipher::Progress::kWantsBytes;
  net::TimeoutEntry timeout_;
  std::span<char> buffers_;
  iovec in_segment_{};
  iovec out_segment_{};
  std::span<iovec> wanted_buffers_;
  std::span<iovec> plain_;  // what is left of the send in flight
  uint64_t plain_taken_ = 0;
  int64_t broken_ = 0;  // < 0: no more bytes can move
  State state_ = State::kFree;
  Wanted wanted_ = Wanted::kNothing;
  bool in_loop_ = false;
  Receiving receiving_ = Receiving::kNothing;  // inner
  bool is_sending_inner_ = false;
  bool is_sending_ = false;    // outer
  bool ends_sending_ = false;  // once all is out
  bool has_said_goodbye_ = false;
  bool is_telling_ = false;
  bool is_over_ = false;      // the outer side has closed it
  bool is_step_due_ = false;  // once the bytes of the last one are out
  bool is_ending_ = false;    // the job is to free OpenSSL's memory
  bool closes_on_return_ = false;
  bool knows_it_is_gone_ = false;
};

}  // namespace lumen::tls
