// The blocking forms: they wait, wake, time out, and end at close() with everything drained.
#include "unit/queue/queue_adapters.h"

#include <lumen/base/clock.h>

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace lumen::testing {
namespace {

template <typename Queue>
class BlockingQueues : public ::testing::Test {};
using Kinds = ::testing::Types<SpscWaiting<int>, MpmcWaiting<int>, MutexBoth<int>>;
TYPED_TEST_SUITE(BlockingQueues, Kinds);

TYPED_TEST(BlockingQueues, PopWaitsForAPush) {
  TypeParam queue(2);
  std::thread producer([&] {
    IdleStrategy idle;
    EXPECT_EQ(queue.push(7, idle), QueueOutcome::kOk);
  });
  IdleStrategy idle;
  int value = 0;
  EXPECT_EQ(queue.pop(value, idle), QueueOutcome::kOk);
  EXPECT_EQ(value, 7);
  producer.join();
}

TYPED_TEST(BlockingQueues, PushWaitsForRoomAndOrderIsKept) {
  TypeParam queue(2);
  std::thread producer([&] {
    IdleStrategy idle;
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(queue.push(int{i}, idle), QueueOutcome::kOk);
  });
  IdleStrategy idle;
  for (int i = 0; i < 1000; ++i) {
    int value = -1;
    ASSERT_EQ(queue.pop(value, idle), QueueOutcome::kOk);
    ASSERT_EQ(value, i);
  }
  producer.join();
}

TYPED_TEST(BlockingQueues, PopTimesOutAtItsDeadline) {
  TypeParam queue(2);
  IdleStrategy idle;
  int value = -1;
  const uint64_t deadline_ns = now_ns() + 2'000'000;
  EXPECT_EQ(queue.pop(value, idle, deadline_ns), QueueOutcome::kTimedOut);
  EXPECT_GE(now_ns(), deadline_ns);
  EXPECT_EQ(value, -1);
}

TYPED_TEST(BlockingQueues, PushTimesOutAtItsDeadline) {
  TypeParam queue(2);
  IdleStrategy idle;
  ASSERT_TRUE(queue.try_push(1) && queue.try_push(2));
  const uint64_t deadline_ns = now_ns() + 2'000'000;
  EXPECT_EQ(queue.push(3, idle, deadline_ns), QueueOutcome::kTimedOut);
  EXPECT_GE(now_ns(), deadline_ns);
}

TYPED_TEST(BlockingQueues, AnItemThatIsThereIsPoppedEvenAfterTheDeadline) {
  TypeParam queue(2);
  IdleStrategy idle;
  ASSERT_TRUE(queue.try_push(1));
  int value = 0;
  EXPECT_EQ(queue.pop(value, idle, 0), QueueOutcome::kOk);
}

// Was: the mutex queue's clock counts signed nanoseconds, and a later deadline lay in the past.
TYPED_TEST(BlockingQueues, ADeadlineBeyondTheRangeOfTheClockIsWaitedFor) {
  TypeParam queue(2);
  std::atomic<bool> has_begun{false};
  std::thread consumer([&] {
    IdleStrategy idle(0);
    int value = 0;
    has_begun.store(true);
    EXPECT_EQ(queue.pop(value, idle, uint64_t{INT64_MAX} + 1), QueueOutcome::kOk);
  });
  while (!has_begun.load()) std::this_thread::yield();
  for (int i = 0; i < 1'000; ++i) std::this_thread::yield();
  ASSERT_TRUE(queue.try_push(1));
  consumer.join();
}

TYPED_TEST(BlockingQueues, CloseDrainsExactly) {
  TypeParam queue(4);
  IdleStrategy idle;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(queue.push(int{i}, idle), QueueOutcome::kOk);
  queue.close();
  EXPECT_EQ(queue.push(9, idle), QueueOutcome::kClosed);
  int value = -1;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(queue.pop(value, idle), QueueOutcome::kOk);
    EXPECT_EQ(value, i);
  }
  EXPECT_EQ(queue.pop(value, idle), QueueOutcome::kClosed);
}

TYPED_TEST(BlockingQueues, CloseWakesASleepingConsumer) {
  TypeParam queue(4);
  std::thread consumer([&] {
    IdleStrategy idle(0);
    int value = 0;
    EXPECT_EQ(queue.pop(value, idle), QueueOutcome::kClosed);
  });
  queue.close();
  consumer.join();
}

TYPED_TEST(BlockingQueues, CloseWakesASleepingProducer) {
  TypeParam queue(2);
  ASSERT_TRUE(queue.try_push(1) && queue.try_push(2));
  std::thread producer([&] {
    IdleStrategy idle(0);
    EXPECT_EQ(queue.push(3, idle), QueueOutcome::kClosed);
  });
  queue.close();
  producer.join();
}

// Many sleepers and a close in the middle: accepted items come out, once, and all end.
template <typename Queue>
void close_under_load() {
  constexpr int kThreads = 4;
  for (int round = 0; round < 50; ++round) {
    Queue queue(8);
    std::atomic<int> accepted{0};
    std::atomic<int> popped{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        IdleStrategy idle(1'000);
        while (queue.push(1, idle) == QueueOutcome::kOk) accepted.fetch_add(1);
      });
      threads.emplace_back([&] {
        IdleStrategy idle(0);
        int value = 0;
        while (queue.pop(value, idle) == QueueOutcome::kOk) popped.fetch_add(value);
      });
    }
    while (popped.load() < 200) std::this_thread::yield();
    queue.close();
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(accepted.load(), popped.load());
  }
}

TEST(MpmcQueue, CloseUnderLoadLosesNothingAndEndsEveryThread) {
  close_under_load<MpmcWaiting<int>>();
}
TEST(MutexQueue, CloseUnderLoadLosesNothingAndEndsEveryThread) {
  close_under_load<MutexBoth<int>>();
}

TEST(MutexQueue, AnInterruptSinceTheCountWasReadEndsAPop) {
  MutexQueue<int> queue(4);
  const uint64_t before = queue.interrupts();
  queue.interrupt();
  int value = -1;
  EXPECT_EQ(queue.pop_unless_interrupted(value, before), QueueOutcome::kTimedOut);
  EXPECT_EQ(queue.pop_unless_interrupted(value, queue.interrupts(), now_ns()),
            QueueOutcome::kTimedOut)
      << "an older interrupt ends no pop, its deadline does";
  ASSERT_TRUE(queue.try_push(7));
  EXPECT_EQ(queue.pop_unless_interrupted(value, before), QueueOutcome::kOk);
  EXPECT_EQ(value, 7);
  queue.close();
  EXPECT_EQ(queue.pop_unless_interrupted(value, queue.interrupts()), QueueOutcome::kClosed);
}

TEST(MutexQueue, AnInterruptWakesASleepingPopAndNoItemIsLost) {
  for (int round = 0; round < 500; ++round) {
    MutexQueue<int> queue(4);
    std::vector<std::thread> consumers;
    std::atomic<int> popped{0};
    consumers.reserve(2);
    for (int i = 0; i < 2; ++i) {
      consumers.emplace_back([&, before = queue.interrupts()] {
        int value = 0;
        if (queue.pop_unless_interrupted(value, before) == QueueOutcome::kOk) popped.fetch_add(1);
      });
    }
    ASSERT_TRUE(queue.try_push(1));
    queue.interrupt();
    for (std::thread& consumer : consumers) consumer.join();
    ASSERT_EQ(popped.load(), 1);
    ASSERT_TRUE(queue.was_empty());
  }
}

TEST(SpscQueue, CloseFromAThirdThreadUnderLoadLosesNothing) {
  for (int round = 0; round < 200; ++round) {
    SpscQueue<int, Waiting::kDoorbell> queue(8);
    std::atomic<int> popped{0};
    int accepted = 0;
    std::thread producer([&] {
      auto handle = queue.producer();
      while (handle.push(1) == QueueOutcome::kOk) ++accepted;
    });
    std::thread consumer([&] {
      auto handle = queue.consumer();
      int value = 0;
      while (handle.pop(value) == QueueOutcome::kOk) popped.fetch_add(1);
    });
    while (popped.load() < 20) std::this_thread::yield();
    queue.close();
    producer.join();
    consumer.join();
    ASSERT_EQ(accepted, popped.load());
  }
}

using Bells = MpmcQueue<int, Padding::kNone, Waiting::kDoorbell>;
// Only waited for by code that is wrong.
constexpr uint64_t kLostNs = 3'000'000'000;

// Was: the wake for the second item went to a consumer that could not take it, since the first was
// claimed and not published. Then that one's wake went to one consumer, and the second item lay
// beside the other.
TEST(MpmcQueueWithDoorbells, AnItemBehindAHeldProducerIsTakenByASleeperOnceThatGoesOn) {
  Bells queue(4);
  const uint64_t deadline_ns = now_ns() + kLostNs;
  std::vector<std::thread> consumers;
  consumers.reserve(2);
  std::atomic<int> sum{0};
  for (int i = 0; i < 2; ++i) {
    consumers.emplace_back([&] {
      IdleStrategy idle(0);
      int value = 0;
      EXPECT_EQ(queue.pop(value, idle, deadline_ns), QueueOutcome::kOk);
      sum.fetch_add(value);
    });
  }
  while (queue.consumers_slept() != 2) std::this_thread::yield();
  auto held = queue.reserve(1);
  ASSERT_TRUE(queue.try_push(2));  // wakes one, which finds nothing and sleeps again
  while (queue.consumers_slept() != 2) std::this_thread::yield();
  held[0] = 1;
  held.done();
  for (std::thread& consumer : consumers) consumer.join();
  EXPECT_EQ(sum.load(), 3);
  EXPECT_LT(now_ns(), deadline_ns) << "taken by the last look of a wait that timed out";
}

TEST(MpmcQueueWithDoorbells, APlaceBehindAHeldConsumerIsFilledByASleeperOnceThatGoesOn) {
  Bells queue(2);
  const uint64_t deadline_ns = now_ns() + kLostNs;
  ASSERT_TRUE(queue.try_push(1));
  ASSERT_TRUE(queue.try_push(2));
  std::vector<std::thread> producers;
  producers.reserve(2);
  for (int i = 0; i < 2; ++i) {
    producers.emplace_back([&] {
      IdleStrategy idle(0);
      EXPECT_EQ(queue.push(3, idle, deadline_ns), QueueOutcome::kOk);
    });
  }
  while (queue.producers_slept() != 2) std::this_thread::yield();
  auto held = queue.peek(1);
  int value = 0;
  ASSERT_TRUE(queue.try_pop(value));  // wakes one, which finds no place and sleeps again
  while (queue.producers_slept() != 2) std::this_thread::yield();
  held.done();
  for (std::thread& producer : producers) producer.join();
  EXPECT_EQ(queue.size_was(), 2u);
  EXPECT_LT(now_ns(), deadline_ns) << "filled by the last look of a wait that timed out";
}

}  // namespace
}  // namespace lumen::testing
