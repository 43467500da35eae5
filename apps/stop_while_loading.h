// StopWhileLoading: while `lumen serve` loads models nothing is served, so SIGTERM or SIGINT ends
// the process within a second: Server::start() returns at its next look at stop(), and a
// compilation that lasts longer is left behind.
// Threads: made and ended by the main thread, with both signals blocked; a thread of its own waits
// for them.
// Memory: none. Errors: where there is no signalfd or eventfd, a stop signal waits until all models
// are loaded.
#pragma once

#include <lumen/base/unique_fd.h>

#include <atomic>
#include <csignal>
#include <thread>

// SIGTERM and SIGINT.
[[nodiscard]] sigset_t stop_signals() noexcept;

class StopWhileLoading {
 public:
  StopWhileLoading();
  ~StopWhileLoading() { end(); }
  StopWhileLoading(const StopWhileLoading&) = delete;
  StopWhileLoading& operator=(const StopWhileLoading&) = delete;

  // Set by the first of the two signals.
  [[nodiscard]] const std::atomic<bool>& stop() const noexcept { return stop_; }
  // Loading is over. The signal that came meanwhile, or 0.
  int end();

 private:
  void watch();

  lumen::UniqueFd signals_;
  lumen::UniqueFd over_;
  std::atomic<bool> stop_{false};
  int first_ = 0;  // by the thread; end() reads it when it has joined it
  std::thread thread_;
};
