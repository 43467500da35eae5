// Timeouts: the lists in which the connections of an I/O thread wait, one for each kind of time.
// Threads: its I/O thread. Memory: none. Errors: none.
#pragma once

#include <lumen/net/timeout_list.h>
#include <lumen/transports/http/options.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace lumen::http {

struct Timeouts {
  // How often a send that waits is looked at within its timeout: when the reader stopped taking
  // bytes is known that well. Readiness alone says too little, TCP tells it of a third of the
  // buffer at once.
  static constexpr uint64_t kWriteLooks = 8;

  explicit Timeouts(const TimeoutOptions& options) noexcept
      : idle(options.idle_ns),
        head(options.head_ns),
        body(options.body_period_ns),
        write(std::max<uint64_t>(options.write_stall_ns / kWriteLooks, 1)),
        linger(options.linger_ns),
        room(options.room_ns) {}
  net::TimeoutList idle, head, body, write, linger, room;
  // No times: the order in which connections go on inflating.
  net::TimeoutList inflating{0};
  [[nodiscard]] std::array<net::TimeoutList*, 6> all() noexcept {
    return {&idle, &head, &body, &write, &linger, &room};
  }
};

}  // namespace lumen::http
