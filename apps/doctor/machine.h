// Machine: everything that the checks of `lumen doctor` ask: files below a root, and calls of the
// kernel and of the CPU. Tests bring a root and answers of their own.
// Threads: main; the probes of distance and wake-ups make two that end with the call.
// Memory: strings. Errors: Result with the path and the reason; probes say theirs as an errno.
#pragma once

#include <lumen/base/result.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::doctor {

struct FileSystem {
  bool is_tmpfs = false;
  uint64_t bytes = 0;
  uint64_t free_bytes = 0;
};

// By CPUID; AVX only where the operating system keeps its registers too.
struct CpuFeatures {
  bool avx2 = false;
  bool avx512f = false;
  bool avx512_vnni = false;
  bool avx_vnni = false;
  bool amx_tile = false;
  bool amx_int8 = false;
  bool amx_bf16 = false;
  std::string hypervisor;  // its signature; empty: none
};

struct Machine {
  std::filesystem::path root = "/";
  std::optional<std::string> runtime_dir;  // $XDG_RUNTIME_DIR
  uint32_t user = 0;                       // whose servers are looked at
  uint64_t descriptors_needed = 0;         // of a server with the settings' defaults

  std::function<Result<FileSystem>(const std::filesystem::path&)> file_system;
  std::function<bool(const std::filesystem::path&)> is_writable;
  std::function<CpuFeatures()> cpu_features;
  // Each: 0, or the errno with which the kernel refuses.
  std::function<int()> amx_permission;
  std::function<int()> io_uring;
  std::function<int()> membarrier;
  std::function<int()> hardware_counter;
  std::function<bool(const char*)> has_locale;
  std::function<bool(const char*)> has_library;  // that the loader finds and can load
  std::function<uint64_t()> clock_read_ns;
  // One way between two CPUs, and from a wake() on one until the sleeper on the other runs;
  // nullopt: it could not be measured.
  std::function<std::optional<uint64_t>(uint32_t, uint32_t)> core_distance_ns;
  std::function<std::optional<uint64_t>(uint32_t, uint32_t)> wake_up_ns;

  // `path` is one of the machine, "/proc/meminfo"; without the newline at the end.
  [[nodiscard]] Result<std::string> read(std::string_view path) const;
  // A file that holds a number alone.
  [[nodiscard]] Result<uint64_t> read_number(std::string_view path) const;
  [[nodiscard]] bool exists(std::string_view path) const;
  // The rest of the line of `path` that begins with `key`, without the blanks around it.
  [[nodiscard]] Result<std::string> read_line(std::string_view path, std::string_view key) const;
  // The CPUs that this process may use, by the kernel's list.
  [[nodiscard]] Result<std::vector<uint32_t>> usable_cpus() const;
};

// The machine that this runs on.
[[nodiscard]] Machine this_machine(uint64_t descriptors_needed);

// "0-3,8" as the kernel writes sets of CPUs; nullopt: it is none.
[[nodiscard]] std::optional<std::vector<uint32_t>> parse_cpu_list(std::string_view text);
[[nodiscard]] std::optional<uint64_t> parse_number(std::string_view text);

}  // namespace lumen::doctor
