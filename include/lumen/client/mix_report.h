// MixReport: the results of `lumen bench URL --mix` as a table for people or one JSON object:
// figures of each model and of all together.
// Threads: one. Memory: the heap; control plane. Errors: never.
#pragma once

#include <lumen/client/load_run.h>
#include <lumen/client/metrics_reader.h>
#include <lumen/client/mix_plan.h>

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lumen::client {

struct MixHead {
  std::vector<MixTarget> targets;  // their plans agree in all but the request
  bool is_shared = false;          // clients choose by weight
};

struct MixRow {
  uint32_t clients = 0;            // of MixSpec::rows
  LoadResult result;               // parts in the order of the targets
  std::vector<StageMeans> server;  // of each model
};

// Requests that the server refused because it had too much to do: 429 and 503.
[[nodiscard]] uint64_t refused_count(const Tally& tally) noexcept;

// Each ends with a newline. A row has a line for each model, one for all, and the notes on it.
[[nodiscard]] std::string head_text(const MixHead& head);
[[nodiscard]] std::string row_text(const MixHead& head, const MixRow& row);

[[nodiscard]] nlohmann::ordered_json to_json(const MixHead& head, const std::vector<MixRow>& rows);

}  // namespace lumen::client
