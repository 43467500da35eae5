// The header fields of a request head: one pass that checks every byte and keeps the few that
// count.
// Threads: any. Memory: none. Errors: Refusal; status 0 means accepted.
#pragma once

#include <lumen/wire/http.h>

#include <string_view>

namespace lumen::wire {

// `fields` begins after the request line and ends with the empty line, all lines in CR LF.
// `authority` is the host of an absolute-form target, else empty.
[[nodiscard]] Refusal read_fields(std::string_view fields, std::string_view authority,
                                  HttpHead& head) noexcept;

}  // namespace lumen::wire
