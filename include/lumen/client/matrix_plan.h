// MatrixPlan: the measurements of `lumen matrix`; MatrixValues: the results of one combination.
// Threads: values. Memory: the heap. Errors: never; a value that could not be had is nullopt.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::client {

struct MatrixPlan {
  std::filesystem::path executable;  // `EXECUTABLE serve ...` is each server
  std::string model;
  std::filesystem::path model_repository = "models";
  std::filesystem::path out = "results";
  uint64_t requests = 800;
  uint32_t clients = 4;
  uint32_t rounds = 1;
  bool poll = false;  // as of LoadPlan
  std::vector<std::string> queue_types;
  std::vector<std::string> allocator_types;
  std::vector<std::string> server_arguments;  // further ones, for every server
};

struct Column {
  std::string_view key;      // in JSON and CSV
  std::string_view heading;  // in Markdown
  int decimals;
};

enum class Value : uint8_t {
  kRoundTripMean,
  kRoundTripP50,
  kRoundTripP99,
  kConnectMean,
  kConnectP99,
  kPerSecond,
  kQueueMean,
  kQueueP99,
  kHeapCalls,
  kArenaBytes,
  kRows,
};
inline constexpr std::array<Column, 11> kColumns = {{
    {"round_trip_mean_us", "round trip mean µs", 1},
    {"round_trip_p50_us", "p50", 1},
    {"round_trip_p99_us", "p99", 1},
    {"connection_mean_us", "connection mean µs", 1},
    {"connection_p99_us", "p99", 1},
    {"requests_per_second", "requests/s", 0},
    {"queue_mean_us", "in the queue mean µs", 1},
    {"queue_p99_us", "p99", 1},
    {"heap_calls_per_request", "heap calls/request", 2},
    {"arena_bytes_per_request", "arena bytes/request", 0},
    {"rows_per_inference", "rows/inference", 2},
}};

struct MatrixValues {
  std::array<std::optional<double>, kColumns.size()> values{};
  [[nodiscard]] std::optional<double>& operator[](Value value) noexcept {
    return values[static_cast<size_t>(value)];
  }
  [[nodiscard]] const std::optional<double>& operator[](Value value) const noexcept {
    return values[static_cast<size_t>(value)];
  }
};

// Of each column alone, over the rounds that have it; the mean of the middle two of an even number.
[[nodiscard]] MatrixValues medians(const std::vector<MatrixValues>& rounds);

struct MatrixRow {
  std::string queue_type;
  std::string allocator_type;
  std::string error;      // empty: none
  MatrixValues values{};  // the medians
  std::vector<MatrixValues> rounds{};
};

}  // namespace lumen::client
