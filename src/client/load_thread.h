// LoadThread: one epoll loop over its share of the clients of one or several plans.
// Threads: run() on its own thread; tallies after it has been joined.
// Memory: connections and tallies before run(). Errors: never; failures are counted.
#pragma once

#include <lumen/client/load_plan.h>
#include <lumen/client/tally.h>
#include "client/load_flow.h"
#include "client/thread_use.h"

#include <lumen/base/unique_fd.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

namespace lumen::client {

class LoadThread {
 public:
  // `index` of `threads` threads.
  LoadThread(const std::vector<LoadPlan>& plans, uint32_t index, uint32_t threads,
             const std::atomic<bool>& stop);

  void run(uint64_t start_ns);
  [[nodiscard]] const std::deque<LoadFlow>& flows() const noexcept { return flows_; }
  // The thread's CPU time, and nothing else.
  [[nodiscard]] const Tally& use() const noexcept { return tally_; }

 private:
  // Until the first flow has something to do.
  [[nodiscard]] timespec time_to_sleep(uint64_t now) const noexcept;
  // False once all flows are over.
  [[nodiscard]] bool turn(uint64_t now);

  const std::atomic<bool>& stop_;
  const bool polls_;
  UniqueFd epoll_;
  ThreadUse use_;
  std::deque<LoadFlow> flows_;  // they don't move
  Tally tally_;
};

}  // namespace lumen::client
