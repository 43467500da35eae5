// Starts and joins the load threads. One control thread; as load_run.h says.
#include <lumen/client/load_run.h>

#include "client/bus_load.h"
#include "client/load_thread.h"

#include <lumen/base/clock.h>

#include <algorithm>
#include <ctime>
#include <deque>
#include <thread>
#include <vector>

namespace lumen::client {

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

// The parts that all threads of a run share.
struct Run {
  const std::vector<LoadPlan>& plans;
  uint32_t threads;
  const std::atomic<bool>& stop;
  const std::function<void()>& at_begin;
};

template <typename Load>
void run_threads(std::deque<Load>& loads, const Run& run) {
  const LoadPlan& plan = run.plans.front();
  if (plan.requests != 0 && run.at_begin) run.at_begin();
  const uint64_t start_ns = now_ns();
  std::vector<std::thread> threads;
  threads.reserve(loads.size());
  for (Load& load : loads) threads.emplace_back([&load, start_ns] { load.run(start_ns); });
  if (plan.requests == 0 && run.at_begin) {
    wait_until(start_ns + plan.warm_up_ns, run.stop);
    run.at_begin();
  }
  for (std::thread& thread : threads) thread.join();
}

LoadResult run_over_bus(const Run& run) {
  std::deque<BusLoad> loads;
  for (uint32_t i = 0; i < run.threads; ++i) loads.emplace_back(run.plans.front(), i, run.stop);
  run_threads(loads, run);
  LoadResult result;
  result.all = std::make_unique<Tally>();
  for (const BusLoad& load : loads) result.all->merge(load.tally());
  return result;
}

LoadResult run_over_http(const Run& run) {
  std::deque<LoadThread> loads;
  for (uint32_t i = 0; i < run.threads; ++i) {
    loads.emplace_back(run.plans, i, run.threads, run.stop);
  }
  run_threads(loads, run);
  LoadResult result;
  result.all = std::make_unique<Tally>();
  for (const LoadThread& load : loads) {
    result.all->merge(load.use());
    size_t at = 0;
    for (const LoadFlow& flow : load.flows()) {
      for (size_t part = 0; part < flow.parts(); ++part, ++at) {
        if (at == result.parts.size()) result.parts.push_back(std::make_unique<Tally>());
        result.parts[at]->merge(flow.tally(part));
      }
    }
  }
  for (const auto& part : result.parts) result.all->merge(*part);
  return result;
}

}  // namespace

std::unique_ptr<Tally> run_load(const LoadPlan& plan, const std::atomic<bool>& stop,
                                const std::function<void()>& at_begin) {
  return run_loads({plan}, stop, at_begin).all;
}

LoadResult run_loads(const std::vector<LoadPlan>& given, const std::atomic<bool>& stop,
                     const std::function<void()>& at_begin) {
  std::vector<LoadPlan> plans = given;
  LoadPlan& first = plans.front();
  uint32_t clients = 0;
  for (LoadPlan& plan : plans) {
    plan.clients = std::max(plan.clients, 1u);
    clients = std::max(clients, plan.clients);
  }
  first.threads = std::clamp(first.threads, 1u, clients);
  // So that each thread has a request to send: none means "by time" there.
  if (first.requests != 0 && first.requests < first.threads) {
    first.threads = static_cast<uint32_t>(first.requests);
  }
  const Run run{plans, first.threads, stop, at_begin};
  return first.target.is_bus() ? run_over_bus(run) : run_over_http(run);
}

}  // namespace lumen::client
