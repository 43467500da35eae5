// The parts that the queue and pipeline benches share: pinning, the near/far probe, time, one line
// of JSON.
// Threads: as each function says. Memory: the heap, before measuring. Errors: exit 2 with a
// reason.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/clock.h>
#include <lumen/base/idle_strategy.h>

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace lumen::bench {

inline void pin_to(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) {
    std::fprintf(stderr, "bench: can't pin to CPU %d: two CPUs are needed, 0 and 1\n", cpu);
    std::exit(2);
  }
}

// How every contender waits: a pause, and after 64 failed tries a yield.
class Retry {
 public:
  void failed() noexcept {
    if (++tries_ % 64 == 0) {
      std::this_thread::yield();
    } else {
      cpu_pause();
    }
  }

 private:
  uint32_t tries_ = 0;
};

// One way from core to core in ns, over two lines, both sides spinning: 25 to 65 "near", 75 to 300
// "far" (bench/runner/turns.py draws the line); virtual CPUs move.
inline double probe_one_way_ns(int cpu_a = 0, int cpu_b = 1) {
  struct alignas(kFalseSharingRange) Line {
    std::atomic<uint32_t> value{0};
  };
  constexpr uint32_t kTrips = 2000;
  Line there;
  Line back;
  std::vector<double> samples;
  std::thread other([&] {
    pin_to(cpu_b);
    for (uint32_t i = 1; i <= 8 * kTrips; ++i) {
      while (there.value.load(std::memory_order_acquire) != i) continue;
      back.value.store(i, std::memory_order_release);
    }
  });
  std::thread self([&] {
    pin_to(cpu_a);
    for (uint32_t sample = 0; sample < 8; ++sample) {
      const uint64_t start = now_ns();
      for (uint32_t i = sample * kTrips + 1; i <= (sample + 1) * kTrips; ++i) {
        there.value.store(i, std::memory_order_release);
        while (back.value.load(std::memory_order_acquire) != i) continue;
      }
      samples.push_back(static_cast<double>(now_ns() - start) / kTrips / 2);
    }
  });
  self.join();
  other.join();
  std::nth_element(samples.begin(), samples.begin() + 4, samples.end());
  return samples[4];
}

// --name value pairs; exits on anything else.
class Arguments {
 public:
  Arguments(int argc, char** argv) : argc_(argc), argv_(argv) {}
  [[nodiscard]] std::string text(const char* name, const char* otherwise) const {
    for (int i = 1; i + 1 < argc_; ++i) {
      if (std::string(argv_[i]) == name) return argv_[i + 1];
    }
    return otherwise;
  }
  [[nodiscard]] uint64_t number(const char* name, uint64_t otherwise) const {
    const std::string found = text(name, "");
    return found.empty() ? otherwise : std::strtoull(found.c_str(), nullptr, 10);
  }
  [[nodiscard]] bool flag(const char* name) const {
    return std::any_of(argv_ + 1, argv_ + argc_, [&](char* a) { return std::string(a) == name; });
  }

 private:
  int argc_;
  char** argv_;
};

}  // namespace lumen::bench
