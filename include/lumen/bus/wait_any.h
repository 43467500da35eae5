// wait_any: one thread that reads from several publishers, each with a ring of its own.
// Threads: the one that has the subscribers. Memory: none. Errors: Outcome.
#pragma once

#include <lumen/base/idle_strategy.h>
#include <lumen/bus/subscriber.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace lumen::bus {

// Bounds the descriptors of one poll(): three for each subscriber.
inline constexpr size_t kMostWaitedFor = 64;

struct Ready {
  Outcome outcome = Outcome::kTimedOut;
  size_t index = 0;  // of the subscriber, with kOk or where its stream is over
};

// Until one of them has frames that were not taken (kOk), or is over. Begins to look at `start`, so
// that subscribers behind it are served too: pass the last index + 1. Spins by `idle`, then sleeps.
// CHECKs 1 to 64.
[[nodiscard]] Ready wait_any(std::span<Subscriber* const> subscribers, IdleStrategy& idle,
                             size_t start = 0, uint64_t deadline_ns = UINT64_MAX) noexcept;

}  // namespace lumen::bus
