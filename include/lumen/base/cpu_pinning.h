// Which threads are pinned to which CPUs: the setting `pin_threads`, the facts from which `auto`
// decides, and the claims by which several Lumen servers on one machine keep out of each other's
// way.
// Threads: PinThreads and PinFacts are values; CpuClaims and PinnedCpus by one thread at a time
// (the control plane). Memory: the heap; a descriptor for each claimed CPU.
// Errors: parse_pin_threads() by Status; a CPU that can't be had leaves its thread unpinned, and
// text() says why.
#pragma once

#include <lumen/base/cpu.h>
#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lumen {

// The setting: auto, on, off, or a list ("0,2-3").
struct PinThreads {
  enum class Mode : uint8_t { kAuto, kOn, kOff, kList };
  Mode mode = Mode::kAuto;
  std::vector<uint32_t> cpus{};  // of a list, in the order in which threads get them

  [[nodiscard]] bool operator==(const PinThreads&) const = default;
  // As parse_pin_threads() takes it.
  [[nodiscard]] std::string text() const;
};
[[nodiscard]] Result<PinThreads> parse_pin_threads(std::string_view text);

// All that `auto` decides from, beside the claims.
struct PinFacts {
  uint32_t online = 1;                          // CPUs of the machine
  uint32_t usable = 1;                          // by affinity
  std::optional<uint32_t> quota_thousandths{};  // of the cgroup
  // The process is in the machine's first PID namespace, so in no container: the other servers of
  // the machine can be seen.
  bool sees_machine = true;
};
[[nodiscard]] PinFacts read_pin_facts();

// Why `auto` pins nothing, even if CPUs are free; empty: it may pin.
[[nodiscard]] std::string reason_not_to_pin(const PinFacts& facts);

// The CPUs that one server has taken for itself. A claim is a unix socket bound to the abstract
// name "lumen-cpu-N": the kernel keeps the names, lets one socket have each, and forgets it when
// its process ends, however that happens; no file can be left over and no folder must be writable.
// The names are those of a network namespace: servers in containers of their own don't see each
// other's.
class CpuClaims {
 public:
  explicit CpuClaims(std::string prefix = "lumen-cpu-") : prefix_(std::move(prefix)) {}

  // One holder more; false: another server has it. Of one server several may hold a CPU: while its
  // configuration changes, the old workers and the new.
  [[nodiscard]] bool take(uint32_t cpu);
  void give_back(uint32_t cpu);
  [[nodiscard]] bool has(uint32_t cpu) const;

 private:
  struct Claim {
    uint32_t cpu;
    uint32_t holders;
    UniqueFd name;
  };
  const std::string prefix_;
  std::vector<Claim> claims_;
};

// The CPUs of a group of threads. Those that the server has already come first, so that a change of
// configuration moves no thread whose caches are warm. Gives its claims back when it ends.
class PinnedCpus {
 public:
  PinnedCpus() = default;
  PinnedCpus(const PinThreads& wanted, const PinFacts& facts, const std::vector<CpuPlace>& places,
             uint32_t threads, std::shared_ptr<CpuClaims> claims);
  PinnedCpus(PinnedCpus&&) noexcept = default;
  PinnedCpus& operator=(PinnedCpus&& other) noexcept;
  ~PinnedCpus() { give_back(); }

  // nullopt: it runs wherever the process may.
  [[nodiscard]] std::optional<uint32_t> of(uint32_t thread) const noexcept {
    return cpus_.empty() ? std::nullopt : std::optional(cpus_[thread % cpus_.size()]);
  }
  // "pinned to CPUs 1, 0", "not pinned: ..."
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  void pin_to_free(const std::vector<uint32_t>& candidates, uint32_t threads);
  void pin_to(const std::vector<uint32_t>& candidates, uint32_t threads);
  [[nodiscard]] std::string pinned_text() const;
  void give_back() noexcept;

  std::shared_ptr<CpuClaims> claims_;
  std::vector<uint32_t> held_;  // claims to give back
  std::vector<uint32_t> cpus_;  // of thread 0, 1, ...; empty: none is pinned
  std::string text_ = "not pinned";
};

// The same with the facts that this process sees now.
[[nodiscard]] PinnedCpus pin_cpus(const PinThreads& wanted, uint32_t threads,
                                  std::shared_ptr<CpuClaims> claims);

}  // namespace lumen
