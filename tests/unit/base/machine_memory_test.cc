// machine_memory() on trees of files as kernels and containers show them.
// Threads: the test's. Memory: files in a temporary folder. Errors: by gtest.
#include <lumen/base/machine_memory.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace lumen {
namespace {

class MachineMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "lumen-memory-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    write("proc/meminfo", "MemTotal:       16000000 kB\nMemFree:          100 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  [[nodiscard]] MachineMemory got() const { return machine_memory(root_); }
  // In a group whose limit is `text`, by files in which stands more than is understood.
  [[nodiscard]] size_t bytes_with_limit(const std::string& text) const {
    write("proc/self/cgroup", "nonsense\n:\n0::/user.slice\n");
    write("sys/fs/cgroup/user.slice/memory.max", text);
    return got().bytes;
  }

  static constexpr size_t kMachine = 16'000'000ull * 1024;
  std::filesystem::path root_;
};

TEST_F(MachineMemoryTest, WithoutGroupsItIsTheMachines) {
  EXPECT_EQ(got().bytes, kMachine);
  EXPECT_EQ(got().source, "this machine's memory");
}

TEST_F(MachineMemoryTest, AGroupThatSaysMaxLimitsNothing) {
  EXPECT_EQ(bytes_with_limit("max\n"), kMachine);
}

TEST_F(MachineMemoryTest, AContainersOwnGroupIsMountedAsTheRoot) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "536870912\n");
  EXPECT_EQ(got().bytes, size_t{512} << 20);
  EXPECT_THAT(got().source, testing::EndsWith("sys/fs/cgroup/memory.max"));
}

TEST_F(MachineMemoryTest, TheSmallestOfTheGroupsAroundItCounts) {
  write("proc/self/cgroup", "0::/a/b/c\n");
  write("sys/fs/cgroup/a/memory.max", "1000000\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/c/memory.max", "3000000\n");
  EXPECT_EQ(got().bytes, 1'000'000u);
}

TEST_F(MachineMemoryTest, Version1SaysNoLimitByAHugeNumber) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n0::/\n");
  write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(got().bytes, kMachine);
  write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "2097152\n");
  EXPECT_EQ(got().bytes, 2'097'152u);
}

TEST_F(MachineMemoryTest, FilesOfAnotherFormLimitNothing) {
  EXPECT_EQ(bytes_with_limit("many\n"), kMachine);
}

TEST(MachineMemory, ThisMachineHasSome) { EXPECT_GT(machine_memory().bytes, size_t{64} << 20); }

TEST_F(MachineMemoryTest, UnusedIsTheRestOfTheGroupWithoutUnusedFilePages) {
  write("proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable:  8000000 kB\n");
  EXPECT_EQ(unused_memory(root_).bytes, 8'000'000ull * 1024);
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "1000000\n");
  write("sys/fs/cgroup/a/memory.current", "900000\n");
  EXPECT_EQ(unused_memory(root_).bytes, 100'000u);
  write("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 300000\nactive_file 7\n");
  EXPECT_EQ(unused_memory(root_).bytes, 400'000u);
  EXPECT_THAT(unused_memory(root_).source, testing::EndsWith("a/memory.max"));
  EXPECT_EQ(got().bytes, 1'000'000u);
  write("sys/fs/cgroup/a/memory.current", "2000000\n");
  write("sys/fs/cgroup/a/memory.stat", "");
  EXPECT_EQ(unused_memory(root_).bytes, 0u) << "a limit that was lowered below what is in use";
}

TEST_F(MachineMemoryTest, UnusedKnowsTheFilesOfVersionOne) {
  write("proc/self/cgroup", "9:cpu:/b\n4:memory:/a\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000\n");
  write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "900000\n");
  write("sys/fs/cgroup/memory/a/memory.stat", "inactive_file 5\ntotal_inactive_file 200000\n");
  EXPECT_EQ(unused_memory(root_).bytes, 300'000u);
}

TEST_F(MachineMemoryTest, AMachineThatPromisesNoMoreThanItHasLimitsAddresses) {
  write("proc/meminfo", "CommitLimit:    8000 kB\nCommitted_AS:   3000 kB\n");
  for (const char* may_promise_more : {"0\n", "1\n"}) {
    write("proc/sys/vm/overcommit_memory", may_promise_more);
    EXPECT_NE(unused_addresses(root_).limit, "vm.overcommit_memory 2");
  }
  write("proc/sys/vm/overcommit_memory", "2\n");
  EXPECT_EQ(unused_addresses(root_).bytes, size_t{5000} * 1024);
  EXPECT_EQ(unused_addresses(root_).limit, "vm.overcommit_memory 2");
  write("proc/meminfo", "CommitLimit:    8000 kB\nCommitted_AS:   9000 kB\n");
  EXPECT_EQ(unused_addresses(root_).bytes, 0u) << "promised before the limit was set";
}

}  // namespace
}  // namespace lumen
