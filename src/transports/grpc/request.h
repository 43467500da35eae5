// Request: one message of a client and the reply to it, from the message's first byte to the
// reply's last.
// Threads: its I/O thread; while it is in the engine or with the control plane, the thread that
// runs it. Memory: a region, made at start. Errors: a Status, which becomes gRPC's.
#pragma once

#include <lumen/memory/request_memory.h>
#include <lumen/models/model_repository.h>
#include <lumen/service/call.h>
#include <lumen/service/job.h>
#include <lumen/wire/content_coding.h>
#include <lumen/wire/grpc_infer.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::grpc {

struct CallStream;
class GrpcTransport;

struct Request final : public service::CallOwner, public service::JobOwner {
  explicit Request(GrpcTransport& transport) noexcept : host(transport) {}

  void encode(service::Call& of_mine) noexcept override;
  void on_returned(service::Call& of_mine) noexcept override;
  void on_done(service::Job& of_mine) noexcept override;

  // For another message.
  void reset() noexcept;

  // --- its message ------------------------------------------------------------------------------
  // Takes the next bytes off the front of `bytes`, up to the message's end. They may lie in
  // place(). Not ok: they can't be a message.
  [[nodiscard]] Status receive(std::string_view& bytes, size_t most_bytes) noexcept;
  [[nodiscard]] bool is_whole() const noexcept {
    return prefix_bytes == prefix.size() && received_bytes == message_bytes;
  }
  // Where the rest of the message is to lie; empty: that can't be said yet, or nothing is missing.
  [[nodiscard]] std::span<char> place() const noexcept;
  // Of a message that is whole. `coding`: of compressed ones; nullopt: one that is not known.
  [[nodiscard]] Status inflate(std::optional<wire::ContentCoding> coding,
                               size_t most_bytes) noexcept;
  [[nodiscard]] std::string_view text() const noexcept { return {message, message_bytes}; }

  GrpcTransport& host;
  RequestMemory memory;
  service::Call call;
  service::Job job;  // of a method that the control plane answers
  wire::InferHead head;
  std::string_view model;  // of an inference, in its message
  std::string_view version;
  std::array<char, wire::kGrpcPrefixBytes> prefix{};
  size_t prefix_bytes = 0;
  char* message = nullptr;
  size_t message_bytes = 0;
  size_t received_bytes = 0;
  size_t timed_bytes = 0;  // of these, when the time for the next ones began

  // --- its stream -------------------------------------------------------------------------------
  CallStream* stream = nullptr;
  Request* previous = nullptr;  // of its stream, or (next alone) free
  Request* next = nullptr;
  bool is_away = false;  // the engine, a step or the control plane has it
  bool is_job = false;   // the control plane does

  // --- its reply --------------------------------------------------------------------------------
  std::span<std::span<std::byte>> output_places;  // in regions, by wanted output; may be empty
  bool wants_final = false;  // the reply says that it is the last one of its request
  Status encode_status;
  wire::GrpcMessage reply;
  size_t piece = 0;  // the next to send
  size_t sent_of_piece = 0;
  size_t left_bytes = 0;
  int status = 0;                   // of HTTP's table, for counters; 0: it has no reply
  Request* next_reply = nullptr;    // of its stream
  Request* next_leaving = nullptr;  // of its connection
  bool is_leaving = false;

  const models::Model* room_of = nullptr;  // it counts among the calls in memory of that model

 private:
  // `begin`: its first bytes.
  [[nodiscard]] bool allocate_message(std::string_view begin) noexcept;
  [[nodiscard]] Status encode_outputs() noexcept;
};

}  // namespace lumen::grpc
