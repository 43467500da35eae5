// The parts of a request's memory, for all code that has to reckon with it. Threads: constants.
// Memory: none. Errors: none.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/limits.h>
#include <lumen/wire/oip.h>

#include <cstddef>

namespace lumen::http {

// Contexts beside those of the calls in memory: while all of these run or are read, heads still
// come in, and health, documents and metrics are answered.
inline constexpr size_t kHeadContexts = 64;

// The receive buffer; the padding lets the parser read past a JSON text that ends where the buffer
// ends.
inline constexpr size_t kReceiveBytes = limits::kReceiveBufferBytes + wire::JsonParser::kPadding;

// The memory that a context takes for good: the receive buffer, and enough for names and small
// documents, which thus never wait for memory.
inline constexpr size_t kContextBytes = kReceiveBytes + kCacheLine + size_t{16} * 1024;

// The most that one request can take beside its receive buffer: a body and a second copy of it
// where one is needed (chunked bodies, JSON tensors), lists and outputs.
[[nodiscard]] constexpr size_t most_request_bytes(size_t max_body_bytes) noexcept {
  return 2 * max_body_bytes + size_t{16} * 1024 * 1024;
}

}  // namespace lumen::http
