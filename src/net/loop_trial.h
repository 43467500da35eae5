// The start-up trial of the loops: what a small request costs each of them on this machine.
// Threads: the calling one, alone. Memory: the heap. Errors: a Status with the system call.
#pragma once

#include <lumen/base/result.h>
#include <lumen/net/loop.h>

#include <cstddef>

namespace lumen::net {

// The time that a loop spends on a request and its reply, 512 bytes each, where 16 connections over
// TCP send at the same time; medians of rounds in turn.
struct LoopTrial {
  double epoll_ns = 0;
  double io_uring_ns = 0;
};

// Of a loop without other threads.
struct NoWakeHandler final : WakeHandler {
  size_t on_wake() noexcept override { return 0; }
};

[[nodiscard]] Result<LoopTrial> try_loops();

}  // namespace lumen::net
