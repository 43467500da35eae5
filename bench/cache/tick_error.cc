// bench_cache_tick: how late BackgroundTick's time is, while other threads want the CPUs too. A
// JSON line.
//
//   --busy N     threads that never sleep, beside the tick's and the one that looks   (0)
//   --ms M       for how long                                                          (3000)
//
// It looks every 50 µs: the difference of the clock and of the cached time. The promise is a tick
// (the default, 2^19 ns here) and as long as the thread of the cache waits for a CPU.
// Memory: 8 bytes a look. Errors: exit 2 when a thread can't be made.
#include "../queue/harness.h"

#include <lumen/cache/detail/ticker.h>
#include <lumen/cache/options.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

using Background = lumen::cache::Ticker<lumen::cache::BackgroundTick, true>;

std::vector<uint64_t> looks(Background& ticker, uint64_t ms) {
  std::vector<uint64_t> late;
  const uint64_t end = lumen::now_ns() + ms * 1'000'000;
  while (lumen::now_ns() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    const uint64_t shown = ticker.now_ns();  // first, so that a switch in between counts as late
    const uint64_t now = lumen::now_ns();
    late.push_back(now > shown ? now - shown : 0);
  }
  std::sort(late.begin(), late.end());
  return late;
}

int run(const lumen::bench::Arguments& arguments) {
  const uint64_t busy = arguments.number("--busy", 0);
  const uint64_t ms = arguments.number("--ms", 3000);
  const auto tick_ns = static_cast<uint64_t>(lumen::cache::Options().tick.count());
  const auto tick_bits = static_cast<uint32_t>(std::bit_width(tick_ns) - 1);
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  others.reserve(busy);
  for (uint64_t i = 0; i < busy; ++i) {
    others.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {  // relaxed: a wish to end
      }
    });
  }
  Background ticker(tick_bits);
  ticker.start([&] { ticker.advance(); });
  const std::vector<uint64_t> late = looks(ticker, ms);
  ticker.stop();
  stop.store(true, std::memory_order_relaxed);  // relaxed: as above
  for (std::thread& other : others) other.join();
  const auto us = [&](double part) {
    const auto at = static_cast<size_t>(part * static_cast<double>(late.size() - 1));
    return static_cast<double>(late[at]) / 1000;
  };
  std::printf("{\"tick_us\": %.1f, \"looks\": %zu, \"p50\": %.1f, \"p99\": %.1f, \"max\": %.1f}\n",
              static_cast<double>(uint64_t{1} << tick_bits) / 1000, late.size(), us(0.5), us(0.99),
              us(1));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(lumen::bench::Arguments(argc, argv));
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "bench_cache_tick: %s\n", error.what());
    return 2;
  }
}
