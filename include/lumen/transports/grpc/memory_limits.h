// The parts of a request's memory, for all code that has to reckon with it. Threads: constants.
// Memory: none. Errors: none.
#pragma once

#include <cstddef>

namespace lumen::grpc {

// Requests beside max_active_requests: those whose replies leave, and health and metadata while all
// others run.
inline constexpr size_t kSpareRequests = 64;

// The memory that a request takes for good: a page, for a small message.
inline constexpr size_t kRequestBaseBytes = 4096;

// Beside its message: lists, copies, outputs.
inline constexpr size_t kListBytes = size_t{1} << 20;

// The most that one request can take: its message and a second copy of it where one is needed
// (compressed messages, tensors at odd addresses).
[[nodiscard]] constexpr size_t most_request_bytes(size_t max_message_bytes) noexcept {
  return 2 * max_message_bytes + kListBytes;
}

// Of a stream's bytes that wait: its window, and the head of a request of REST.
inline constexpr size_t kWindowBytes = size_t{1} << 20;
inline constexpr size_t kHeadTextBytes = size_t{32} << 10;
inline constexpr size_t kBacklogBytes = kWindowBytes + kHeadTextBytes;

// So many streams can wait for a request at the least, of each I/O thread.
inline constexpr size_t kLeastBacklogs = 4;

}  // namespace lumen::grpc
