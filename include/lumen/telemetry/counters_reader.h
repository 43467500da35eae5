// CountersReader: totals of each model out of another process's counters file
// (docs/formats/counters.md), as `lumen doctor` shows them.
//
// The file may be cut while it is read, or be anything at all: it is read by pread, for a mapping
// would end in SIGBUS, and each place is checked against the bounds of a file of this version
// before it is read.
// Threads: one. Memory: the heap, bounded by the constants in the source. Errors: a Status with the
// path, the value got and the value wanted.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>
#include <lumen/telemetry/counter_region.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::telemetry {

class CountersReader {
 public:
  // Fails if there is no regular file. models() looks at its content.
  [[nodiscard]] static Result<CountersReader> open(const std::filesystem::path& path);

  // Whether the server that made it runs: it holds a lock as long.
  [[nodiscard]] bool is_of_live_server() const noexcept;
  [[nodiscard]] uint32_t user() const noexcept { return user_; }

  struct ModelTotals {
    std::string name;
    std::string version;
    std::vector<uint64_t> totals;  // in the order of the names that were asked for
  };
  // Of each model that is there, totals of the counters and gauges with these names; 0 for one that
  // the file does not count. A model that comes or goes meanwhile is left out.
  [[nodiscard]] Result<std::vector<ModelTotals>> models(std::span<const std::string_view> counters);

 private:
  explicit CountersReader(std::filesystem::path path) : path_(std::move(path)) {}
  // Of one counter; `index` is kNone where the file does not have it.
  struct Place {
    static constexpr uint32_t kNone = UINT32_MAX;
    uint32_t index = kNone;
    uint32_t kind = 0;  // CounterKind
  };
  [[nodiscard]] Status read_head();
  [[nodiscard]] Status read(void* to, size_t bytes, uint64_t offset, const char* what) const;
  [[nodiscard]] Status check(const RegionTable& table, size_t entry_bytes, const char* what) const;
  [[nodiscard]] Status check_tables() const;
  [[nodiscard]] Result<std::vector<Place>> places_of(
      std::span<const std::string_view> counters) const;
  [[nodiscard]] Result<std::vector<uint32_t>> used_writers() const;
  [[nodiscard]] Result<std::vector<uint64_t>> totals_of(uint32_t model,
                                                        std::span<const Place> places,
                                                        std::span<const uint32_t> writers) const;
  [[nodiscard]] Result<uint64_t> generation_of(uint32_t model) const;

  std::filesystem::path path_;
  UniqueFd fd_;
  uint32_t user_ = 0;
  RegionHead head_;
};

}  // namespace lumen::telemetry
