// Builders: all jobs are done, on threads that stay; as many at once as allowed.
// Threads: the test's and the builders'. Memory: the heap. Errors: by gtest.
#include <lumen/models/builders.h>

#include <gtest/gtest.h>

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

TEST(Builders, HaveNothingToDoForNoJobs) {
  Builders builders(2);
  builders.run({});
}

}  // namespace
}  // namespace lumen::models
