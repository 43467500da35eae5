// ClientConnection: one connection of a load thread as a state machine: connect, send, receive.
// Requests of HTTP/1.1, or calls of gRPC.
// Threads: its load thread alone. Memory: 64 KiB, made with it and touched only as far as replies
// need; a reply's body is counted, not kept.
// Errors: Step::kFailed, with failure() and error_text().
#pragma once

#include <lumen/client/client_socket.h>
#include <lumen/client/reply_head.h>
#include <lumen/client/tally.h>
#include <lumen/client/target.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lumen::client {

class GrpcCodec;

enum class Step : uint8_t { kPending, kReplied, kFailed };

class ClientConnection {
 public:
  // Epoll's events carry `tag`.
  ClientConnection(const Target& target, int epoll_fd, void* tag, uint64_t timeout_ns);
  ~ClientConnection();
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  // Sends `request`, which outlives the reply; connects first where there is no connection.
  [[nodiscard]] Step begin(std::string_view request) noexcept;
  // Epoll reported this connection: goes on as far as it can.
  [[nodiscard]] Step advance() noexcept;
  // Ends the connection; the next begin() makes another.
  void close() noexcept;

  [[nodiscard]] bool is_busy() const noexcept { return state_ != State::kIdle; }
  // When begin() was called, and when its connection stood, with TLS after the handshake: the same
  // where it stood already.
  [[nodiscard]] uint64_t began_ns() const noexcept { return began_ns_; }
  [[nodiscard]] uint64_t connected_ns() const noexcept { return connected_ns_; }
  [[nodiscard]] bool connected_anew() const noexcept { return connected_anew_; }

  // After kReplied.
  [[nodiscard]] int status() const noexcept { return head_.status; }
  [[nodiscard]] std::optional<uint64_t> retry_after_s() const noexcept {
    return head_.retry_after_s;
  }
  [[nodiscard]] uint64_t reply_bytes() const noexcept { return reply_bytes_; }
  // The beginning of a reply that fitted the buffer with its head: for error messages.
  [[nodiscard]] std::string_view reply_start() const noexcept { return {buffer_.get(), kept_}; }
  // After kFailed.
  [[nodiscard]] Failure failure() const noexcept { return failure_; }
  [[nodiscard]] std::string error_text() const;

 private:
  static constexpr size_t kBufferBytes = 64 * 1024;
  enum class State : uint8_t { kIdle, kConnecting, kShaking, kBusy };

  Step connect_now() noexcept;
  Step finish_connecting() noexcept;
  Step shake_hands() noexcept;
  Step send_rest() noexcept;
  Step receive() noexcept;
  Step take(size_t bytes) noexcept;
  // The same over gRPC.
  Step send_frames() noexcept;
  Step take_frames(size_t bytes) noexcept;
  Step idle_frames() noexcept;
  Step fail(Failure failure, int error, std::string_view reason) noexcept;

  const Target* target_;
  int epoll_fd_;
  void* tag_;
  uint64_t timeout_ns_;
  std::unique_ptr<char[]> buffer_;
  std::unique_ptr<GrpcCodec> grpc_;  // nullptr: it speaks HTTP/1.1
  ClientSocket socket_;
  State state_ = State::kIdle;
  std::string_view request_;
  size_t sent_ = 0;
  size_t kept_ = 0;           // bytes in buffer_
  uint64_t reply_bytes_ = 0;  // of the whole reply, once its head is there
  uint64_t received_ = 0;
  ReplyHead head_;
  uint64_t began_ns_ = 0;
  uint64_t connected_ns_ = 0;
  bool connected_anew_ = false;
  Failure failure_ = Failure::kClosed;
  int error_ = 0;
  std::string reason_;  // empty: error_ says it
};

}  // namespace lumen::client
