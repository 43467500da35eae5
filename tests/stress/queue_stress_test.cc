// Millions of items through every queue: each exactly once, in order per producer, then a clean
// end. Seeded by LUMEN_STRESS_SEED (printed), scaled by LUMEN_STRESS_SCALE.
#include <lumen/base/clock.h>
#include <lumen/queue/mpmc_queue.h>
#include <lumen/queue/mutex_queue.h>
#include <lumen/queue/spsc_queue.h>

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

namespace lumen {
namespace {

uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

uint64_t stress_seed() {
  static const uint64_t seed = [] {
    const uint64_t value = number_from("LUMEN_STRESS_SEED", now_ns());
    std::printf("LUMEN_STRESS_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  return seed;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kItemsEach = 100'000;
#else
constexpr uint64_t kItemsEach = 1'000'000;
#endif
uint64_t items_each() { return kItemsEach * number_from("LUMEN_STRESS_SCALE", 1); }

// An item tells its producer and its number; a torn one would not match its own check word.
struct Item {
  uint64_t producer = 0;
  uint64_t number = 0;
  uint64_t check = 0;
};
Item make_item(uint64_t producer, uint64_t number) {
  return {producer, number, (producer << 56) ^ (number * 0x9E3779B97F4A7C15u)};
}

// One consumer's view: counts, order within each producer, and sums for "exactly once".
struct Seen {
  std::array<uint64_t, 4> count{};
  std::array<uint64_t, 4> sum{};
  std::array<uint64_t, 4> next{};  // one more than the last number seen
  void take(const Item& item) {
    ASSERT_LT(item.producer, 4u);
    ASSERT_EQ(item.check, make_item(item.producer, item.number).check) << "torn";
    ASSERT_GE(item.number, next[item.producer]) << "out of order, or twice";
    next[item.producer] = item.number + 1;
    ++count[item.producer];
    sum[item.producer] += item.number;
  }
};

void expect_exactly_once(const std::vector<Seen>& consumers, size_t producers, uint64_t each) {
  for (size_t p = 0; p < producers; ++p) {
    uint64_t count = 0;
    uint64_t sum = 0;
    for (const Seen& seen : consumers) {
      count += seen.count[p];
      sum += seen.sum[p];
    }
    EXPECT_EQ(count, each) << "producer " << p;
    EXPECT_EQ(sum, each * (each - 1) / 2) << "producer " << p;
  }
}

template <typename TryPush, typename TryPushN>
void produce(uint64_t producer, uint64_t each, uint64_t seed, bool batches, TryPush&& try_push,
             TryPushN&& try_push_n) {
  std::mt19937_64 random(seed);
  std::array<Item, 16> batch;
  for (uint64_t number = 0; number < each;) {
    if (!batches || random() % 2 == 0) {
      while (!try_push(make_item(producer, number))) std::this_thread::yield();
      ++number;
      continue;
    }
    const size_t size = std::min<uint64_t>(1 + random() % batch.size(), each - number);
    for (size_t i = 0; i < size; ++i) batch[i] = make_item(producer, number + i);
    for (size_t done = 0; done < size;) {
      const size_t pushed = try_push_n(std::span(batch).subspan(done, size - done));
      if (pushed == 0) std::this_thread::yield();
      done += pushed;
    }
    number += size;
  }
}

template <typename TryPop, typename TryPopN, typename Drained>
void consume(Seen& seen, uint64_t seed, bool batches, TryPop&& try_pop, TryPopN&& try_pop_n,
             Drained&& drained) {
  std::mt19937_64 random(seed);
  std::array<Item, 16> batch;
  for (;;) {
    size_t count = 0;
    if (batches && random() % 2 == 0) {
      count = try_pop_n(std::span(batch).first(1 + random() % batch.size()));
    } else {
      count = try_pop(batch[0]) ? 1 : 0;
    }
    for (size_t i = 0; i < count; ++i) seen.take(batch[i]);
    if (count == 0) {
      if (drained()) return;
      std::this_thread::yield();
    }
  }
}

template <typename Queue>
void stress_shared(size_t capacity, size_t producers, size_t consumers, bool batches) {
  const uint64_t seed = stress_seed();
  const uint64_t each = items_each() / producers;
  Queue queue(capacity);
  std::vector<Seen> seen(consumers);
  std::vector<std::thread> pushing;
  std::vector<std::thread> popping;
  pushing.reserve(producers);
  for (size_t p = 0; p < producers; ++p) {
    pushing.emplace_back([&, p] {
      produce(
          p, each, seed + p, batches, [&](Item item) { return queue.try_push(std::move(item)); },
          [&](std::span<Item> items) { return queue.try_push_n(items); });
    });
  }
  popping.reserve(consumers);
  for (size_t c = 0; c < consumers; ++c) {
    popping.emplace_back([&, c] {
      consume(
          seen[c], seed + 100 + c, batches, [&](Item& item) { return queue.try_pop(item); },
          [&](std::span<Item> items) { return queue.try_pop_n(items); },
          [&] { return queue.drained(); });
    });
  }
  for (std::thread& thread : pushing) thread.join();
  queue.close();
  for (std::thread& thread : popping) thread.join();
  expect_exactly_once(seen, producers, each);
}

using Mpmc = MpmcQueue<Item>;
using MpmcPadded = MpmcQueue<Item, Padding::kSlot>;
using MpmcWaiting = MpmcQueue<Item, Padding::kNone, Waiting::kDoorbell>;

TEST(MpmcQueueStress, OneAndOne) { stress_shared<Mpmc>(64, 1, 1, true); }
TEST(MpmcQueueStress, TwoAndTwoInATinyRing) { stress_shared<Mpmc>(2, 2, 2, false); }
TEST(MpmcQueueStress, FourAndFourWithBatches) { stress_shared<Mpmc>(16, 4, 4, true); }
TEST(MpmcQueueStress, FourProducersOneConsumer) { stress_shared<Mpmc>(1024, 4, 1, true); }
TEST(MpmcQueueStress, OneProducerFourConsumers) { stress_shared<Mpmc>(1024, 1, 4, true); }
TEST(MpmcQueueStress, PaddedSlots) { stress_shared<MpmcPadded>(16, 2, 2, true); }
TEST(MpmcQueueStress, WithDoorbellsThatNobodyWaitsOn) {
  stress_shared<MpmcWaiting>(16, 2, 2, true);
}
TEST(MutexQueueStress, TwoAndTwo) { stress_shared<MutexQueue<Item>>(16, 2, 2, true); }

template <Waiting kWaiting>
void stress_spsc(size_t capacity, bool batches, uint64_t each = items_each()) {
  const uint64_t seed = stress_seed();
  SpscQueue<Item, kWaiting> queue(capacity);
  std::vector<Seen> seen(1);
  std::thread pushing([&] {
    auto producer = queue.producer();
    produce(
        0, each, seed, batches, [&](Item item) { return producer.try_push(std::move(item)); },
        [&](std::span<Item> items) { return producer.try_push_n(items); });
    producer.close();
  });
  auto consumer = queue.consumer();
  consume(
      seen[0], seed + 1, batches, [&](Item& item) { return consumer.try_pop(item); },
      [&](std::span<Item> items) { return consumer.try_pop_n(items); },
      [&] { return consumer.drained(); });
  pushing.join();
  expect_exactly_once(seen, 1, each);
}

// Each item waits for the other thread: a tenth of the items takes as long as the others' all.
TEST(SpscQueueStress, OneSlot) { stress_spsc<Waiting::kNone>(1, false, items_each() / 10); }
TEST(SpscQueueStress, OneByOne) { stress_spsc<Waiting::kNone>(64, false); }
TEST(SpscQueueStress, Batches) { stress_spsc<Waiting::kNone>(64, true); }
TEST(SpscQueueStress, WithDoorbells) { stress_spsc<Waiting::kDoorbell>(16, true); }

TEST(SpscQueueStress, SpansInPlace) {
  const uint64_t each = items_each();
  SpscQueue<Item> queue(64);
  std::vector<Seen> seen(1);
  std::thread pushing([&] {
    auto producer = queue.producer();
    for (uint64_t number = 0; number < each;) {
      const std::span<Item> room = producer.reserve(std::min<uint64_t>(each - number, 24));
      if (room.empty()) std::this_thread::yield();
      for (Item& item : room) item = make_item(0, number++);
      ASSERT_TRUE(producer.commit(room.size()));
    }
    producer.close();
  });
  auto consumer = queue.consumer();
  for (;;) {
    const std::span<Item> items = consumer.peek(32);
    for (const Item& item : items) seen[0].take(item);
    consumer.release(items.size());
    if (items.empty()) {
      if (consumer.drained()) break;
      std::this_thread::yield();
    }
  }
  pushing.join();
  expect_exactly_once(seen, 1, each);
}

// Blocking both ways through a ring so small that both sides sleep often.
template <typename Queue>
void stress_blocking(size_t threads_a_side, uint64_t max_spin_ns) {
  const uint64_t each = items_each() / 20 / threads_a_side;
  Queue queue(4);
  std::vector<Seen> seen(threads_a_side);
  std::vector<std::thread> pushing;
  std::vector<std::thread> popping;
  for (size_t i = 0; i < threads_a_side; ++i) {
    pushing.emplace_back([&, i] {
      IdleStrategy idle(max_spin_ns);
      for (uint64_t number = 0; number < each; ++number) {
        ASSERT_EQ(queue.push(make_item(i, number), idle), QueueOutcome::kOk);
      }
    });
    popping.emplace_back([&, i] {
      IdleStrategy idle(max_spin_ns);
      Item item;
      while (queue.pop(item, idle) == QueueOutcome::kOk) seen[i].take(item);
    });
  }
  for (std::thread& thread : pushing) thread.join();
  queue.close();
  for (std::thread& thread : popping) thread.join();
  expect_exactly_once(seen, threads_a_side, each);
}

TEST(MpmcQueueStress, BlockingWithoutSpin) { stress_blocking<MpmcWaiting>(2, 0); }
TEST(MpmcQueueStress, BlockingWithSpin) { stress_blocking<MpmcWaiting>(4, 20'000); }
TEST(MutexQueueStress, Blocking) { stress_blocking<MutexQueue<Item>>(2, 0); }

TEST(SpscQueueStress, BlockingWithoutLosingAWakeUp) {
  const uint64_t each = items_each() / 10;
  SpscQueue<Item, Waiting::kDoorbell> queue(2);
  std::vector<Seen> seen(1);
  std::thread pushing([&] {
    auto producer = queue.producer();
    for (uint64_t number = 0; number < each; ++number) {
      ASSERT_EQ(producer.push(make_item(0, number)), QueueOutcome::kOk);
    }
    producer.close();
  });
  auto consumer = queue.consumer();
  Item item;
  while (consumer.pop(item) == QueueOutcome::kOk) seen[0].take(item);
  pushing.join();
  expect_exactly_once(seen, 1, each);
}

}  // namespace
}  // namespace lumen
