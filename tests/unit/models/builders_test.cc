// Builders: all jobs are done, on threads that stay; as many at once as allowed.
// Threads: the test's and the builders'. Memory: the heap. Errors: by gtest.
#include <lumen/models/builders.h>

#include <lumen/base/cpu.h>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <barrier>
#include <optional>
#include <set>
#include <thread>
#include <vector>

namespace lumen::models {
namespace {

TEST(Builders, MakeAllOnTheSameThreadRunAfterRun) {
  Builders builders(1);
  std::set<std::thread::id> threads;
  int done = 0;
  const Builders::Job job{.body =
                              [&] {
                                threads.insert(std::this_thread::get_id());
                                ++done;
                              },
                          .near_cpu = 0};
  const std::vector<Builders::Job> jobs(5, job);
  for (int run = 0; run < 3; ++run) builders.run(jobs);
  EXPECT_EQ(done, 15);
  EXPECT_EQ(threads.size(), 1u);
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST(Builders, WorkAtOnceWhereTheyMay) {
  Builders builders(2);
  std::barrier both(2);  // never passed by one thread alone
  const Builders::Job job{.body = [&] { both.arrive_and_wait(); }, .near_cpu = std::nullopt};
  const std::vector<Builders::Job> jobs(4, job);
  builders.run(jobs);
}

int policy_of_this_thread() {
  int policy = -1;
  sched_param parameters{};
  EXPECT_EQ(::pthread_getschedparam(::pthread_self(), &policy, &parameters), 0);
  return policy;
}

TEST(Builders, InTheBackgroundWorkAtIdlePriority) {
  Builders usual(1);
  Builders background(1, usual);
  int policy = -1;
  const Builders::Job job{.body = [&] { policy = policy_of_this_thread(); },
                          .near_cpu = std::nullopt};
  // Neighbours on this machine may take its CPUs for a while: five minutes of tries.
  for (int i = 0; i < 15'000 && policy != SCHED_IDLE; ++i) background.run({&job, 1});
  EXPECT_EQ(policy, SCHED_IDLE);
  usual.run({&job, 1});
  EXPECT_EQ(policy, SCHED_OTHER);
}

TEST(Builders, InTheBackgroundLeaveTheirJobsToOthersWhereNoCpuIsIdle) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  std::set<std::thread::id> threads;
  int policy = -1;
  // All on one CPU, also the builders, which inherit that.
  std::thread([&] {
    const uint32_t cpu = usable_cpus().front();
    ASSERT_TRUE(pin_this_thread(cpu).ok());
    for (int i = 0; i < 4; ++i) {
      // relaxed: the threads only have to end some time
      busy.emplace_back([&] {
        while (!stop.load(std::memory_order_relaxed)) {
        }
      });
    }
    Builders usual(1);
    Builders background(1, usual);
    const Builders::Job job{.body =
                                [&] {
                                  policy = policy_of_this_thread();
                                  threads.insert(std::this_thread::get_id());
                                },
                            .near_cpu = std::nullopt};
    background.run({&job, 1});
    EXPECT_EQ(policy, SCHED_OTHER);
    const std::vector<Builders::Job> jobs(3, job);
    background.run(jobs);
    EXPECT_EQ(policy, SCHED_OTHER);
    EXPECT_EQ(threads.size(), 1u);
    stop.store(true, std::memory_order_relaxed);  // relaxed: as above
  }).join();
  for (std::thread& thread : busy) thread.join();
}

TEST(Builders, InTheBackgroundHaveNothingToDoForNoJobs) {
  Builders usual(1);
  Builders background(2, usual);
  background.run({});
}

TEST(Builders, HaveNothingToDoForNoJobs) {
  Builders builders(2);
  builders.run({});
}

}  // namespace
}  // namespace lumen::models
