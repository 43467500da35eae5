// The doctor's checks of the kernel, each where all is well, where not, and where it can't be
// known.
#include "made_up_machine.h"

#include <cerrno>

namespace lumen::doctor {
namespace {

class KernelChecks : public MadeUpMachine {};

TEST_F(KernelChecks, KernelOfDebian12IsNewEnough) {
  write("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
  const Finding found = check_kernel(machine);
  expect_ok(found);
  EXPECT_EQ(value_of(found), "6.1.0-18-amd64");
}

TEST_F(KernelChecks, KernelsAreComparedByNumberNotByText) {
  write("/proc/sys/kernel/osrelease", "10.0-rc1");
  expect_ok(check_kernel(machine));
  write("/proc/sys/kernel/osrelease", "5.15.0-91-generic");
  expect_warning(check_kernel(machine), "6.1");
  write("/proc/sys/kernel/osrelease", "6.0");
  expect_warning(check_kernel(machine), "6.1");
}

TEST_F(KernelChecks, KernelWithoutAReleaseIsUnknown) {
  expect_unknown(check_kernel(machine), "/proc/sys/kernel/osrelease: No such file");
  write("/proc/sys/kernel/osrelease", "sixth");
  expect_unknown(check_kernel(machine), "got 'sixth'");
}

TEST_F(KernelChecks, HypervisorIsNamedAsPeopleDo) {
  EXPECT_EQ(value_of(check_virtualisation(machine)), "none");
  features.hypervisor = "KVMKVMKVM";
  EXPECT_EQ(value_of(check_virtualisation(machine)), "KVM");
  features.hypervisor = "bhyve bhyve ";
  EXPECT_EQ(value_of(check_virtualisation(machine)), "bhyve bhyve ");
}

constexpr const char* kClock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
constexpr const char* kClocks =
    "/sys/devices/system/clocksource/clocksource0/available_clocksource";

TEST_F(KernelChecks, ClockSourceThatIsReadInUserSpaceIsOk) {
  write(kClock, "tsc\n");
  expect_ok(check_clock_source(machine));
  write(kClock, "kvm-clock\n");
  expect_ok(check_clock_source(machine));
}

TEST_F(KernelChecks, SlowClockSourceIsMendedByTscWhereThereIsOne) {
  machine.clock_read_ns = [] { return uint64_t{800}; };
  write(kClock, "hpet\n");
  expect_warning(check_clock_source(machine), "tsc=reliable");
  write(kClocks, "hpet tsc acpi_pm\n");
  expect_warning(check_clock_source(machine), "echo tsc | sudo tee");
}

TEST_F(KernelChecks, ClockSourceWithoutSysfsIsUnknown) {
  expect_unknown(check_clock_source(machine), "current_clocksource: No such file");
}

TEST_F(KernelChecks, RefusedIoUringIsSaidWithItsReasonAndNeedsNoMend) {
  EXPECT_EQ(value_of(check_io_uring(machine)), "allowed");
  machine.io_uring = [] { return EPERM; };
  write("/proc/sys/kernel/io_uring_disabled", "2\n");
  const Finding found = check_io_uring(machine);
  expect_ok(found);
  EXPECT_EQ(value_of(found), "refused: Operation not permitted");
  EXPECT_NE(found.note.find("kernel.io_uring_disabled is 2"), std::string::npos);
}

TEST_F(KernelChecks, RefusedMembarrierIsAWarning) {
  expect_ok(check_membarrier(machine));
  machine.membarrier = [] { return EPERM; };
  expect_warning(check_membarrier(machine), "seccomp");
}

constexpr const char* kParanoid = "/proc/sys/kernel/perf_event_paranoid";

TEST_F(KernelChecks, PerfEventsAreJudgedByLevelAndCapability) {
  use_cpus("0-1");
  write(kParanoid, "-1\n");
  const Finding found = check_perf_events(machine);
  expect_ok(found);
  EXPECT_EQ(number_of(found), -1);
  write(kParanoid, "2\n");
  expect_warning(check_perf_events(machine), "sysctl kernel.perf_event_paranoid=1");
  use_cpus("0-1", "0000004000000000");  // CAP_PERFMON alone
  expect_ok(check_perf_events(machine));
}

TEST_F(KernelChecks, PerfEventsWithoutALevelAreUnknown) {
  expect_unknown(check_perf_events(machine), kParanoid);
  write(kParanoid, "high\n");
  expect_unknown(check_perf_events(machine), "got 'high'");
}

TEST_F(KernelChecks, MissingHardwareCountersAreMendedByKindOfMachine) {
  expect_ok(check_hardware_counters(machine));
  machine.hardware_counter = [] { return ENOENT; };
  expect_warning(check_hardware_counters(machine), "PMU driver");
  features.hypervisor = "KVMKVMKVM";
  expect_warning(check_hardware_counters(machine), "pmu=on");
}

TEST_F(KernelChecks, ForbiddenHardwareCountersAreUnknown) {
  machine.hardware_counter = [] { return EACCES; };
  expect_unknown(check_hardware_counters(machine), "Permission denied");
}

}  // namespace
}  // namespace lumen::doctor
