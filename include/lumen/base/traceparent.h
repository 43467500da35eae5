// Traceparent: the trace that a request belongs to, as its client has told it (W3C Trace Context,
// level 1).
// Threads: a value. Memory: 26 bytes, no padding: a part of records that other processes read.
// Errors: never; wire/traceparent.h reads the text of a header.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace lumen {

struct Traceparent {
  uint8_t is_present = 0;  // 1: the request came with one; the rest is zero without
  uint8_t flags = 0;       // bit 0: the client records this trace
  std::array<uint8_t, 16> trace_id{};
  std::array<uint8_t, 8> parent_id{};  // the client's span

  friend bool operator==(const Traceparent&, const Traceparent&) = default;
};

static_assert(std::is_trivially_copyable_v<Traceparent> && sizeof(Traceparent) == 26);

}  // namespace lumen
