// See the header.
#include "stop_while_loading.h"

#include <lumen/base/clock.h>

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cstring>

namespace {

// Of the second within which the process is to end; the rest is for the end itself.
constexpr uint64_t kPatienceNs = 800'000'000;

}  // namespace

sigset_t stop_signals() noexcept {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT}) sigaddset(&signals, number);
  return signals;
}

StopWhileLoading::StopWhileLoading() : over_(eventfd(0, EFD_CLOEXEC)) {
  const sigset_t signals = stop_signals();
  signals_ = lumen::UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_.valid() && over_.valid()) thread_ = std::thread([this] { watch(); });
}

int StopWhileLoading::end() {
  if (thread_.joinable()) {
    (void)eventfd_write(over_.get(), 1);
    thread_.join();
  }
  return first_;
}

void StopWhileLoading::watch() {
  uint64_t until_ns = UINT64_MAX;
  for (;;) {
    const uint64_t now = lumen::now_ns();
    const int wait_ms =
        first_ == 0 ? -1 : static_cast<int>(until_ns > now ? (until_ns - now) / 1'000'000 + 1 : 0);
    std::array<pollfd, 2> wanted{{{signals_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}}};
    const int ready = poll(wanted.data(), wanted.size(), wait_ms);
    if (wanted[1].revents != 0) return;
    signalfd_siginfo signal{};
    const bool came = read(signals_.get(), &signal, sizeof signal) == sizeof signal;
    if (came && first_ == 0) {
      first_ = static_cast<int>(signal.ssi_signo);
      until_ns = lumen::now_ns() + kPatienceNs;
      spdlog::info("{}: ending while models load; a second signal ends at once", strsignal(first_));
      stop_.store(true, std::memory_order_relaxed);  // relaxed: nothing else is told by it
    } else if (came || (first_ != 0 && ready == 0)) {
      spdlog::info("a model is still being compiled: ended without it");
      _exit(0);  // without destructors, which would wait for the compilation
    }
  }
}
