// GrpcCodec: calls of gRPC on one connection, one at a time, as bytes to send and bytes received.
// nghttp2 reads and writes the frames (PROTOCOL-HTTP2.md of gRPC; RFC 9113).
// Threads: one. Memory: the heap. Errors: kBroken, with error(); a status of gRPC is a reply.
#pragma once

#include <lumen/client/target.h>

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lumen::client {

class GrpcCodec {
 public:
  // Of `target` it reads the host and the key. `keeps_message`: for message().
  explicit GrpcCodec(const Target& target, bool keeps_message = false);
  GrpcCodec(const GrpcCodec&) = delete;
  GrpcCodec& operator=(const GrpcCodec&) = delete;

  // Forgets the connection; the next call begins another one.
  void close() noexcept;
  // `method`: "ModelInfer". `message`: with its prefix; stays until the call has ended.
  void begin(std::string_view method, std::string_view message) noexcept;

  // The next bytes to send; empty: none for now.
  [[nodiscard]] std::string_view output() noexcept;
  // The first of these have been sent.
  void sent(size_t bytes) noexcept { output_sent_ += bytes; }

  enum class Progress : uint8_t { kPending, kReplied, kBroken };
  [[nodiscard]] Progress receive(std::string_view bytes) noexcept;

  // Between two calls. False: the connection has ended.
  [[nodiscard]] bool stays_open(std::string_view bytes) noexcept;

  // --- after kReplied ----------------------------------------------------------------------------
  // HTTP's number for the status of gRPC; 200: OK.
  [[nodiscard]] int status() const noexcept { return status_; }
  [[nodiscard]] std::string_view status_text() const noexcept { return status_text_; }
  [[nodiscard]] uint64_t reply_bytes() const noexcept { return reply_bytes_; }
  // Without its prefix.
  [[nodiscard]] std::string_view message() const noexcept;
  // After kBroken.
  [[nodiscard]] std::string_view error() const noexcept { return error_; }

 private:
  struct Callbacks;
  struct EndSession {
    void operator()(nghttp2_session* session) const noexcept { nghttp2_session_del(session); }
  };

  void open() noexcept;
  void fail(std::string_view reason) noexcept;
  void on_header(std::string_view name, std::string_view value);

  const Target* target_;
  bool keeps_message_;
  std::unique_ptr<nghttp2_session, EndSession> session_;
  std::string path_;
  std::string_view request_;  // what is left of it
  std::string output_;
  size_t output_sent_ = 0;
  int32_t stream_ = 0;
  bool is_running_ = false;
  int status_ = 0;
  std::string status_text_;
  uint64_t reply_bytes_ = 0;
  std::string reply_;
  std::string error_;
};

}  // namespace lumen::client
