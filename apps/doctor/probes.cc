// System calls, CPUID and two threads. See the header.
#include "doctor/probes.h"

#include <lumen/base/clock.h>
#include <lumen/base/core_distance.h>
#include <lumen/base/cpu.h>
#include <lumen/base/doorbell.h>
#include <lumen/base/unique_fd.h>

#include <dlfcn.h>
#include <linux/io_uring.h>
#include <linux/membarrier.h>
#include <linux/perf_event.h>
#include <locale.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lumen::doctor {
namespace {

// Enough that the median moves by a few per cent from run to run.
constexpr uint32_t kWakeUps = 301;
// The waker lets the sleeper fall asleep: longer than any futex call takes, short enough for 50 ms
// in all.
constexpr uint64_t kAsleepAfterNs = 100'000;
// A sleeper whose CPU is taken: the measurement ends, it does not hang.
constexpr uint64_t kWakeUpsMostNs = 2'000'000'000;
// Each gives up after 2 ms without the other CPU; on a busy machine one of these meets a moment
// with both.
constexpr uint32_t kDistanceTries = 25;
constexpr uint32_t kClockReads = 1'000;
constexpr uint32_t kClockRuns = 5;

// Runs both at once, each on its CPU. False: a thread or a CPU was not to be had.
bool run_pinned(uint32_t a, const std::function<void()>& on_a, uint32_t b,
                const std::function<void()>& on_b) {
  std::latch ready{2};
  std::atomic<bool> failed{false};
  const auto body = [&](uint32_t cpu, const std::function<void()>& work) {
    // relaxed: ordered by the latch, as all below
    if (!pin_this_thread(cpu).ok()) failed.store(true, std::memory_order_relaxed);
    ready.arrive_and_wait();
    if (!failed.load(std::memory_order_relaxed)) work();  // relaxed: see above
  };
  std::thread other, self;
  try {
    other = std::thread(body, b, std::cref(on_b));
    self = std::thread(body, a, std::cref(on_a));
  } catch (const std::system_error&) {
    failed.store(true, std::memory_order_relaxed);  // relaxed: see above
    ready.count_down();
  }
  for (std::thread* thread : {&other, &self}) {
    if (thread->joinable()) thread->join();
  }
  return !failed.load(std::memory_order_relaxed);  // relaxed: both are joined
}

// One sleeper's wake-ups, each timed from before wake() until it runs.
struct WakeUps {
  Doorbell bell;
  std::atomic<uint64_t> rung_at_ns{0};  // 0: not yet
  std::atomic<uint32_t> taken{0};
  uint64_t deadline_ns = now_ns() + kWakeUpsMostNs;
  std::vector<uint64_t> costs;

  void sleep() {
    for (uint32_t i = 0; i < kWakeUps; ++i) {
      const Doorbell::Ticket ticket = bell.prepare();
      if (!bell.wait(ticket, deadline_ns)) return;
      // sync[doctor.rung]: acquire of the waker's time
      costs.push_back(now_ns() - rung_at_ns.load(std::memory_order_acquire));
      // sync[doctor.taken]: release to the waker
      taken.store(i + 1, std::memory_order_release);
    }
  }
  void wake() {
    for (uint32_t i = 0; i < kWakeUps; ++i) {
      while (bell.waiters_were() == 0 && now_ns() < deadline_ns) {
      }
      const uint64_t until = now_ns() + kAsleepAfterNs;
      while (now_ns() < until) {
      }
      // sync[doctor.rung]: release to the sleeper
      rung_at_ns.store(now_ns(), std::memory_order_release);
      bell.wake();
      // sync[doctor.taken]: acquire of the sleeper's turn
      while (taken.load(std::memory_order_acquire) <= i) {
        if (now_ns() >= deadline_ns) return;
      }
    }
  }
};

}  // namespace

CpuFeatures read_cpu_features() {
  CpuFeatures found;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  found.avx2 = __builtin_cpu_supports("avx2");
  found.avx512f = __builtin_cpu_supports("avx512f");
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    found.avx512_vnni = found.avx512f && (c & (1u << 11)) != 0;
    found.amx_bf16 = (d & (1u << 22)) != 0;
    found.amx_tile = (d & (1u << 24)) != 0;
    found.amx_int8 = (d & (1u << 25)) != 0;
  }
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) {
    found.avx_vnni = found.avx2 && (a & (1u << 4)) != 0;
  }
  if (__get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1u << 31)) != 0) {
    __cpuid(0x40000000, a, b, c, d);
    std::array<char, 12> vendor;
    std::memcpy(vendor.data(), &b, 4);
    std::memcpy(vendor.data() + 4, &c, 4);
    std::memcpy(vendor.data() + 8, &d, 4);
    found.hypervisor.assign(vendor.data(), ::strnlen(vendor.data(), vendor.size()));
    if (found.hypervisor.empty()) found.hypervisor = "without a name";
  }
#endif
  return found;
}

int try_amx() noexcept {
#if defined(__x86_64__)
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, asm/prctl.h since 5.16
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
#else
  return ENOSYS;
#endif
}

int try_io_uring() noexcept {
  io_uring_params params{};
  params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;  // as the server asks for
  const UniqueFd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 1, &params)));
  return ring.valid() ? 0 : errno;
}

int try_membarrier() noexcept {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 ? 0
                                                                                         : errno;
}

bool has_locale(const char* name) noexcept {
  locale_t const found = ::newlocale(LC_ALL_MASK, name, nullptr);
  if (found == nullptr) return false;
  ::freelocale(found);
  return true;
}

bool has_library(const char* name) noexcept {
  void* library = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (library != nullptr) ::dlclose(library);
  return library != nullptr;
}

int try_hardware_counter() noexcept {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.config = PERF_COUNT_HW_CPU_CYCLES;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  const UniqueFd counter(static_cast<int>(
      ::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC)));
  return counter.valid() ? 0 : errno;
}

uint64_t measure_clock_read_ns() noexcept {
  uint64_t best = UINT64_MAX;
  for (uint32_t run = 0; run < kClockRuns; ++run) {
    const uint64_t begin = now_ns();
    uint64_t last = begin;
    for (uint32_t i = 0; i < kClockReads; ++i) last = now_ns();
    best = std::min(best, (last - begin) / kClockReads);
  }
  return best;
}

// The library measures between the CPUs that the calling thread may use, and keeps the result.
std::optional<uint64_t> measure_core_distance_ns(uint32_t a, uint32_t b) {
  std::optional<uint64_t> found;
  std::thread measuring;
  try {
    measuring = std::thread([&] {
      const std::array<uint32_t, 2> pair = {a, b};
      if (!restrict_this_thread(pair).ok()) return;
      for (uint32_t i = 0; i < kDistanceTries && !found; ++i) {
        // relaxed: written and read by this thread, and by threads that it has joined
        core_distance_at_start_ns.store(0, std::memory_order_relaxed);
        (void)measure_core_distance();
        // relaxed: as above
        const uint64_t ns = core_distance_at_start_ns.load(std::memory_order_relaxed);
        if (ns != 0) found = ns;
      }
    });
  } catch (const std::system_error&) {
    return std::nullopt;
  }
  measuring.join();
  return found;
}

std::optional<uint64_t> measure_wake_up_ns(uint32_t waker, uint32_t sleeper) {
  WakeUps game;
  const bool ran = run_pinned(waker, [&] { game.wake(); }, sleeper, [&] { game.sleep(); });
  if (!ran || game.costs.size() < kWakeUps) return std::nullopt;
  const auto middle = game.costs.begin() + kWakeUps / 2;
  std::ranges::nth_element(game.costs, middle);
  return *middle;
}

}  // namespace lumen::doctor
