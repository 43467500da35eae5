// Starts and joins the load threads. One control thread; as load_run.h says.
#include "load/load_run.h"

#include "load/bus_load.h"
#include "load/load_thread.h"

#include <lumen/base/clock.h>

#include <algorithm>
#include <ctime>
#include <deque>
#include <thread>
#include <vector>

namespace lumen::load {

namespace {

// Until `deadline_ns` or a stop; in short naps, since a signal may arrive on another thread.
void wait_until(uint64_t deadline_ns, const std::atomic<bool>& stop) {
  constexpr uint64_t kNapNs = 50'000'000u;
  for (uint64_t now = now_ns(); now < deadline_ns; now = now_ns()) {
    // relaxed: nothing else is read because of it.
    if (stop.load(std::memory_order_relaxed)) return;
    const timespec nap{0, static_cast<long>(std::min(kNapNs, deadline_ns - now))};
    nanosleep(&nap, nullptr);
  }
}

template <typename Load>
std::unique_ptr<Tally> run_threads(const LoadPlan& plan, const std::atomic<bool>& stop,
                                   const std::function<void()>& at_begin) {
  std::deque<Load> loads;
  for (uint32_t i = 0; i < plan.threads; ++i) loads.emplace_back(plan, i, stop);
  if (plan.requests != 0 && at_begin) at_begin();
  const uint64_t start_ns = now_ns();
  std::vector<std::thread> threads;
  threads.reserve(loads.size());
  for (Load& load : loads) threads.emplace_back([&load, start_ns] { load.run(start_ns); });
  if (plan.requests == 0 && at_begin) {
    wait_until(start_ns + plan.warm_up_ns, stop);
    at_begin();
  }
  auto sum = std::make_unique<Tally>();
  for (std::thread& thread : threads) thread.join();
  for (const Load& load : loads) sum->merge(load.tally());
  return sum;
}

}  // namespace

std::unique_ptr<Tally> run_load(const LoadPlan& given, const std::atomic<bool>& stop,
                                const std::function<void()>& at_begin) {
  LoadPlan plan = given;
  plan.clients = std::max(plan.clients, 1u);
  plan.threads = std::clamp(plan.threads, 1u, plan.clients);
  // So that each thread has a request to send: none means "by time" there.
  if (plan.requests != 0 && plan.requests < plan.threads) {
    plan.threads = static_cast<uint32_t>(plan.requests);
  }
  return plan.target.is_bus() ? run_threads<BusLoad>(plan, stop, at_begin)
                              : run_threads<LoadThread>(plan, stop, at_begin);
}

}  // namespace lumen::load
