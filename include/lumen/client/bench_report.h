// BenchReport: the results of `lumen bench URL` as a table for people, one JSON object or CSV rows.
// Threads: one. Memory: the heap; control plane. Errors: never.
#pragma once

#include <lumen/client/load_plan.h>
#include <lumen/client/metrics_reader.h>
#include <lumen/client/report_parts.h>
#include <lumen/client/tally.h>

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::client {

struct BenchHead {
  std::string model;
  std::string inputs;  // "data FP32[1,3,224,224]"
  LoadPlan plan;       // of the rows, but for their number of clients
};

struct BenchRow {
  uint32_t clients = 0;
  std::unique_ptr<Tally> tally;
  StageMeans server;
  std::optional<CacheSums> cache;  // where inputs vary, and the server tells
};

// Each ends with a newline. A row is its line of the table and the notes on it.
[[nodiscard]] std::string head_text(const BenchHead& head);
[[nodiscard]] std::string row_text(const BenchHead& head, const BenchRow& row);

[[nodiscard]] std::string csv_head();
[[nodiscard]] std::string csv_row(const BenchHead& head, const BenchRow& row);

[[nodiscard]] nlohmann::ordered_json to_json(const BenchHead& head,
                                             const std::vector<BenchRow>& rows);

}  // namespace lumen::client
