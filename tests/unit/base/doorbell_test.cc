// Doorbell: no lost wake-up, exact timeouts, no leak in the count of waiters.
#include <lumen/base/clock.h>
#include <lumen/base/doorbell.h>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

namespace lumen {
namespace {

template <typename Bell>
void await_waiters(const Bell& bell, uint32_t count) {
  while (bell.waiters_were() != count) std::this_thread::yield();
}

TEST(Doorbell, AllZeroBytesAreAValidDoorbell) {
  alignas(SharedDoorbell) unsigned char bytes[sizeof(SharedDoorbell)];
  std::memset(bytes, 0, sizeof bytes);
  auto* bell = std::launder(reinterpret_cast<SharedDoorbell*>(bytes));
  const auto ticket = bell->prepare();
  bell->wake();
  EXPECT_TRUE(bell->wait(ticket, 0));
}

TEST(Doorbell, ARingBetweenPrepareAndWaitIsNotLost) {
  Doorbell bell;
  const auto ticket = bell.prepare();
  EXPECT_EQ(bell.waiters_were(), 1u);
  bell.wake();
  EXPECT_EQ(bell.waiters_were(), 0u) << "a wake-up is promised, so nobody else needs to wake it";
  EXPECT_TRUE(bell.wait(ticket, 0));
}

TEST(Doorbell, ARingBeforePrepareIsNotRemembered) {
  Doorbell bell;
  bell.wake_all();
  EXPECT_FALSE(bell.wait(bell.prepare(), 0));
  EXPECT_EQ(bell.waiters_were(), 0u);
}

TEST(Doorbell, CancelTakesTheAnnouncementBack) {
  Doorbell bell;
  static_cast<void>(bell.prepare());
  bell.cancel();
  EXPECT_EQ(bell.waiters_were(), 0u);
  bell.wake();
  EXPECT_FALSE(bell.wait(bell.prepare(), 0)) << "no token may be left over";
}

TEST(Doorbell, CancelAfterARingTakesThatRingWithIt) {
  Doorbell bell;
  static_cast<void>(bell.prepare());
  bell.wake();
  bell.cancel();
  EXPECT_FALSE(bell.wait(bell.prepare(), 0)) << "no token may be left over";
}

TEST(Doorbell, CancelOfOneWaiterLeavesTheTokenToTheOther) {
  Doorbell bell;
  const auto first = bell.prepare();
  static_cast<void>(bell.prepare());
  bell.wake(1);
  bell.cancel();
  EXPECT_EQ(bell.waiters_were(), 0u);
  EXPECT_TRUE(bell.wait(first, 0));
}

TEST(Doorbell, ReturnsFalseOnlyOnceTheDeadlineHasPassed) {
  Doorbell bell;
  const uint64_t deadline_ns = now_ns() + 3'000'000;
  EXPECT_FALSE(bell.wait(bell.prepare(), deadline_ns));
  EXPECT_GE(now_ns(), deadline_ns);
}

TEST(Doorbell, WakeWakesAsManyAsAsked) {
  Doorbell bell;
  std::atomic<int> awake{0};
  std::vector<std::thread> sleepers;
  sleepers.reserve(3);
  for (int i = 0; i < 3; ++i) {
    sleepers.emplace_back([&] {
      bell.wait(bell.prepare());
      awake.fetch_add(1);
    });
  }
  await_waiters(bell, 3);
  bell.wake(2);
  while (awake.load() != 2) std::this_thread::yield();
  EXPECT_EQ(bell.waiters_were(), 1u);
  bell.wake(2);
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_EQ(awake.load(), 3);
  EXPECT_EQ(bell.waiters_were(), 0u);
}

TEST(Doorbell, WakeAllWakesEveryone) {
  Doorbell bell;
  std::vector<std::thread> sleepers;
  sleepers.reserve(8);
  for (int i = 0; i < 8; ++i) sleepers.emplace_back([&] { bell.wait(bell.prepare()); });
  await_waiters(bell, 8);
  bell.wake_all();
  for (std::thread& sleeper : sleepers) sleeper.join();
  EXPECT_FALSE(bell.wait(bell.prepare(), 0)) << "each sleeper took exactly one token";
}

TEST(Doorbell, MeasuresTheCostOfAWakeUp) {
  Doorbell bell;
  for (int i = 0; i < 64; ++i) {
    std::thread sleeper([&] { bell.wait(bell.prepare()); });
    await_waiters(bell, 1);
    bell.wake_published();
    sleeper.join();
  }
  EXPECT_GT(wake_cost_ns(), 0u);
  EXPECT_LE(wake_cost_ns(), 100'000u);
}

// A dead waiter, as the header has it: its count turns into one wake-up without work.
TEST(Doorbell, AWaiterKilledInItsSleepCostsOneIdleWakeUpAndBlocksNobody) {
  void* memory = mmap(nullptr, sizeof(SharedDoorbell), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* bell = new (memory) SharedDoorbell;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bell->wait(bell->prepare());
    _exit(0);
  }
  await_waiters(*bell, 1);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(bell->waiters_were(), 1u);
  bell->wake();
  EXPECT_TRUE(bell->wait(bell->prepare(), 0)) << "the dead waiter's token";
  EXPECT_FALSE(bell->wait(bell->prepare(), 0)) << "one, not two";
  munmap(memory, sizeof(SharedDoorbell));
}

TEST(SharedDoorbell, WakesASleeperInAnotherProcess) {
  void* memory = mmap(nullptr, sizeof(SharedDoorbell), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* bell = new (memory) SharedDoorbell;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(bell->wait(bell->prepare(), now_ns() + 10'000'000'000u) ? 7 : 1);
  await_waiters(*bell, 1);
  bell->wake();
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  munmap(memory, sizeof(SharedDoorbell));
}

}  // namespace
}  // namespace lumen
