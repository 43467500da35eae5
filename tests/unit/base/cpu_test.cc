// CPUs, quotas and pinning: the files of cgroups v1 and v2 as kernels write them.
#include <lumen/base/cpu.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <semaphore>
#include <string>
#include <thread>

namespace lumen {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

class CgroupQuota : public testing::Test {
 protected:
  CgroupQuota() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lumen-cpu-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    mount = pattern;
  }
  ~CgroupQuota() override {
    std::error_code ignored;
    std::filesystem::remove_all(mount, ignored);
  }
  void write(const std::filesystem::path& file, const char* text) const {
    std::filesystem::create_directories((mount / file).parent_path());
    std::ofstream(mount / file) << text;
  }

  std::filesystem::path mount;
};

TEST_F(CgroupQuota, IsRoundedDownToWholeCpus) {
  write("app/cpu.max", "250000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(mount, "0::/app\n"), 2u);
}

TEST_F(CgroupQuota, IsAtLeastOneCpu) {
  write("app/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(mount, "0::/app\n"), 1u);
}

TEST_F(CgroupQuota, IsNoneWhereTheKernelSaysMax) {
  write("app/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(mount, "0::/app\n"), std::nullopt);
}

TEST_F(CgroupQuota, IsTheSmallestOfAllAncestors) {
  write("pod/cpu.max", "300000 100000\n");
  write("pod/app/cpu.max", "800000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(mount, "0::/pod/app\n"), 3u);
}

TEST_F(CgroupQuota, OfAContainerIsThatOfTheMountedRoot) {
  write("cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(mount, "0::/not/mounted/here\n"), 4u);
}

TEST_F(CgroupQuota, ReadsTheFilesOfVersionOne) {
  write("cpu,cpuacct/app/cpu.cfs_quota_us", "350000\n");
  write("cpu,cpuacct/app/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(mount, "7:memory:/x\n4:cpu,cpuacct:/app\n0::/\n"), 3u);
}

TEST_F(CgroupQuota, OfVersionOneIsNoneAtMinusOne) {
  write("cpu/app/cpu.cfs_quota_us", "-1\n");
  write("cpu/app/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(mount, "4:cpu:/app\n"), std::nullopt);
}

TEST_F(CgroupQuota, IsNoneForTextThatIsNoNumberOrNoLine) {
  for (const char* text : {"", "x 100000\n", "100000\n", "100000 0\n", "-5 100000\n"}) {
    write("app/cpu.max", text);
    EXPECT_EQ(cgroup_cpu_quota(mount, "0::/app\n"), std::nullopt) << text;
  }
  EXPECT_EQ(cgroup_cpu_quota(mount, "nonsense\n\n:\n"), std::nullopt);
}

TEST_F(CgroupQuota, InThousandthsIsNotRounded) {
  write("app/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_cpu_thousandths(mount, "0::/app\n"), 500u);
  write("app/cpu.max", "9223372036854775807 100000\n");
  EXPECT_EQ(cgroup_cpu_thousandths(mount, "0::/app\n"), 8'192'000u) << "cut, not overflown";
}

class CgroupThrottling : public CgroupQuota {};

TEST_F(CgroupThrottling, IsReadInMicrosecondsFromBothVersions) {
  write("app/cpu.stat", "usage_usec 7\nnr_throttled 3\nthrottled_usec 1234\nnr_bursts 0\n");
  EXPECT_EQ(cgroup_throttled_us(mount, "0::/app\n"), 1234u);
  write("cpu,cpuacct/old/cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 5678000\n");
  EXPECT_EQ(cgroup_throttled_us(mount, "4:cpu,cpuacct:/old\n"), 5678u);
}

TEST_F(CgroupThrottling, OfAncestorsCountsTooAsTheirQuotaBindsUs) {
  write("pod/cpu.stat", "throttled_usec 100\n");
  write("pod/app/cpu.stat", "throttled_usec 5\n");
  EXPECT_EQ(cgroup_throttled_us(mount, "0::/pod/app\n"), 105u);
}

TEST_F(CgroupThrottling, OfOneHierarchyUnderTwoNamesCountsOnce) {
  write("cpu,cpuacct/app/cpu.stat", "throttled_time 9000\n");
  std::filesystem::create_directory_symlink(mount / "cpu,cpuacct", mount / "cpu");
  EXPECT_EQ(cgroup_throttled_us(mount, "4:cpu,cpuacct:/app\n"), 9u);
}

TEST_F(CgroupThrottling, IsUnknownWithoutItsLine) {
  EXPECT_EQ(cgroup_throttled_us(mount, "0::/app\n"), std::nullopt);
  for (const char* text : {"", "usage_usec 7\n", "throttled_usec\n", "throttled_usec x\n",
                           "throttled_usecs 5\n", "throttled_usec -5\n"}) {
    write("app/cpu.stat", text);
    EXPECT_EQ(cgroup_throttled_us(mount, "0::/app\n"), std::nullopt) << text;
  }
}

TEST(CpuBudget, SaysInWordsHowItCounted) {
  EXPECT_EQ((CpuBudget{.online = 4, .usable = 2, .quota = std::nullopt, .count = 2}).text(),
            "2 of 4 CPUs usable, cgroup quota none");
  EXPECT_EQ((CpuBudget{.online = 1, .usable = 1, .quota = 1, .count = 1}).text(),
            "1 of 1 CPU usable, cgroup quota 1");
}

TEST(CpuBudget, IsTheUsableCpusCutByTheQuota) {
  const CpuBudget budget = cpu_budget();
  EXPECT_EQ(budget.usable, usable_cpus().size());
  EXPECT_LE(budget.usable, budget.online);
  EXPECT_EQ(budget.count, std::min(budget.usable, budget.quota.value_or(budget.usable)));
  EXPECT_EQ(budget.count, usable_cpu_count());
}

TEST(WorkerCpus, BeginAtTheLastCpuAndUseEachCoreOnceFirst) {
  // Two cores of two threads each, numbered as Linux does: 0,1 then their siblings 2,3.
  const std::vector<CpuPlace> places = {
      {.cpu = 0, .core = 0}, {.cpu = 1, .core = 1}, {.cpu = 2, .core = 0}, {.cpu = 3, .core = 1}};
  EXPECT_THAT(worker_cpus(4, places), ElementsAre(3, 2, 1, 0));
}

TEST(WorkerCpus, TakeSiblingsLastWhereTheyAreNeighbours) {
  const std::vector<CpuPlace> places = {
      {.cpu = 0, .core = 0}, {.cpu = 1, .core = 0}, {.cpu = 2, .core = 1}, {.cpu = 3, .core = 1}};
  EXPECT_THAT(worker_cpus(4, places), ElementsAre(3, 1, 2, 0));
}

TEST(WorkerCpus, KeepCoresOfDifferentPackagesApart) {
  const std::vector<CpuPlace> places = {{.cpu = 0, .core = 0, .package = 0},
                                        {.cpu = 1, .core = 0, .package = 1}};
  EXPECT_THAT(worker_cpus(2, places), ElementsAre(1, 0));
}

TEST(WorkerCpus, GoRoundWhenThereAreMoreWorkersThanCpus) {
  const std::vector<CpuPlace> places = {{.cpu = 0, .core = 0}, {.cpu = 1, .core = 1}};
  EXPECT_THAT(worker_cpus(5, places), ElementsAre(1, 0, 1, 0, 1));
}

TEST(UsableCpus, AreTheCpusThatTheThreadIsPinnedTo) {
  const std::vector<uint32_t> all = usable_cpus();
  ASSERT_THAT(all, Not(IsEmpty()));
  EXPECT_GE(usable_cpu_count(), 1u);
  EXPECT_LE(usable_cpu_count(), all.size());
  EXPECT_EQ(cpu_places(all).size(), all.size());
  std::thread([&all] {
    ASSERT_TRUE(pin_this_thread(all.back()).ok());
    EXPECT_THAT(usable_cpus(), ElementsAre(all.back()));
    ASSERT_TRUE(restrict_this_thread(all).ok());
    EXPECT_EQ(usable_cpus(), all);
  }).join();
  EXPECT_EQ(usable_cpus(), all);
}

TEST(PinThisThread, RefusesACpuThatIsNotThere) {
  EXPECT_FALSE(pin_this_thread(8191).ok());
  EXPECT_EQ(pin_this_thread(1'000'000).code(), Code::kInvalidArgument);
}

TEST(RunAllThreadsAsUsual, TakesThreadsOutOfTheBackgroundWhereTheKernelAllowsIt) {
  std::binary_semaphore is_in_background(0);
  std::binary_semaphore end(0);
  pid_t id = 0;  // the policy that a pthread_t tells is the one that was set by it
  std::thread thread([&] {
    id = ::gettid();
    EXPECT_TRUE(run_this_thread_in_background().ok());
    is_in_background.release();
    end.acquire();
  });
  is_in_background.acquire();
  EXPECT_EQ(::sched_getscheduler(id), SCHED_IDLE);
  run_all_threads_as_usual();
  const int policy = ::sched_getscheduler(id);
  const sched_param parameters{};
  const bool may = ::sched_setscheduler(id, SCHED_OTHER, &parameters) == 0;
  EXPECT_EQ(policy, may ? SCHED_OTHER : SCHED_IDLE);
  end.release();
  thread.join();
}

TEST(NameThisThread, CutsALongName) {
  std::thread([] {
    name_this_thread("a-name-of-more-than-fifteen-bytes");
    char name[32] = {};
    ASSERT_EQ(::pthread_getname_np(::pthread_self(), name, sizeof(name)), 0);
    EXPECT_STREQ(name, "a-name-of-more-");
  }).join();
}

}  // namespace
}  // namespace lumen
