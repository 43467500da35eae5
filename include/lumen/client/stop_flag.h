// stop_flag: raised by the first SIGINT or SIGTERM; the second ends the process as it would have.
// Threads: install_stop_flag() once from the main thread; the flag is read by any.
// Memory: static. Errors: never.
#pragma once

#include <atomic>
#include <csignal>

namespace lumen::client {

inline std::atomic<bool> stop_flag{false};

inline void install_stop_flag() noexcept {
  struct sigaction action{};
  // relaxed: readers look at the flag alone.
  action.sa_handler = [](int) { stop_flag.store(true, std::memory_order_relaxed); };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // no SA_RESTART: waits end with EINTR
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace lumen::client
