// Arenas that travel from thread to thread as requests do: filled by one, checked and reset by
// another. Under TSan this shows that handing one over through a queue is all the order it needs.
// Threads: two that fill, two that check. Memory: eight growing arenas. Errors: by gtest, the seed.
#include "support/stress.h"

#include <lumen/memory/arena.h>
#include <lumen/queue/mpmc_queue.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace lumen {
namespace {

struct Request {
  Arena arena = Arena::create_growing(4096, 4 * 1024 * 1024).value();
  std::vector<std::span<std::byte>> pieces;
  std::byte fill{};
};

TEST(ArenaStress, TravelsBetweenThreadsWithItsRequest) {
  constexpr size_t kRequests = 8;
  const uint64_t trips = test::stress_count(100'000);
  const uint64_t seed = test::stress_seed();
  std::vector<Request> requests(kRequests);
  MpmcQueue<Request*> free(16), filled(16);
  for (Request& r : requests) ASSERT_TRUE(free.try_push(&r));
  std::atomic<uint64_t> checked{0}, broken{0};  // relaxed everywhere: counts, read after the joins
  const auto filler = [&](uint64_t number) {
    std::mt19937_64 random(seed + number);
    for (uint64_t i = 0; i < trips / 2; ++i) {
      Request* r = nullptr;
      while (!free.try_pop(r)) std::this_thread::yield();
      r->fill = static_cast<std::byte>(random());
      for (uint64_t n = random() % 20; n > 0; --n) {
        const size_t bytes = 1 + random() % 2000;
        auto* memory = static_cast<std::byte*>(r->arena.allocate(bytes, size_t{1} << random() % 7));
        if (memory == nullptr) continue;
        std::memset(memory, static_cast<int>(r->fill), bytes);
        r->pieces.push_back({memory, bytes});
      }
      while (!filled.try_push(std::move(r))) std::this_thread::yield();
    }
  };
  const auto checker = [&] {
    for (uint64_t i = 0; i < trips / 2; ++i) {
      Request* r = nullptr;
      while (!filled.try_pop(r)) std::this_thread::yield();
      uint64_t wrong = r->arena.is_valid() ? 0 : 1;
      for (const std::span<std::byte> piece : r->pieces) {
        for (const std::byte b : piece) wrong += b != r->fill;
      }
      broken.fetch_add(wrong, std::memory_order_relaxed);
      r->pieces.clear();
      r->arena.reset();
      if (i % 64 == 0) r->arena.trim(8192);
      checked.fetch_add(1, std::memory_order_relaxed);
      while (!free.try_push(std::move(r))) std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back(filler, 1);
  threads.emplace_back(filler, 2);
  threads.emplace_back(checker);
  threads.emplace_back(checker);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(broken.load(std::memory_order_relaxed), 0u);
  EXPECT_EQ(checked.load(std::memory_order_relaxed), trips / 2 * 2);
}

}  // namespace
}  // namespace lumen
