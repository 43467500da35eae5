// Reads the setting, decides, and claims CPUs by names in the kernel. Control plane; the heap. A
// name that can't be had for another reason than a server that has it (no descriptor left, say)
// counts as taken.
#include <lumen/base/cpu_pinning.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <utility>

namespace lumen {
namespace {

// As many as the kernel's masks hold; see cpu.cc.
constexpr uint32_t kMaxCpus = 8192;
// The inode of the machine's first PID namespace (PROC_PID_INIT_INO of linux/proc_ns.h).
constexpr std::string_view kFirstPidNamespace = "pid:[4026531836]";

Status refuse(std::string_view text, const char* why) {
  return Status::error(Code::kInvalidArgument,
                       "got '%.*s'%s, wanted auto, on, off, or a list of CPUs as 0,2-3",
                       static_cast<int>(text.size()), text.data(), why);
}

std::optional<uint32_t> parse_cpu(std::string_view text) noexcept {
  uint32_t cpu = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), cpu);
  if (error != std::errc() || end != text.data() + text.size() || cpu >= kMaxCpus) {
    return std::nullopt;
  }
  return cpu;
}

std::string listed(const std::vector<uint32_t>& cpus) {
  std::string text;
  for (const uint32_t cpu : cpus) {
    text.append(text.empty() ? "" : ", ").append(std::to_string(cpu));
  }
  return text;
}

}  // namespace

std::string PinThreads::text() const {
  constexpr std::array<std::string_view, 3> kNames = {"auto", "on", "off"};
  if (mode != Mode::kList) return std::string(kNames[static_cast<size_t>(mode)]);
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text.append(text.empty() ? "" : ",").append(std::to_string(cpus[i]));
    if (last > i) text.append("-").append(std::to_string(cpus[last]));
    i = last + 1;
  }
  return text;
}

Result<PinThreads> parse_pin_threads(std::string_view text) {
  using Mode = PinThreads::Mode;
  if (text == "auto") return PinThreads{};
  if (text == "on") return PinThreads{.mode = Mode::kOn, .cpus = {}};
  if (text == "off") return PinThreads{.mode = Mode::kOff, .cpus = {}};
  PinThreads parsed{.mode = Mode::kList, .cpus = {}};
  for (std::string_view rest = text;;) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    const size_t dash = std::min(part.find('-'), part.size());
    const auto first = parse_cpu(part.substr(0, dash));
    const auto last = dash == part.size() ? first : parse_cpu(part.substr(dash + 1));
    if (!first || !last || *last < *first) return refuse(text, "");
    for (uint32_t cpu = *first; cpu <= *last; ++cpu) {
      if (std::ranges::find(parsed.cpus, cpu) != parsed.cpus.end()) {
        return refuse(text, " with a CPU twice");
      }
      parsed.cpus.push_back(cpu);
    }
    if (comma == rest.size()) return parsed;
    rest.remove_prefix(comma + 1);
  }
}

PinFacts read_pin_facts() {
  const CpuBudget budget = cpu_budget();
  std::array<char, 64> name;
  const ssize_t size = ::readlink("/proc/self/ns/pid", name.data(), name.size());
  return {.online = budget.online,
          .usable = budget.usable,
          .quota_thousandths = cgroup_cpu_thousandths(),
          .sees_machine = size > 0 && std::string_view(name.data(), static_cast<size_t>(size)) ==
                                          kFirstPidNamespace};
}

std::string reason_not_to_pin(const PinFacts& facts) {
  if (facts.quota_thousandths && *facts.quota_thousandths < facts.usable * 1000) {
    return "the cgroup's quota counts time, not CPUs, and is below the " +
           std::to_string(facts.usable) + " that may be used";
  }
  if (!facts.sees_machine && facts.usable == facts.online) {
    return "a container with all CPUs of the machine does not see the other users of these CPUs";
  }
  return {};
}

bool CpuClaims::take(uint32_t cpu) {
  const auto held = std::ranges::find(claims_, cpu, &Claim::cpu);
  if (held != claims_.end()) {
    ++held->holders;
    return true;
  }
  const std::string name = prefix_ + std::to_string(cpu);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // The first byte stays 0: an abstract name, which is no file.
  if (name.size() > sizeof(address.sun_path) - 1) return false;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    return false;
  }
  claims_.push_back({cpu, 1, std::move(socket)});
  return true;
}

bool CpuClaims::has(uint32_t cpu) const {
  return std::ranges::find(claims_, cpu, &Claim::cpu) != claims_.end();
}

void CpuClaims::give_back(uint32_t cpu) {
  const auto held = std::ranges::find(claims_, cpu, &Claim::cpu);
  if (held != claims_.end() && --held->holders == 0) claims_.erase(held);
}

PinnedCpus::PinnedCpus(const PinThreads& wanted, const PinFacts& facts,
                       const std::vector<CpuPlace>& places, uint32_t threads,
                       std::shared_ptr<CpuClaims> claims)
    : claims_(std::move(claims)) {
  using Mode = PinThreads::Mode;
  std::vector<uint32_t> best_first = worker_cpus(static_cast<uint32_t>(places.size()), places);
  std::ranges::stable_partition(best_first, [this](uint32_t cpu) { return claims_->has(cpu); });
  switch (wanted.mode) {
    case Mode::kAuto: {
      const std::string reason = reason_not_to_pin(facts);
      if (reason.empty()) {
        pin_to_free(best_first, threads);
      } else {
        text_ = "not pinned: " + reason;
      }
      break;
    }
    case Mode::kOn: pin_to(best_first, threads); break;
    case Mode::kOff: text_ = "not pinned"; break;
    case Mode::kList:
      cpus_ = wanted.cpus;
      cpus_.resize(std::min<size_t>(cpus_.size(), threads));
      for (const uint32_t cpu : cpus_) {
        if (claims_->take(cpu)) held_.push_back(cpu);
      }
      text_ = pinned_text();
      break;
  }
}

// All or none: beside pinned threads, which can't give way, some that float would wait while
// another CPU is free.
void PinnedCpus::pin_to_free(const std::vector<uint32_t>& candidates, uint32_t threads) {
  for (const uint32_t cpu : candidates) {
    if (held_.size() == threads) break;
    if (claims_->take(cpu)) held_.push_back(cpu);
  }
  if (held_.size() == threads) {
    cpus_ = held_;
    text_ = pinned_text();
    return;
  }
  text_ = "not pinned: " + std::to_string(threads) + (threads == 1 ? " thread" : " threads") +
          ", and " + std::to_string(held_.size()) + " of " + std::to_string(candidates.size()) +
          " CPUs free of other Lumen servers";
  give_back();
}

// Those that no other server has before those that one has; then round again.
void PinnedCpus::pin_to(const std::vector<uint32_t>& candidates, uint32_t threads) {
  std::vector<uint32_t> taken;
  for (const uint32_t cpu : candidates) {
    if (cpus_.size() == threads) break;
    const bool is_free = claims_->take(cpu);
    if (is_free) held_.push_back(cpu);
    (is_free ? cpus_ : taken).push_back(cpu);
  }
  taken.resize(std::min<size_t>(taken.size(), threads - cpus_.size()));
  cpus_.insert(cpus_.end(), taken.begin(), taken.end());
  text_ = pinned_text();
}

std::string PinnedCpus::pinned_text() const {
  std::string text =
      std::string("pinned to CPU") + (cpus_.size() == 1 ? " " : "s ") + listed(cpus_);
  std::vector<uint32_t> shared;
  for (const uint32_t cpu : cpus_) {
    if (std::ranges::find(held_, cpu) == held_.end()) shared.push_back(cpu);
  }
  if (!shared.empty()) text += " (another Lumen server has " + listed(shared) + ")";
  return text;
}

PinnedCpus& PinnedCpus::operator=(PinnedCpus&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  claims_ = std::move(other.claims_);
  held_ = std::exchange(other.held_, {});
  cpus_ = std::exchange(other.cpus_, {});
  text_ = std::move(other.text_);
  return *this;
}

void PinnedCpus::give_back() noexcept {
  for (const uint32_t cpu : held_) claims_->give_back(cpu);
  held_.clear();
}

PinnedCpus pin_cpus(const PinThreads& wanted, uint32_t threads, std::shared_ptr<CpuClaims> claims) {
  return {wanted, read_pin_facts(), cpu_places(usable_cpus()), threads, std::move(claims)};
}

}  // namespace lumen
