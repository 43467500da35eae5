// The headers of gRPC over HTTP/2 (PROTOCOL-HTTP2.md), read and written.
// Threads: any. Memory: none. Errors: nullopt.
#pragma once

#include <lumen/base/result.h>
#include <lumen/wire/traceparent.h>

#include <nghttp2/nghttp2.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::grpc {

// Both stay until the frame has been written.
[[nodiscard]] inline nghttp2_nv header(std::string_view name, std::string_view value) noexcept {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
}
// "application/grpc", alone or with the message's format.
[[nodiscard]] bool is_grpc_type(std::string_view content_type) noexcept;
// "100m" in microseconds, a millisecond at least; nullopt: it is no such text.
[[nodiscard]] std::optional<uint64_t> parse_grpc_timeout(std::string_view text) noexcept;
// The number of gRPC's status for a code, into `room`.
[[nodiscard]] std::string_view write_status(Code code, std::span<char> room) noexcept;
// As much of `text` as `room` takes: bytes that a header can't have become %XX.
[[nodiscard]] std::string_view percent_encode(std::string_view text, std::span<char> room) noexcept;

}  // namespace lumen::grpc
