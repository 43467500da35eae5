// CPUs, quotas and pinning: the files of cgroups v1 and v2 as kernels write them.
#include <lumen/base/cpu.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <stdlib.h>

#include <fstream>
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

TEST(UsableCpus, AreWhatTheThreadIsPinnedTo) {
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
