// measure_core_distance(): a few hundred round trips over two lines, both sides spinning.
// Threads: any; two of its own. Memory: their stacks. Errors: never, it leaves the figure as it
// was.
#include <lumen/base/core_distance.h>

#include <lumen/base/cache_line.h>
#include <lumen/base/clock.h>
#include <lumen/base/cpu.h>

#include <pthread.h>
#include <sched.h>

#include <system_error>
#include <thread>
#include <vector>

namespace lumen {
namespace {

constexpr uint32_t kTrips = 200;
constexpr uint32_t kSamples = 5;
// Where the other thread does not get its CPU: ended without a figure.
constexpr uint64_t kMostNs = 2'000'000;

struct alignas(kFalseSharingRange) Line {
  std::atomic<uint32_t> value{0};
};

bool pin(uint32_t cpu) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

// Waits until `line` is `wanted`; false: not before `deadline_ns`.
bool await(const Line& line, uint32_t wanted, uint64_t deadline_ns) noexcept {
  for (uint32_t looks = 1;; ++looks) {
    // sync[core_distance]: acquire, as a queue's look does; nothing else is read on its strength
    if (line.value.load(std::memory_order_acquire) == wanted) return true;
    if (looks % 1024 == 0 && now_ns() >= deadline_ns) return false;
  }
}

struct PingPong {
  Line there, back;
  uint64_t deadline_ns = now_ns() + kMostNs;
  uint64_t fastest_ns = UINT64_MAX;  // one way; noise of the machine only ever adds

  void answer(uint32_t cpu) noexcept {
    if (!pin(cpu)) return;
    for (uint32_t i = 1; i <= kTrips * kSamples; ++i) {
      if (!await(there, i, deadline_ns)) return;
      // sync[core_distance]: release, as a queue's publication does
      back.value.store(i, std::memory_order_release);
    }
  }
  void ask(uint32_t cpu) noexcept {
    if (!pin(cpu)) return;
    for (uint32_t sample = 0; sample < kSamples; ++sample) {
      const uint64_t start_ns = now_ns();
      for (uint32_t i = sample * kTrips + 1; i <= (sample + 1) * kTrips; ++i) {
        // sync[core_distance]: release, as above
        there.value.store(i, std::memory_order_release);
        if (!await(back, i, deadline_ns)) return;
      }
      fastest_ns = std::min(fastest_ns, (now_ns() - start_ns) / kTrips / 2);
    }
  }
};

}  // namespace

uint64_t measure_core_distance() {
  const std::vector<uint32_t> cpus = usable_cpus();
  if (cpus.size() >= 2) {
    PingPong game;
    std::thread other, self;
    bool has_both = true;
    try {
      // The first and the last: neighbours may be two threads of one core.
      other = std::thread([&] { game.answer(cpus.back()); });
      self = std::thread([&] { game.ask(cpus.front()); });
    } catch (const std::system_error&) {
      has_both = false;  // no thread to be had: the guess stays, and queues learn by themselves
    }
    for (std::thread* thread : {&self, &other}) {
      if (thread->joinable()) thread->join();  // a thread that plays alone stops at the deadline
    }
    if (has_both && game.fastest_ns != UINT64_MAX) {
      // relaxed: a first guess
      core_distance_at_start_ns.store(CoreDistance(game.fastest_ns).transfer_ns(),
                                      std::memory_order_relaxed);
    }
  }
  return start_core_distance().transfer_ns();
}

}  // namespace lumen
