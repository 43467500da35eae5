// traceparent: the value of that header of a request, as W3C Trace Context (level 1) defines it:
//   00-<trace id: 32 hex digits>-<parent id: 16>-<flags: 2>
// Threads: any. Memory: none. Errors: nullopt; the standard wants an invalid one to be ignored.
#pragma once

#include <lumen/base/traceparent.h>

#include <optional>
#include <string_view>

namespace lumen::wire {

// Refused: upper case, an id of zeroes, version ff, version 00 with anything behind its four
// fields. Of a version to come the same four are read, and text that follows them after a dash is
// ignored.
[[nodiscard]] std::optional<Traceparent> parse_traceparent(std::string_view value) noexcept;

}  // namespace lumen::wire
