// CallHandler: the meaning of a call, once its message is there.
// Threads: its I/O thread. Memory: the request's. Errors: a refusal with a status of gRPC.
#pragma once

#include "transports/grpc/call_stream.h"
#include "transports/grpc/control_methods.h"
#include "transports/grpc/request.h"

#include <optional>
#include <string_view>

namespace lumen::grpc {

class CallHandler {
 public:
  explicit CallHandler(GrpcTransport& host) noexcept : host_(host) {}
  CallHandler(const CallHandler&) = delete;
  CallHandler& operator=(const CallHandler&) = delete;

  // Whether its client has a key, where the server asks for one.
  [[nodiscard]] Status check_key(const CallStream& call, bool is_local) const noexcept;
  [[nodiscard]] static Status unknown_method() noexcept;
  [[nodiscard]] bool is_ready() const noexcept;
  // Of a call of Watch: its client was told something else.
  [[nodiscard]] bool has_other_health(const CallStream& call) const noexcept;
  // `request`: one more of that call's, without a message.
  [[nodiscard]] Status tell_health(Request& request) noexcept;
  // kOk: it is answered, or with the engine.
  [[nodiscard]] Status on_call(Request& request) noexcept;
  // Of a message of a stream that there was no room for: asks for that again.
  [[nodiscard]] Status admit(Request& request) noexcept;
  // It has come back from there.
  [[nodiscard]] Status on_returned(Request& request) noexcept;

 private:
  [[nodiscard]] Status infer(Request& request) noexcept;
  [[nodiscard]] Status bind(Request& request) noexcept;
  [[nodiscard]] static std::optional<uint64_t> timeout_us(const Request& request) noexcept;
  [[nodiscard]] Status model_ready(Request& request) noexcept;
  [[nodiscard]] Status model_metadata(Request& request) noexcept;
  // Of a method that the control plane answers.
  [[nodiscard]] Status ask(Request& request, const ControlMethod& method) noexcept;
  [[nodiscard]] Status reflect(Request& request) noexcept;
  [[nodiscard]] Status cuda_regions(Request& request) noexcept;
  [[nodiscard]] Status check_health(Request& request) noexcept;
  [[nodiscard]] Status watch_health(Request& request) noexcept;
  // A message whose only field is number 1; `value` is below 128.
  [[nodiscard]] Status reply_number(Request& request, uint8_t value) noexcept;
  [[nodiscard]] Status reply_text(Request& request, std::string_view text) noexcept;

  GrpcTransport& host_;
};

}  // namespace lumen::grpc
