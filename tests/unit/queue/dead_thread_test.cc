// Threads that are really gone: they leave by the exit system call, in the middle of an operation,
// with nothing unwound. Each header's words on that are asserted here.
#include <lumen/queue/mpmc_queue.h>
#include <lumen/queue/spsc_queue.h>
#include <lumen/queue/thread_pipeline.h>

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <vector>

// The sanitizers keep their own books of threads and can't follow one that leaves like that.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

namespace lumen {
namespace {

// No destructor, no return: as after a kill by the kernel.
[[noreturn]] void die() {
  ::syscall(SYS_exit, 0);
  __builtin_unreachable();
}

template <typename Work>
void run_in_a_thread_that_dies(Work&& work) {
  std::thread doomed([&] {
    work();
    die();
  });
  doomed.join();
}

TEST(DeadThread, AProducerOfMpmcBetweenClaimAndPublicationBlocksFromItsSlotOn) {
  MpmcQueue<int> queue(4);
  ASSERT_TRUE(queue.try_push(1));
  run_in_a_thread_that_dies([&] {
    auto run = queue.reserve(1);
    run[0] = 2;
    die();
  });
  ASSERT_TRUE(queue.try_push(3));
  int value = 0;
  ASSERT_TRUE(queue.try_pop(value));
  EXPECT_EQ(value, 1) << "what was there before it is still popped";
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(queue.try_pop(value)) << "empty from there on, for ever";
  ASSERT_TRUE(queue.try_push(4));
  ASSERT_TRUE(queue.try_push(5));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(queue.try_push(6)) << "full one lap later, for ever";
  queue.close();
  EXPECT_FALSE(queue.drained()) << "an accepted item never came, and it says so";
}

TEST(DeadThread, AConsumerOfMpmcBetweenClaimAndPublicationKeepsItsSlot) {
  MpmcQueue<int> queue(4);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(queue.try_push(int{i}));
  run_in_a_thread_that_dies([&] {
    auto run = queue.peek(1);
    die();
  });
  int value = 0;
  for (int i = 1; i < 4; ++i) {
    ASSERT_TRUE(queue.try_pop(value));
    EXPECT_EQ(value, i);
  }
  EXPECT_FALSE(queue.try_push(9));
}

TEST(DeadThread, AProducerOfSpscLeavesOnlyItsOwnItemUnpublished) {
  // Never destroyed, for the role can't be returned; static, so that it is no leak. A new one each
  // time that the test is repeated.
  static auto& kept = *new std::vector<SpscQueue<int>*>;
  SpscQueue<int>* queue = kept.emplace_back(new SpscQueue<int>(4));
  run_in_a_thread_that_dies([&] {
    auto producer = queue->producer();
    ASSERT_TRUE(producer.try_push(1));
    const std::span<int> room = producer.reserve(1);
    room[0] = 2;
    die();
  });
  auto consumer = queue->consumer();
  int value = 0;
  ASSERT_TRUE(consumer.try_pop(value));
  EXPECT_EQ(value, 1);
  EXPECT_FALSE(consumer.try_pop(value)) << "the item that was being written is not seen";
}

TEST(DeadThread, ASleeperOfABlockingQueueCostsTheOthersNothing) {
  MpmcQueue<int, Padding::kNone, Waiting::kDoorbell> queue(4);
  run_in_a_thread_that_dies([&] {
    IdleStrategy idle(0);
    int value = 0;
    // It has announced itself, slept and timed out by the time it dies.
    static_cast<void>(queue.pop(value, idle, now_ns() + 1'000'000));
  });
  IdleStrategy idle(0);
  int value = 0;
  ASSERT_EQ(queue.push(1, idle), QueueOutcome::kOk);
  EXPECT_EQ(queue.pop(value, idle), QueueOutcome::kOk);
  EXPECT_EQ(queue.pop(value, idle, now_ns() + 1'000'000), QueueOutcome::kTimedOut);
}

struct DieAtOne {
  void operator()(int& item) const noexcept {
    if (item == 1) die();
  }
};
struct Note {
  std::vector<int>* seen;
  void operator()(int& item) const noexcept { seen->push_back(item); }
};

TEST(DeadThread, AHandlerThatDiesHoldsItsItemAndNotItsStage) {
  std::vector<int> seen;
  Pipeline<int, Producers::kOne, Stage<DieAtOne, 2, 1>, Stage<Note>> pipeline({.capacity = 4}, {},
                                                                              {{&seen}});
  auto producer = pipeline.producer();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(producer.try_push(int{i}));
  run_in_a_thread_that_dies([&] {
    auto first = pipeline.runner<0>();
    while (first.poll() != 0) continue;
  });
  auto second = pipeline.runner<0>();
  while (second.poll() != 0) continue;
  auto last = pipeline.runner<1>();
  while (last.poll() != 0) continue;
  EXPECT_EQ(seen, std::vector<int>{0}) << "the next stage stops at the item of the dead thread";
  EXPECT_TRUE(second.poll() == 0) << "the other thread of the stage has done 2 and 3";
  EXPECT_TRUE(producer.try_push(4)) << "the slot of 0";
  EXPECT_FALSE(producer.try_push(5)) << "full one lap later";
}

}  // namespace
}  // namespace lumen

#endif
