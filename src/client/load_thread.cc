// The loop of one load thread: it polls the connections of all its flows at once. Its own thread.
#include "client/load_thread.h"

#include <lumen/base/clock.h>

#include <sys/epoll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <ctime>

namespace lumen::client {

LoadThread::LoadThread(const std::vector<LoadPlan>& plans, uint32_t index, uint32_t threads,
                       const std::atomic<bool>& stop)
    : stop_(stop), polls_(plans.front().poll), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  for (const LoadPlan& plan : plans) {
    flows_.emplace_back(plan, index, threads, epoll_.get(), use_);
  }
}

void LoadThread::run(uint64_t start_ns) {
  // The default slack of 50 us would be booked as the server's wherever a request is timed.
  prctl(PR_SET_TIMERSLACK, 1);
  uint64_t now = now_ns();
  for (LoadFlow& flow : flows_) flow.begin(start_ns, now);
  std::array<epoll_event, 256> events;
  while (turn(now)) {
    const timespec sleep = time_to_sleep(now);
    const int count =
        epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()), &sleep, nullptr);
    use_.add_poll(count > 0);
    for (int i = 0; i < count; ++i) {
      auto& client = *static_cast<LoadFlow::Client*>(events[static_cast<size_t>(i)].data.ptr);
      client.flow->advance(client);
    }
    const uint64_t turn_began = now;
    now = now_ns();
    if (count > 0) use_.add_busy(now - turn_began);
    for (LoadFlow& flow : flows_) flow.tick(now);
  }
  use_.close(now, tally_);
}

bool LoadThread::turn(uint64_t now) {
  // relaxed: nothing else is read because of it.
  if (stop_.load(std::memory_order_relaxed)) {
    for (LoadFlow& flow : flows_) flow.close(now);
    return false;
  }
  bool goes_on = false;
  for (LoadFlow& flow : flows_) goes_on |= flow.turn(now);
  return goes_on;
}

timespec LoadThread::time_to_sleep(uint64_t now) const noexcept {
  if (polls_) return {};
  uint64_t until_ns = UINT64_MAX;
  for (const LoadFlow& flow : flows_) until_ns = std::min(until_ns, flow.wake_ns(now));
  const uint64_t left_ns = until_ns > now ? until_ns - now : 0;
  timespec sleep{};
  sleep.tv_sec = static_cast<time_t>(left_ns / 1'000'000'000u);
  sleep.tv_nsec = static_cast<long>(left_ns % 1'000'000'000u);
  return sleep;
}

}  // namespace lumen::client
