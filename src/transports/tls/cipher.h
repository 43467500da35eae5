// Cipher: the TLS of one connection, between two buffers and without a socket: bytes of the network
// come in by room() and received(), and go out by to_send() and sent().
// Threads: one at a time. Memory: OpenSSL's, in begin() and handshake(); for each record read() and
// write() allocate and free blocks of 40 bytes there. The buffers are lent. Errors:
// Progress::kFailed; to_send() may have an alert then.
#pragma once

#include <cstddef>
#include <span>

struct ssl_ctx_st;
struct ssl_st;

namespace lumen::tls {

class Cipher {
 public:
  // Plaintext of one record, and the most bytes that the record takes.
  static constexpr size_t kPlainBytes = 16 * 1024;
  static constexpr size_t kRecordBytes = kPlainBytes + 512;
  // For answers to a client's key updates, and alerts.
  static constexpr size_t kSpareBytes = 1024;

  enum class Progress : unsigned char {
    kDone,
    kWantsBytes,  // of the network
    kEnded,       // the client has ended its side
    kFailed,
  };

  Cipher() noexcept = default;
  ~Cipher() { end(); }
  Cipher(const Cipher&) = delete;
  Cipher& operator=(const Cipher&) = delete;

  // False: no memory.
  [[nodiscard]] bool begin(ssl_ctx_st& context) noexcept;
  void end() noexcept;
  [[nodiscard]] bool has_begun() const noexcept { return ssl_ != nullptr; }

  // The buffers, each of kRecordBytes at least; empty ones: given back. Nothing lies in them then.
  void lend(std::span<char> in, std::span<char> out) noexcept;
  [[nodiscard]] bool is_empty() const noexcept { return in_begin_ == in_end_ && out_end_ == 0; }

  [[nodiscard]] Progress handshake() noexcept;
  // Once it is done: whether the client continued a session.
  [[nodiscard]] bool has_resumed() const noexcept;
  // OpenSSL's code of the first error behind the last kFailed; 0: none is known.
  [[nodiscard]] unsigned long error() const noexcept { return error_; }
  // kDone: `got` bytes of plaintext, at least one.
  [[nodiscard]] Progress read(std::span<char> room, size_t& got) noexcept;
  // kDone: read() has something.
  [[nodiscard]] Progress look() noexcept;
  // Whether bytes of the network, or plaintext, wait to be read.
  [[nodiscard]] bool has_unread() const noexcept;
  // Whether write() may be called.
  [[nodiscard]] bool has_room() const noexcept {
    return out_.size() - out_end_ >= kRecordBytes + kSpareBytes;
  }
  // At most kPlainBytes, all of them.
  [[nodiscard]] Progress write(std::span<const char> plain) noexcept;
  // The last that the client hears.
  void say_goodbye() noexcept;

  // Of the network.
  [[nodiscard]] std::span<char> room() noexcept;
  void received(size_t bytes) noexcept { in_end_ += bytes; }
  // No bytes follow.
  void has_ended() noexcept { in_has_ended_ = true; }
  [[nodiscard]] std::span<char> to_send() noexcept { return out_.first(out_end_); }
  // The first of them, which are to leave the buffer.
  void sent(size_t bytes) noexcept;

  // For OpenSSL.
  [[nodiscard]] int take_in(char* data, int size) noexcept;  // 0: nothing is there
  [[nodiscard]] bool in_has_ended() const noexcept { return in_has_ended_; }
  [[nodiscard]] int put_out(const char* data, int size) noexcept;  // 0: no room

 private:
  [[nodiscard]] Progress progress_of(int outcome) noexcept;

  ssl_st* ssl_ = nullptr;
  std::span<char> in_;
  std::span<char> out_;
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  size_t out_end_ = 0;
  unsigned long error_ = 0;
  bool in_has_ended_ = false;
};

}  // namespace lumen::tls
