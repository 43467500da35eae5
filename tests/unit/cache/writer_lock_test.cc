// WriterLock: one holder at a time, and no thread that waits is left asleep.
#include <lumen/cache/detail/writer_lock.h>

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace lumen {
namespace {

TEST(WriterLock, IsTakenOnceUntilItIsFree) {
  cache::WriterLock lock;
  EXPECT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
  EXPECT_TRUE(lock.try_lock());
  lock.unlock();
}

// A process of one thread takes it without a locked instruction; the thread that comes then must
// find it taken.
TEST(WriterLock, KeepsOutAThreadThatIsStartedWhileItIsTaken) {
  cache::WriterLock lock;
  int value = 0;
  lock.lock();
  std::atomic<bool> tried{false};
  std::thread other([&] {
    EXPECT_FALSE(lock.try_lock());
    tried.store(true);
    tried.notify_one();
    const std::lock_guard guard(lock);
    EXPECT_EQ(value, 1);
    value = 2;
  });
  tried.wait(false);
  value = 1;
  lock.unlock();
  other.join();
  const std::lock_guard guard(lock);
  EXPECT_EQ(value, 2);
}

TEST(WriterLock, CountsEveryStepOfMoreThreadsThanCores) {
  constexpr int kThreads = 8;
  constexpr int kSteps = 20'000;
  cache::WriterLock lock;
  int64_t count = 0;  // plain: TSan sees a step beside another
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kSteps; ++i) {
        if ((i + t) % 4 == 0) {
          while (!lock.try_lock()) std::this_thread::yield();
        } else {
          lock.lock();
        }
        ++count;
        lock.unlock();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, int64_t{kThreads} * kSteps);
}

}  // namespace
}  // namespace lumen
