// Checks of the kernel's kind and limits. Threads, memory and errors: see checks.h.
#include "doctor/checks.h"

#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

namespace lumen::doctor {
namespace {

// The oldest that Lumen is built and tested for: Debian 12's.
constexpr uint64_t kLeastMajor = 6;
constexpr uint64_t kLeastMinor = 1;
// A read of the clock in user space takes 20 to 40 ns. One that is a system call takes 200 or more,
// and a request has about ten.
constexpr uint64_t kSlowClockNs = 100;
constexpr uint32_t kCapSysAdmin = 21;
constexpr uint32_t kCapPerfmon = 38;

// Hypervisors whose signature in CPUID is another name.
constexpr std::pair<std::string_view, std::string_view> kHypervisors[] = {
    {"KVMKVMKVM", "KVM"},    {"Microsoft Hv", "Hyper-V"},  {"VMwareVMware", "VMware"},
    {"XenVMMXenVMM", "Xen"}, {"TCGTCGTCGTCG", "QEMU TCG"}, {"VBoxVBoxVBox", "VirtualBox"},
};

std::string reason(int error) { return std::generic_category().message(error); }

// "6.18.44-fc": {6, 18}
std::optional<std::pair<uint64_t, uint64_t>> parse_release(std::string_view release) {
  const size_t dot = release.find('.');
  if (dot == release.npos) return std::nullopt;
  const size_t end = release.find_first_not_of("0123456789", dot + 1);
  const auto major = parse_number(release.substr(0, dot));
  const auto minor =
      parse_number(release.substr(dot + 1, end == release.npos ? end : end - dot - 1));
  if (!major || !minor) return std::nullopt;
  return std::pair(*major, *minor);
}

// Of this process; false where it can't be read.
bool has_capability(const Machine& machine, uint32_t number) {
  const Result<std::string> effective = machine.read_line("/proc/self/status", "CapEff:");
  if (!effective.ok()) return false;
  uint64_t bits = 0;
  const auto [end, error] =
      std::from_chars(effective->data(), effective->data() + effective->size(), bits, 16);
  return error == std::errc() && (bits >> number & 1) != 0;
}

}  // namespace

Finding check_kernel(const Machine& machine) {
  const Result<std::string> release = machine.read("/proc/sys/kernel/osrelease");
  if (!release.ok()) return unknown(release.status().message());
  const auto version = parse_release(*release);
  if (!version)
    return unknown("/proc/sys/kernel/osrelease: got '" + *release + "', wanted a version");
  if (*version >= std::pair(kLeastMajor, kLeastMinor)) return text(*release);
  return text(*release, "older than 6.1")
      .warn("boot a kernel of 6.1 or later (Debian 12, Ubuntu 24.04)",
            "Lumen is built and tested for these");
}

Finding check_virtualisation(const Machine& machine) {
  std::string name = machine.cpu_features().hypervisor;
  if (name.empty()) return text("none");
  for (const auto& [signature, known] : kHypervisors) {
    if (name == signature) name = known;
  }
  return text(name, "a virtual machine: its CPUs may move");
}

Finding check_clock_source(const Machine& machine) {
  const std::string folder = "/sys/devices/system/clocksource/clocksource0/";
  const Result<std::string> source = machine.read(folder + "current_clocksource");
  if (!source.ok()) return unknown(source.status().message());
  const uint64_t ns = machine.clock_read_ns();
  Finding found = text(*source, "a read takes " + std::to_string(ns) + " ns");
  if (*source == "tsc" || ns < kSlowClockNs) return found;
  const Result<std::string> others = machine.read(folder + "available_clocksource");
  const bool has_tsc = others.ok() && (" " + *others + " ").find(" tsc ") != std::string::npos;
  return std::move(found).warn(
      has_tsc ? "echo tsc | sudo tee " + folder + "current_clocksource"
              : "boot with the kernel parameters clocksource=tsc tsc=reliable",
      "a read of the clock takes 20 to 40 ns, and a request has about ten");
}

// Not a warning: epoll serves as well, as a rule.
Finding check_io_uring(const Machine& machine) {
  const int error = machine.io_uring();
  if (error == 0) return text("allowed", "lumen serve --loop io_uring works");
  Finding found = text("refused: " + reason(error), "not needed: lumen serve takes epoll then");
  const Result<uint64_t> disabled = machine.read_number("/proc/sys/kernel/io_uring_disabled");
  if (disabled.ok() && *disabled != 0) {
    found.note = "kernel.io_uring_disabled is " + std::to_string(*disabled) + "; " + found.note;
  }
  return found;
}

Finding check_membarrier(const Machine& machine) {
  const int error = machine.membarrier();
  if (error == 0) return text("private expedited");
  return text("refused: " + reason(error))
      .warn("allow membarrier in the container's seccomp profile",
            "readers of the cache and writers of shared buffers save a fence of 5 ns each");
}

Finding check_perf_events(const Machine& machine) {
  constexpr std::string_view kFile = "/proc/sys/kernel/perf_event_paranoid";
  const Result<std::string> level = machine.read(kFile);
  if (!level.ok()) return unknown(level.status().message());
  const bool is_negative = level->starts_with('-');
  const auto number = parse_number(std::string_view(*level).substr(is_negative ? 1 : 0));
  if (!number) return unknown(std::string(kFile) + ": got '" + *level + "', wanted a number");
  const double value = is_negative ? -static_cast<double>(*number) : static_cast<double>(*number);
  Finding found = doctor::number(value, "");
  if (has_capability(machine, kCapPerfmon) || has_capability(machine, kCapSysAdmin)) {
    found.note = "is the level; this user may count user space and kernel";
    return found;
  }
  if (value <= 1) {
    found.note = "is the level; own processes count, user space and kernel";
    return found;
  }
  found.note = value <= 2 ? "is the level; own processes count, user space alone"
                          : "is the level; nothing may be counted";
  return std::move(found).warn("sudo sysctl kernel.perf_event_paranoid=1",
                               "lumen perf counts the kernel's part and context switches too");
}

Finding check_hardware_counters(const Machine& machine) {
  const int error = machine.hardware_counter();
  if (error == 0) return text("available");
  if (error == EACCES || error == EPERM) {
    return unknown("perf_event_open: " + reason(error) + "; see perf events");
  }
  const bool is_virtual = !machine.cpu_features().hypervisor.empty();
  return text("none: " + reason(error))
      .warn(is_virtual ? "give the virtual machine a PMU (QEMU: -cpu host,pmu=on), or use metal"
                       : "load the kernel's PMU driver of this CPU (see dmesg | grep -i pmu)",
            "lumen perf counts cycles and cache misses, and need not simulate them");
}

}  // namespace lumen::doctor
