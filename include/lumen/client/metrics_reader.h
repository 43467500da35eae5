// MetricsReader: a server's own figures: the samples of GET /metrics (Prometheus text), and the
// mean of each stage between two looks.
// Threads: values. Memory: the heap; control plane. Errors: an absent value is nullopt; a line that
// can't be read is skipped, because other servers' metrics are read too.
#pragma once

#include <lumen/client/target.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::client {

class MetricsText {
 public:
  explicit MetricsText(std::string_view text);

  // The sum of all samples of that name that carry all of `labels`; nullopt when there is none.
  using Label = std::pair<std::string_view, std::string_view>;
  [[nodiscard]] std::optional<double> sum(std::string_view name,
                                          const std::vector<Label>& labels = {}) const;

 private:
  struct Sample {
    std::string name;
    std::vector<std::pair<std::string, std::string>> labels;
    double value = 0;
  };
  static std::optional<Sample> parse_line(std::string_view line);
  std::vector<Sample> samples_;
};

// nullopt: the server has no /metrics.
[[nodiscard]] std::optional<MetricsText> read_metrics(const Target& target);

// Count and nanoseconds of each stage so far, in the order of telemetry::kStageNames.
struct StageSums {
  enum class Source : uint8_t { kNone, kMetrics, kStatistics } source = Source::kNone;
  struct Sum {
    bool present = false;
    double count = 0;
    double ns = 0;
  };
  std::array<Sum, 8> stages{};
};

// From /metrics where it has the stages, else from the protocol's statistics of the model.
[[nodiscard]] StageSums read_stage_sums(const Target& target, std::string_view model);
[[nodiscard]] StageSums stage_sums_of_metrics(const MetricsText& metrics, std::string_view model);
[[nodiscard]] StageSums stage_sums_of_statistics(std::string_view json);

// The counts of a model's response cache, so far or between two looks.
struct CacheSums {
  double hits = 0;
  double misses = 0;
};
// By the protocol's statistics; nullopt: the server tells of none.
[[nodiscard]] std::optional<CacheSums> read_cache_sums(const Target& target,
                                                       std::string_view model);
[[nodiscard]] std::optional<CacheSums> cache_sums_of_statistics(std::string_view json);

// Mean microseconds of each stage between two looks; nullopt where nothing was counted.
struct StageMeans {
  StageSums::Source source = StageSums::Source::kNone;
  std::array<std::optional<double>, 8> us{};
  double requests = 0;  // counted by the server in between
};
[[nodiscard]] StageMeans stage_means(const StageSums& before, const StageSums& after);

}  // namespace lumen::client
