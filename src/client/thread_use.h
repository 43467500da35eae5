// ThreadUse: a load thread's CPU time within the window, and how often it looked in vain.
// Threads: its load thread alone. Memory: none. Errors: never.
#pragma once

#include <lumen/client/tally.h>
#include "client/thread_share.h"

#include <algorithm>
#include <cstdint>

namespace lumen::client {

class ThreadUse {
 public:
  // The first call counts.
  void open(uint64_t begin_ns) noexcept {
    if (begin_ns_ != 0) return;
    begin_ns_ = begin_ns;
    cpu_at_begin_ns_ = thread_cpu_ns();
    polls_ = empty_polls_ = busy_ns_ = 0;
  }
  void add_poll(bool found) noexcept {
    ++polls_;
    if (!found) ++empty_polls_;
  }
  void add_busy(uint64_t ns) noexcept { busy_ns_ += ns; }

  // Into the thread's own figures of `tally`.
  void close(uint64_t now, Tally& tally) const noexcept {
    if (begin_ns_ == 0) return;
    const uint64_t cpu_ns = thread_cpu_ns() - cpu_at_begin_ns_;
    const auto wall_ns = static_cast<double>(std::max<uint64_t>(now - begin_ns_, 1));
    tally.cpu_seconds = static_cast<double>(cpu_ns) / 1e9;
    tally.busiest_cpu = static_cast<double>(cpu_ns) / wall_ns;
    tally.busiest_turns = static_cast<double>(busy_ns_) / wall_ns;
    if (polls_ > 0) {
      tally.fewest_empty_polls = static_cast<double>(empty_polls_) / static_cast<double>(polls_);
    }
  }

 private:
  uint64_t begin_ns_ = 0;  // 0: not yet
  uint64_t cpu_at_begin_ns_ = 0;
  uint64_t polls_ = 0;
  uint64_t empty_polls_ = 0;
  uint64_t busy_ns_ = 0;
};

}  // namespace lumen::client
