// Frame: one message on the bus; Outcome: the result of a call on the hot path.
// Threads: values. Memory: a Frame is a view of the ring, valid until it is given back.
// Errors: Outcome.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lumen::bus {

struct Frame {
  std::span<const std::byte> data;  // starts at a multiple of 64
  uint32_t type_id = 0;
  uint64_t id = 0;
};

enum class [[nodiscard]] Outcome : uint8_t {
  kOk,
  kNotNow,       // try_ only: no room, or no frame
  kTimedOut,     // the deadline has passed
  kTooLarge,     // larger than the ring
  kInterrupted,  // a signal has ended the wait
  kHeld,         // nothing can come: the publisher waits for room that this subscriber holds
  kClosed,       // the other side has closed the connection, and nothing is left
  kDied,         // the other side has ended without closing it, and nothing is left
  kDropped,      // the publisher has dropped this subscriber, which held the ring for too long
  kInvalid,      // the other side has written an impossible value: it is not listened to any more
  kForked,       // this handle belongs to the parent process
};

[[nodiscard]] constexpr const char* name_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::kOk: return "ok";
    case Outcome::kNotNow: return "not now";
    case Outcome::kTimedOut: return "timed out";
    case Outcome::kTooLarge: return "larger than the ring";
    case Outcome::kInterrupted: return "interrupted by a signal";
    case Outcome::kHeld: return "this process holds the ring";
    case Outcome::kClosed: return "closed by the other side";
    case Outcome::kDied: return "the other side has died";
    case Outcome::kDropped: return "dropped, since it held the ring for too long";
    case Outcome::kInvalid: return "the other side has broken the protocol";
    case Outcome::kForked: return "belongs to the parent process";
  }
  return "";
}
// Nothing will come of trying again.
[[nodiscard]] constexpr bool is_over(Outcome outcome) noexcept {
  return outcome >= Outcome::kClosed;
}

}  // namespace lumen::bus
