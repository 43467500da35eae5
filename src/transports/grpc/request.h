// Request: one call of a method, from its stream's first header to its reply's last byte.
// Threads: its I/O thread; while it is in the engine, the thread that runs it. Memory: a region,
// made at start. Errors: a Status, which becomes gRPC's.
#pragma once

#include "transports/grpc/method.h"

#include <lumen/memory/request_memory.h>
#include <lumen/models/model_repository.h>
#include <lumen/net/timeout_list.h>
#include <lumen/service/call.h>
#include <lumen/wire/grpc_infer.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::grpc {

class GrpcConnection;
class GrpcTransport;

struct Request final : public service::CallOwner {
  explicit Request(GrpcTransport& transport) noexcept : host(transport) { timeout.owner = this; }

  void encode(service::Call& of_mine) noexcept override;
  void on_returned(service::Call& of_mine) noexcept override;

  // For another call.
  void reset() noexcept;
  // The next bytes of its message, with its prefix. Not ok: they can't be one.
  [[nodiscard]] Status receive(std::string_view bytes, size_t most_bytes) noexcept;
  // All of the stream's bytes are there.
  [[nodiscard]] Status check_complete() const noexcept;
  [[nodiscard]] std::string_view text() const noexcept { return {message, message_bytes}; }

  GrpcTransport& host;
  RequestMemory memory;
  service::Call call;
  wire::InferHead head;

  // --- its stream -------------------------------------------------------------------------------
  GrpcConnection* connection = nullptr;  // nullptr: it has ended, the engine has the call still
  int32_t stream = 0;
  net::TimeoutEntry timeout;    // while its message comes
  Request* previous = nullptr;  // of its connection, or (next alone) free
  Request* next = nullptr;
  bool is_away = false;      // the engine or a step has it
  bool has_ended = false;    // all of the stream's bytes are there
  bool is_answered = false;  // a reply was handed to the session
  bool is_closed = false;    // the stream has ended, the kernel may read the reply still

  // --- its head ---------------------------------------------------------------------------------
  Method method = Method::kUnknown;
  bool is_post = false;
  bool is_grpc = false;
  bool is_plain = true;  // its messages are not compressed
  std::optional<uint64_t> timeout_us;
  size_t header_bytes = 0;

  // --- its message ------------------------------------------------------------------------------
  std::array<char, wire::kGrpcPrefixBytes> prefix{};
  size_t prefix_bytes = 0;
  char* message = nullptr;
  size_t message_bytes = 0;
  size_t received_bytes = 0;

  // --- its reply --------------------------------------------------------------------------------
  Status encode_status;
  wire::GrpcMessage reply;
  size_t piece = 0;  // the next to send
  size_t sent_of_piece = 0;
  size_t left_bytes = 0;
  int status = 0;  // of HTTP's table, for counters
  std::array<char, 4> status_text{};
  static constexpr size_t kMostMessageBytes = 1024;  // of grpc-message, percent-encoded
  std::array<char, kMostMessageBytes> status_message{};

  const models::Model* room_of = nullptr;  // it counts among the calls in memory of that model

 private:
  [[nodiscard]] Status encode_outputs() noexcept;
};

}  // namespace lumen::grpc
