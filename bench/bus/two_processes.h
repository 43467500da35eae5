// Two processes on two CPUs that exchange messages through some transport, and the measurements of
// it. Shared by bench_bus (Lumen and the system's transports) and the rivals' programs, so that all
// do the same: the producer writes every byte of a message, the consumer reads every byte, and a
// wrong sum is an error.
//
// A transport has `End open(Side)`, called in each process after the fork, and an End has
//   send(size, fill)    one message, fill(std::byte*) writes it; it may be published later
//   flush()             all sent messages are published
//   receive(use)        use(const std::byte*) for each message that is there; how many
//   give_back()         of received messages; a transport may put it off
// Threads: one a process. Memory: the heap, before measuring. Errors: exit 2 with a reason.
#pragma once

#include "../queue/harness.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::bench {

enum class Side { kProducer, kConsumer };

[[noreturn]] inline void give_up(std::string_view why) {
  std::fprintf(stderr, "bench bus: %.*s\n", static_cast<int>(why.size()), why.data());
  std::exit(2);
}

// The memory that both processes see besides the transport.
struct Shared {
  std::atomic<uint32_t> ready{0};
  std::atomic<uint64_t> sum{0};
  std::atomic<uint64_t> timed{0};  // messages
  std::atomic<uint64_t> ns{0};     // that they took; not 0: the consumer has all
};

// Runs `consumer` on CPU 1 in a child and `producer` on CPU 0 here; both get the shared page.
template <typename Producer, typename Consumer>
Shared& run_two(Producer&& producer, Consumer&& consumer) {
  void* page =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) give_up("mmap");
  auto& shared = *new (page) Shared;
  const pid_t child = ::fork();
  if (child < 0) give_up("fork");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin_to(1);
    consumer(shared);
    ::_exit(0);
  }
  pin_to(0);
  producer(shared);
  int status = 0;
  if (::waitpid(child, &status, 0) != child || status != 0) give_up("the consumer has failed");
  return shared;
}

// Both have their ends open.
inline void meet(Shared& shared) {
  shared.ready.fetch_add(1, std::memory_order_seq_cst);  // sync[bench.bus.ready]: with itself
  // sync[bench.bus.ready]: with the other's
  while (shared.ready.load(std::memory_order_seq_cst) < 2) ::sched_yield();
}

// Word by word, where they lie: over an array in between g++ called memcpy(), twice a message, and
// clang did not, so that not all contenders did the same.
template <size_t kSize>
void write_words(std::byte* to, uint64_t value) {
  for (size_t i = 0; i < kSize; i += 8) std::memcpy(to + i, &value, 8);
}

template <size_t kSize>
[[nodiscard]] uint64_t sum_of_words(const std::byte* from) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kSize; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, from + i, 8);
    sum += word;
  }
  return sum;
}

// `count` messages one way, as fast as they go; the first tenth is not timed. kTypes: each has
// another type than the one before it, so that a transport can't treat them as one.
template <size_t kSize, bool kTypes = false, typename Transport>
void stream(Transport& transport, uint64_t count) {
  const auto producer = [&](Shared& shared) {
    auto end = transport.open(Side::kProducer);
    meet(shared);
    for (uint64_t i = 0; i < count; ++i) {
      const auto fill = [i](std::byte* to) { write_words<kSize>(to, i); };
      if constexpr (kTypes) {
        end.send(kSize, fill, static_cast<uint32_t>(1 + i % 2));
      } else {
        end.send(kSize, fill);
      }
    }
    end.flush();
    // relaxed: nothing is read with it
    while (shared.ns.load(std::memory_order_relaxed) == 0) ::usleep(1000);
  };
  const auto consumer = [&](Shared& shared) {
    auto end = transport.open(Side::kConsumer);
    meet(shared);
    uint64_t sum = 0;
    uint64_t received = 0;
    uint64_t timed = 0;
    uint64_t start = 0;
    while (received < count) {
      received += end.receive([&sum](const std::byte* from) { sum += sum_of_words<kSize>(from); });
      end.give_back();
      if (timed == 0 && received >= count / 10) {
        timed = count - received;
        start = now_ns();
      }
    }
    const uint64_t ns = now_ns() - start;
    // relaxed, all: the other side reads them after waitpid()
    shared.sum.store(sum, std::memory_order_relaxed);
    shared.timed.store(timed, std::memory_order_relaxed);
    shared.ns.store(ns, std::memory_order_relaxed);
  };
  Shared& shared = run_two(producer, consumer);
  const uint64_t wanted = kSize / 8 * (count * (count - 1) / 2);
  // relaxed, all: after waitpid()
  if (shared.sum.load(std::memory_order_relaxed) != wanted)
    give_up("the consumer has read other bytes than were written");
  const auto timed = static_cast<double>(shared.timed.load(std::memory_order_relaxed));
  const auto ns = static_cast<double>(shared.ns.load(std::memory_order_relaxed));
  std::printf("{\"mops\": %.4f}\n", timed * 1e3 / ns);
}

// Steps of the time stamp counter in a nanosecond.
inline double ticks_a_ns() {
  const uint64_t ns = now_ns();
  const uint64_t ticks = __rdtsc();
  while (now_ns() - ns < 10'000'000) continue;
  return static_cast<double>(__rdtsc() - ticks) / static_cast<double>(now_ns() - ns);
}

// There and back with 32 bytes, one at a time, a time stamp each (9 ns, in all alike).
template <typename Transport>
void round_trip(Transport& transport, uint64_t count) {
  constexpr size_t kSize = 32;
  const uint64_t warm_up = count / 10;
  const auto one = [](auto& end, uint64_t value) {
    end.send(kSize, [value](std::byte* to) { write_words<kSize>(to, value); });
    end.flush();
  };
  const auto next = [](auto& end) {
    uint64_t sum = 0;
    while (end.receive([&sum](const std::byte* from) { sum += sum_of_words<kSize>(from); }) == 0) {
    }
    end.give_back();
    return sum / 4;
  };
  std::vector<uint64_t> ticks(count);
  double scale = 1;
  const auto producer = [&](Shared& shared) {
    auto end = transport.open(Side::kProducer);
    scale = ticks_a_ns();
    meet(shared);
    uint64_t before = __rdtsc();
    for (uint64_t i = 0; i < warm_up + count; ++i) {
      one(end, i);
      if (next(end) != i) give_up("another message came back than was sent");
      const uint64_t now = __rdtsc();
      if (i >= warm_up) ticks[i - warm_up] = now - before;
      before = now;
    }
  };
  const auto consumer = [&](Shared& shared) {
    auto end = transport.open(Side::kConsumer);
    meet(shared);
    for (uint64_t i = 0; i < warm_up + count; ++i) one(end, next(end));
    ::usleep(100'000);  // the sender takes earlier messages before this side goes
  };
  run_two(producer, consumer);
  const auto sum = static_cast<double>(std::accumulate(ticks.begin(), ticks.end(), uint64_t{0}));
  std::sort(ticks.begin(), ticks.end());
  const auto at = [&](double part) {
    const auto index = static_cast<size_t>(static_cast<double>(count - 1) * part);
    return static_cast<double>(ticks[index]) / scale;
  };
  // The mean, too: the time stamp counter of some machines goes by steps of 10 ns.
  std::printf("{\"p50_ns\": %.1f, \"p99_ns\": %.1f, \"mean_ns\": %.1f}\n", at(0.5), at(0.99),
              sum / static_cast<double>(count) / scale);
}

// --row stream|types|trip --bytes 32|1024 --count N
template <typename Transport>
void measure(Transport& transport, const std::string& row, uint64_t bytes, uint64_t count) {
  using End = decltype(transport.open(Side::kProducer));
  if (row == "stream" && bytes == 32) return stream<32>(transport, count);
  if (row == "stream" && bytes == 1024) return stream<1024>(transport, count);
  if constexpr (requires(End end) { end.send(32, [](std::byte*) {}, 1u); }) {
    if (row == "types" && bytes == 32) return stream<32, true>(transport, count);
  }
  if (row == "trip") return round_trip(transport, count);
  give_up("--row stream|types|trip, --bytes 32|1024; types: 32 bytes, and not of every transport");
}

}  // namespace lumen::bench
