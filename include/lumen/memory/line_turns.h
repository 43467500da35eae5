// LineTurns: turns at a line that several threads add to: a thread that has it keeps it for a
// while, and then stays away as long.
// Threads: a LineTurns belongs to one. Memory: none. Errors: never; it only says how long to wait.
//
// A fetch_add by two threads in turn moves its line each time: 18 ns a record where cores are near,
// 90 where they are far. A mutex does better there (25 ns), because its holder works on while the
// others sleep. So does this, without a holder: a thread whose fetch_add finds that others have
// added since its last one stays away for a turn if it has had one, and the other has the line to
// itself. If they meet in the middle of their turns, each stays away or goes on by chance, and
// stays away for longer the more often that happens, as senders on one wire do. Nobody waits for
// anybody: when the time is over, or the thread has spent it on work of its own, it adds.
//
// Where a thread's own work between two records takes longer than the lines take, nothing is gained
// by turns, and there are none.
#pragma once

#include <lumen/base/backoff.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace lumen {

class LineTurns {
 public:
  // A turn: the line changes hands three times for each (the newcomer, then the other's last
  // record, then the newcomer again), which is an eighth of it.
  static constexpr uint64_t kTurnTransfers = 24;
  // Where all threads' records come no faster than one in so many transfers, the line is free most
  // of the time.
  static constexpr uint64_t kBusyTransfers = 2;
  static constexpr uint32_t kMostDoublings = 3;
  static constexpr uint64_t kMostAwayNs = kMostWaitNs << kMostDoublings;

  explicit LineTurns(uint32_t seed = 1, CoreDistance distance = start_core_distance()) noexcept
      : random_(2 * seed + 1), distance_(distance) {}

  // A fetch_add of `bytes` has found that others had added `others` bytes since our last one;
  // `mine` are ours of this turn. How long to stay away; 0: go on.
  [[nodiscard]] uint64_t lost(uint64_t mine, uint64_t others, uint64_t bytes,
                              uint64_t now_ns) noexcept {
    const uint64_t took_ns = now_ns - std::exchange(began_ns_, now_ns);
    const uint64_t transfer_ns = distance_.transfer_ns();
    if (took_ns > (mine + others) / bytes * kBusyTransfers * transfer_ns) {
      doublings_ = 0;
      return 0;
    }
    random_ = random_ * 1'664'525 + 1'013'904'223;  // Numerical Recipes
    const uint32_t chance = random_ >> 28;
    const uint64_t turn_ns = std::min(kTurnTransfers * transfer_ns, kMostWaitNs);
    // Where the line was ours, our records were cheaper than its transfers.
    if (mine / bytes * transfer_ns > 2 * took_ns) {
      doublings_ -= doublings_ > 0 ? 1 : 0;
    } else {
      if (chance < 8) return 0;
      doublings_ = std::min(doublings_ + 1, kMostDoublings);
    }
    return (turn_ns << doublings_) * (16 + chance) / 32;
  }
  // A turn of ours begins otherwise: after a wait, in another buffer.
  void begin(uint64_t now_ns) noexcept { began_ns_ = now_ns; }

  // Whether the next fetch_add, which follows a wait, is to be timed; and its time.
  [[nodiscard]] bool is_sampled() noexcept { return distance_.is_sampled(); }
  void took(uint64_t ns) noexcept { distance_.took(ns); }
  [[nodiscard]] const CoreDistance& distance() const noexcept { return distance_; }

 private:
  uint64_t began_ns_ = 0;
  uint32_t doublings_ = 0;
  uint32_t random_;
  CoreDistance distance_;
};

}  // namespace lumen
