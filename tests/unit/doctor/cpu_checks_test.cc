// The doctor's checks of CPUs: which may be used, quota, siblings, clock, nodes, distance,
// wake-ups.
#include "made_up_machine.h"

#include <string>
#include <vector>

namespace lumen::doctor {
namespace {

class CpuChecks : public MadeUpMachine {
 protected:
  void place(uint32_t cpu, std::string_view siblings) const {
    write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
          siblings);
  }
};

TEST_F(CpuChecks, ListsOfCpusAreReadAsTheKernelWritesThem) {
  EXPECT_EQ(parse_cpu_list("0-2,7"), (std::vector<uint32_t>{0, 1, 2, 7}));
  for (const char* bad : {"", "1-", "-1", "2-1", "a", "0-99999"}) {
    EXPECT_EQ(parse_cpu_list(bad), std::nullopt) << bad;
  }
}

TEST_F(CpuChecks, OneCpuOfManyIsAMatterOfTheSet) {
  use_cpus("3");
  write("/sys/devices/system/cpu/online", "0-3\n");
  expect_warning(check_cpus(machine), "taskset");
  write("/sys/devices/system/cpu/online", "3\n");
  expect_warning(check_cpus(machine), "2 CPUs or more");
}

TEST_F(CpuChecks, TwoCpusAreEnough) {
  use_cpus("0,2");
  write("/sys/devices/system/cpu/online", "0-3\n");
  const Finding found = check_cpus(machine);
  expect_ok(found);
  EXPECT_EQ(number_of(found), 2);
  EXPECT_EQ(found.note, "usable, of 4 online");
}

TEST_F(CpuChecks, WithoutTheProcessesStatusAllThatNeedsItIsUnknown) {
  for (const auto check :
       {check_cpus, check_smt, check_governor, check_numa, check_core_distance, check_wake_up}) {
    expect_unknown(check(machine), "/proc/self/status: No such file");
  }
  write("/proc/self/status", "Cpus_allowed_list:\tnone\n");
  expect_unknown(check_cpus(machine), "got 'none'");
}

TEST_F(CpuChecks, QuotaBelowTheCpusIsAWarning) {
  use_cpus("0-1");
  write("/proc/self/cgroup", "0::/app\n");
  write("/sys/fs/cgroup/app/cpu.max", "max 100000\n");
  EXPECT_EQ(value_of(check_cpu_quota(machine)), "none");
  write("/sys/fs/cgroup/app/cpu.max", "200000 100000\n");
  expect_ok(check_cpu_quota(machine));
  write("/sys/fs/cgroup/app/cpu.max", "150000 100000\n");
  const Finding found = check_cpu_quota(machine);
  expect_warning(found, "--cpuset-cpus");
  EXPECT_DOUBLE_EQ(number_of(found), 1.5);
}

TEST_F(CpuChecks, ThrottlingSoFarIsAWarning) {
  write("/proc/self/cgroup", "0::/app\n");
  write("/sys/fs/cgroup/app/cpu.stat", "usage_usec 5\nthrottled_usec 0\n");
  expect_ok(check_cpu_throttling(machine));
  write("/sys/fs/cgroup/app/cpu.stat", "usage_usec 5\nthrottled_usec 2500\n");
  const Finding found = check_cpu_throttling(machine);
  expect_warning(found, "raise the quota");
  EXPECT_EQ(number_of(found), 2'500'000);
}

TEST_F(CpuChecks, GroupsThatCantBeReadAreUnknown) {
  for (const auto check : {check_cpu_quota, check_cpu_throttling}) {
    expect_unknown(check(machine), "/proc/self/cgroup: No such file");
  }
  write("/proc/self/cgroup", "0::/app\n");
  for (const auto check : {check_cpu_quota, check_cpu_throttling}) {
    expect_unknown(check(machine), "/sys/fs/cgroup: not mounted");
  }
  write("/sys/fs/cgroup/app/cgroup.procs", "");
  expect_unknown(check_cpu_throttling(machine), "no cpu.stat");
}

TEST_F(CpuChecks, SiblingsCountOnlyWhereBothAreInUse) {
  use_cpus("0,1");
  place(0, "0,2\n");
  place(1, "1,3\n");
  expect_ok(check_smt(machine));
  use_cpus("0-2");
  place(2, "0,2\n");
  expect_warning(check_smt(machine), "--thread-count 2");
}

TEST_F(CpuChecks, SiblingsThatCantBeReadAreUnknown) {
  use_cpus("0-1");
  expect_unknown(check_smt(machine), "thread_siblings_list: No such file");
  place(0, "nobody\n");
  expect_unknown(check_smt(machine), "got 'nobody'");
}

TEST_F(CpuChecks, GovernorsOtherThanPerformanceAreAWarning) {
  use_cpus("0-1");
  write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
  write("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n");
  expect_ok(check_governor(machine));
  write("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
  const Finding found = check_governor(machine);
  expect_warning(found, "cpupower frequency-set");
  EXPECT_EQ(value_of(found), "performance, powersave");
}

TEST_F(CpuChecks, WithoutCpufreqThereIsNoGovernorAndThatIsSaid) {
  use_cpus("0-1");
  expect_unknown(check_governor(machine), "/sys/devices/system/cpu/: not mounted");
  write("/sys/devices/system/cpu/online", "0-1\n");
  const Finding found = check_governor(machine);
  expect_ok(found);
  EXPECT_EQ(value_of(found), "none");
  // A path that is there and can't be read as a file.
  std::filesystem::create_directories(machine.root /
                                      "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  expect_unknown(check_governor(machine), "Is a directory");
}

TEST_F(CpuChecks, NodesCountWhereTheirCpusAreInUse) {
  use_cpus("0-1");
  expect_unknown(check_numa(machine), "/sys/devices/system/node/online: No such file");
  write("/sys/devices/system/node/online", "0-2\n");
  write("/sys/devices/system/node/node0/cpulist", "0-3\n");
  write("/sys/devices/system/node/node1/cpulist", "4-7\n");
  write("/sys/devices/system/node/node2/cpulist", "\n");
  const Finding found = check_numa(machine);
  expect_ok(found);
  EXPECT_EQ(number_of(found), 1);
  use_cpus("3-4");
  expect_warning(check_numa(machine), "numactl --cpunodebind=0 --membind=0");
}

TEST_F(CpuChecks, FarCoresAreMendedByTheNearestPair) {
  use_cpus("0-2");
  expect_ok(check_core_distance(machine));
  machine.core_distance_ns = [](uint32_t a, uint32_t b) -> std::optional<uint64_t> {
    return a == 1 && b == 2 ? 30 : 200;
  };
  const Finding found = check_core_distance(machine);
  expect_warning(found, "taskset -c 1,2 lumen serve");
  EXPECT_EQ(number_of(found), 200);
  machine.core_distance_ns = [](uint32_t, uint32_t) { return std::optional<uint64_t>(200); };
  expect_warning(check_core_distance(machine), "--queue-type inline");
}

TEST_F(CpuChecks, OfManyCpusSomePairsAreMeasuredTheLastCpusToo) {
  use_cpus("0-63");
  std::vector<std::pair<uint32_t, uint32_t>> asked;
  machine.core_distance_ns = [&asked](uint32_t a, uint32_t b) -> std::optional<uint64_t> {
    asked.emplace_back(a, b);
    return 30;
  };
  expect_ok(check_core_distance(machine));
  EXPECT_EQ(asked.size(), 16u);
  EXPECT_EQ(asked.front(), std::pair(0u, 1u));
  EXPECT_GT(asked.back().first, 30u);
}

TEST_F(CpuChecks, DistanceThatCantBeMeasuredIsUnknown) {
  use_cpus("0");
  expect_unknown(check_core_distance(machine), "one CPU");
  expect_unknown(check_wake_up(machine), "one CPU");
  use_cpus("0-1");
  machine.core_distance_ns = [](uint32_t, uint32_t) { return std::optional<uint64_t>(); };
  expect_unknown(check_core_distance(machine), "busy");
}

TEST_F(CpuChecks, SlowWakeUpsAreMendedByKindOfMachine) {
  use_cpus("0-1");
  expect_ok(check_wake_up(machine));
  machine.wake_up_ns = [](uint32_t, uint32_t) { return std::optional<uint64_t>(90'000); };
  expect_warning(check_wake_up(machine), "cpupower idle-set");
  features.hypervisor = "KVMKVMKVM";
  expect_warning(check_wake_up(machine), "haltpoll");
  machine.wake_up_ns = [](uint32_t, uint32_t) { return std::optional<uint64_t>(); };
  expect_unknown(check_wake_up(machine), "busy");
}

TEST_F(CpuChecks, MissingAvx2IsAWarningAndNoOtherSetIs) {
  for (const auto check : {check_avx2, check_avx512, check_vnni, check_amx}) {
    const Finding found = check(machine);
    expect_ok(found);
    EXPECT_EQ(value_of(found), "yes");
  }
  features = {};
  expect_warning(check_avx2(machine), "x86-64-v3");
  for (const auto check : {check_avx512, check_vnni, check_amx}) {
    const Finding found = check(machine);
    expect_ok(found);
    EXPECT_EQ(value_of(found), "no");
  }
}

TEST_F(CpuChecks, AmxThatTheKernelDoesNotGrantIsAWarning) {
  machine.amx_permission = [] { return EOPNOTSUPP; };
  const Finding found = check_amx(machine);
  expect_warning(found, "5.16");
  EXPECT_NE(found.note.find("not supported"), std::string::npos) << found.note;
}

}  // namespace
}  // namespace lumen::doctor
