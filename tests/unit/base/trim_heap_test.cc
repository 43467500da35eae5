// trim_heap() on many threads at once. Fails with ASan alone: there nothing else has initialised
// glibc's heap. Threads: eight. Memory: none. Errors: by gtest.
#include <lumen/base/trim_heap.h>

#include <gtest/gtest.h>

#include <latch>
#include <thread>
#include <vector>

namespace lumen {
namespace {

// Was: two threads that loaded models called malloc_trim() at the same time, and the process ended
// with SIGSEGV in mtrim(), or when the second of them ended.
TEST(TrimHeap, ThreadsThatTrimForTheFirstTimeTogetherDoNotEndTheProcess) {
  constexpr int kThreads = 8;
  std::latch all_there(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      all_there.arrive_and_wait();
      trim_heap();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lumen
