// Reads affinity, cgroup and topology; pins and names threads. Any thread; the heap, except for
// pinning and naming. Facts that the kernel won't tell are left out, only a refused pin is an
// error.
#include <lumen/base/cpu.h>

#include <lumen/base/text_file.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>

namespace lumen {
namespace {

// Kernels are built for up to 8192 CPUs; the fixed cpu_set_t holds 1024 and sched_getaffinity
// fails with EINVAL where the kernel's mask is wider.
constexpr int kMaxCpus = 8192;
constexpr const char* kCgroupMount = "/sys/fs/cgroup";

struct CpuSetFree {
  void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, CpuSetFree>;

// Empty where it can't be read.
std::string text_in(const std::filesystem::path& path) {
  Result<std::string> text = lumen::read_file(path);
  return text.ok() ? *std::move(text) : std::string();
}

std::optional<int64_t> parse_integer(std::string_view text) noexcept {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uint32_t> thousandths(std::optional<int64_t> quota, std::optional<int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;  // v1 says -1: none
  // Cut first: a quota beyond all CPUs must not overflow.
  const int64_t cut = std::min(*quota, kMaxCpus * std::min<int64_t>(*period, 1'000'000));
  return static_cast<uint32_t>(cut * 1000 / *period);
}

// "max 100000" or "150000 100000"
std::optional<uint32_t> quota_v2(const std::filesystem::path& group) {
  const std::string text = text_in(group / "cpu.max");
  const size_t space = text.find(' ');
  if (space == std::string::npos) return std::nullopt;
  return thousandths(parse_integer(std::string_view(text).substr(0, space)),
                     parse_integer(std::string_view(text).substr(space + 1)));
}

std::optional<uint32_t> quota_v1(const std::filesystem::path& group) {
  return thousandths(parse_integer(text_in(group / "cpu.cfs_quota_us")),
                     parse_integer(text_in(group / "cpu.cfs_period_us")));
}

// A quota binds all below it, so the answers of a group and of its ancestors are taken together.
// Inside a container the path may name a group that is not mounted here; then only the root, which
// is the container's own group, answers.
template <typename T, typename Read, typename Join>
std::optional<T> join_up_to_root(const std::filesystem::path& root, std::string_view group,
                                 Read read, Join join) {
  std::optional<T> joined;
  std::filesystem::path relative = std::filesystem::path(group).relative_path();
  for (;;) {
    if (const std::optional<T> one = read(root / relative)) {
      joined = joined ? join(*joined, *one) : *one;
    }
    if (relative.empty()) return joined;
    relative = relative.parent_path();
  }
}

bool names_cpu_controller(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

// Lines of /proc/self/cgroup are "id:controllers:path"; v2 has id 0 and no controllers. Both may be
// mounted. Of two places of one hierarchy the first that answers counts: "cpu" is commonly a link
// to "cpu,cpuacct".
template <typename T, typename ReadV2, typename ReadV1, typename Join>
std::optional<T> join_cgroups(const std::filesystem::path& mount, std::string_view self,
                              ReadV2 read_v2, ReadV1 read_v1, Join join) {
  std::optional<T> joined;
  while (!self.empty()) {
    const size_t end = std::min(self.find('\n'), self.size());
    const std::string_view line = self.substr(0, end);
    self.remove_prefix(std::min(end + 1, self.size()));
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view group = line.substr(second + 1);
    std::optional<T> one;
    if (controllers.empty()) {
      one = join_up_to_root<T>(mount, group, read_v2, join);
      if (!one) one = join_up_to_root<T>(mount / "unified", group, read_v2, join);
    } else if (names_cpu_controller(controllers)) {
      one = join_up_to_root<T>(mount / "cpu", group, read_v1, join);
      if (!one) one = join_up_to_root<T>(mount / controllers, group, read_v1, join);
    }
    if (one) joined = joined ? join(*joined, *one) : *one;
  }
  return joined;
}

uint32_t read_id(const std::filesystem::path& path, uint32_t fallback) {
  const auto value = parse_integer(text_in(path));
  return value && *value >= 0 ? static_cast<uint32_t>(*value) : fallback;
}

uint32_t node_of(const std::filesystem::path& cpu_directory) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(cpu_directory, error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("node")) continue;
    if (const auto node = parse_integer(std::string_view(name).substr(4))) {
      return static_cast<uint32_t>(*node);
    }
  }
  return 0;
}

}  // namespace

namespace {

// `thread`: 0 is the calling one.
std::vector<uint32_t> cpus_of(pid_t thread) {
  std::vector<uint32_t> cpus;
  const CpuSet set(CPU_ALLOC(kMaxCpus));
  const size_t bytes = CPU_ALLOC_SIZE(kMaxCpus);
  if (set != nullptr && ::sched_getaffinity(thread, bytes, set.get()) == 0) {
    for (uint32_t cpu = 0; cpu < kMaxCpus; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set.get())) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

}  // namespace

std::vector<uint32_t> usable_cpus() { return cpus_of(0); }

// The main thread's number is the process's.
std::vector<uint32_t> main_thread_cpus() { return cpus_of(::getpid()); }

std::optional<uint32_t> cgroup_cpu_thousandths(const std::filesystem::path& mount,
                                               std::string_view self) {
  return join_cgroups<uint32_t>(mount, self, quota_v2, quota_v1,
                                [](uint32_t a, uint32_t b) { return std::min(a, b); });
}

std::optional<uint32_t> cgroup_cpu_thousandths() {
  return cgroup_cpu_thousandths(kCgroupMount, text_in("/proc/self/cgroup"));
}

std::optional<uint32_t> cgroup_cpu_quota(const std::filesystem::path& mount,
                                         std::string_view self) {
  const auto quota = cgroup_cpu_thousandths(mount, self);
  return quota ? std::optional(std::max(*quota / 1000, 1u)) : std::nullopt;
}

std::optional<uint32_t> cgroup_cpu_quota() {
  return cgroup_cpu_quota(kCgroupMount, text_in("/proc/self/cgroup"));
}

ThrottlingMeter::ThrottlingMeter(const std::filesystem::path& mount, std::string_view self) {
  const auto open_one = [this](const std::filesystem::path& group, std::string_view key,
                               uint64_t divisor) -> std::optional<int> {
    File one{UniqueFd(::open((group / "cpu.stat").c_str(), O_RDONLY | O_CLOEXEC)), key, divisor};
    if (!one.fd.valid() || !value_of(one)) return std::nullopt;
    files_.push_back(std::move(one));
    return 0;
  };
  (void)join_cgroups<int>(
      mount, self, [&](const auto& group) { return open_one(group, "throttled_usec", 1); },
      [&](const auto& group) { return open_one(group, "throttled_time", 1000); }, std::plus<>());
}

ThrottlingMeter::ThrottlingMeter() : ThrottlingMeter(kCgroupMount, text_in("/proc/self/cgroup")) {}

// The sum, not the largest: it grows whichever of the quotas bites.
std::optional<uint64_t> ThrottlingMeter::read_us() const noexcept {
  std::optional<uint64_t> sum;
  for (const File& file : files_) {
    if (const auto value = value_of(file)) sum = sum.value_or(0) + *value;
  }
  return sum;
}

// The number behind the key in lines of "key number".
std::optional<uint64_t> ThrottlingMeter::value_of(const File& file) noexcept {
  std::array<char, 1024> text;  // the kernel's has at most 12 lines of 40 bytes
  const ssize_t size = ::pread(file.fd.get(), text.data(), text.size(), 0);
  for (std::string_view rest(text.data(), size < 0 ? 0 : static_cast<size_t>(size));
       !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t key = file.key.size();
    if (!line.starts_with(file.key) || line.size() <= key || line[key] != ' ') continue;
    const auto value = parse_integer(line.substr(key + 1));
    if (value && *value >= 0) return static_cast<uint64_t>(*value) / file.divisor;
  }
  return std::nullopt;
}

std::optional<uint64_t> cgroup_throttled_us(const std::filesystem::path& mount,
                                            std::string_view self) {
  return ThrottlingMeter(mount, self).read_us();
}

std::optional<uint64_t> cgroup_throttled_us() { return ThrottlingMeter().read_us(); }

std::vector<CpuPlace> cpu_places(const std::vector<uint32_t>& cpus) {
  std::vector<CpuPlace> places;
  places.reserve(cpus.size());
  for (const uint32_t cpu : cpus) {
    const std::filesystem::path directory = "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    places.push_back({.cpu = cpu,
                      .core = read_id(directory / "topology/core_id", cpu),
                      .package = read_id(directory / "topology/physical_package_id", 0),
                      .node = node_of(directory)});
  }
  return places;
}

std::string CpuBudget::text() const {
  return std::to_string(usable) + " of " + std::to_string(online) + " CPU" +
         (online == 1 ? "" : "s") + " usable, cgroup quota " +
         (quota ? std::to_string(*quota) : "none");
}

CpuBudget cpu_budget() {
  CpuBudget budget;
  budget.usable = static_cast<uint32_t>(usable_cpus().size());
  const auto online = static_cast<uint32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  budget.online = std::max(online, budget.usable);
  budget.quota = cgroup_cpu_quota();
  budget.count = std::min(budget.usable, budget.quota.value_or(budget.usable));
  return budget;
}

uint32_t usable_cpu_count() { return cpu_budget().count; }

std::vector<uint32_t> worker_cpus(uint32_t count, const std::vector<CpuPlace>& places) {
  struct Candidate {
    uint32_t sibling;  // 0: the first of its core in the order of choice
    uint32_t cpu;
  };
  std::vector<Candidate> candidates;
  for (const CpuPlace& place : places) {
    const auto same_core_above = [&place](const CpuPlace& other) {
      return other.cpu > place.cpu && other.core == place.core && other.package == place.package;
    };
    const auto sibling = std::ranges::count_if(places, same_core_above);
    candidates.push_back({static_cast<uint32_t>(sibling), place.cpu});
  }
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    return std::tie(a.sibling, b.cpu) < std::tie(b.sibling, a.cpu);
  });
  std::vector<uint32_t> chosen(candidates.empty() ? 0 : count);
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = candidates[i % candidates.size()].cpu;
  return chosen;
}

std::vector<uint32_t> worker_cpus(uint32_t count) {
  return worker_cpus(count, cpu_places(usable_cpus()));
}

namespace {

// `thread`: 0 is the calling one.
Status restrict_thread(pid_t thread, std::span<const uint32_t> cpus) noexcept {
  // On the stack (1 KiB) instead of CPU_ALLOC: pinning allocates nothing.
  alignas(cpu_set_t) std::array<unsigned char, kMaxCpus / 8> bits{};
  auto* set = reinterpret_cast<cpu_set_t*>(bits.data());
  for (const uint32_t cpu : cpus) {
    if (cpu >= kMaxCpus) {
      return Status::error(Code::kInvalidArgument, "pinning to CPU %u: wanted a number below %d",
                           cpu, kMaxCpus);
    }
    CPU_SET_S(cpu, bits.size(), set);
  }
  if (::sched_setaffinity(thread, bits.size(), set) != 0) {
    return Status::from_errno(errno,
                              "pinning thread to %zu CPUs from %u on (see taskset -p and the "
                              "cpuset)",
                              cpus.size(), cpus.empty() ? 0 : cpus.front());
  }
  return {};
}

}  // namespace

Status restrict_this_thread(std::span<const uint32_t> cpus) noexcept {
  return restrict_thread(0, cpus);
}

Status restrict_main_thread(std::span<const uint32_t> cpus) noexcept {
  return restrict_thread(::getpid(), cpus);
}

Status pin_this_thread(uint32_t cpu) noexcept { return restrict_this_thread({&cpu, 1}); }

void ask_for_time_slice(uint64_t ns) noexcept {
  // glibc has it from 2.41 on; the first form, which all kernels take.
  struct SchedAttr {
    uint32_t size = sizeof(SchedAttr);
    uint32_t policy = SCHED_OTHER;
    uint64_t flags = 0;
    int32_t nice = 0;
    uint32_t priority = 0;
    uint64_t runtime = 0;
    uint64_t deadline = 0;
    uint64_t period = 0;
  } attributes;
  static_assert(sizeof(SchedAttr) == 48);
  attributes.nice = ::getpriority(PRIO_PROCESS, 0);
  attributes.runtime = ns;
  (void)::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

Status run_this_thread_in_background() noexcept {
  const sched_param parameters{};  // 0, the only priority that this policy has
  const int error = ::pthread_setschedparam(::pthread_self(), SCHED_IDLE, &parameters);
  if (error == 0) return {};
  return Status::from_errno(error, "pthread_setschedparam(SCHED_IDLE)");
}

void run_all_threads_as_usual() noexcept {
  const sched_param parameters{};
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir("/proc/self/task"), ::closedir);
  if (tasks == nullptr) return;
  while (const dirent* const task = ::readdir(tasks.get())) {
    pid_t thread = 0;
    const std::string_view name(task->d_name);
    const char* const end = name.data() + name.size();
    if (std::from_chars(name.data(), end, thread).ptr != end) continue;  // "." and ".."
    // One that has ended meanwhile is no error.
    if (::sched_getscheduler(thread) == SCHED_IDLE) {
      (void)::sched_setscheduler(thread, SCHED_OTHER, &parameters);
    }
  }
}

void name_this_thread(std::string_view name) noexcept {
  char text[16] = {};  // the kernel's limit with its end; a longer one is refused with ERANGE
  std::memcpy(text, name.data(), std::min(name.size(), sizeof(text) - 1));
  (void)::pthread_setname_np(::pthread_self(), text);
}

}  // namespace lumen
