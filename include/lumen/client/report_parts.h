// The parts that the reports of `lumen bench` share: numbers as JSON, errors in words, whether the
// client was the limit.
// Threads: any. Memory: the heap; control plane. Errors: never.
#pragma once

#include <lumen/client/load_plan.h>
#include <lumen/client/metrics_reader.h>
#include <lumen/client/tally.h>

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace lumen::client {

[[nodiscard]] inline double us(uint64_t ns) noexcept { return static_cast<double>(ns) / 1000; }
[[nodiscard]] inline double us(double ns) noexcept { return ns / 1000; }
// To three decimals, which is enough: a histogram's buckets are 0.8 % wide.
[[nodiscard]] double rounded(double value) noexcept;

// The client's own threads were busy nearly all the time: the figures are the client's.
[[nodiscard]] bool is_client_bound(const LoadPlan& plan, const Tally& tally) noexcept;
// That in words, a line; empty where it is not so.
[[nodiscard]] std::string bound_text(const LoadPlan& plan, const Tally& tally);

// "503 x 12, connect x 3"; empty: none.
[[nodiscard]] std::string errors_text(const Tally& tally);
// "5 s after 0.5 s of warm-up"
[[nodiscard]] std::string how_long_text(const LoadPlan& plan);

[[nodiscard]] std::optional<double> server_total(const StageMeans& means) noexcept;
[[nodiscard]] const char* source_name(StageSums::Source source) noexcept;

[[nodiscard]] nlohmann::ordered_json histogram_json(const telemetry::Histogram& histogram);
[[nodiscard]] nlohmann::ordered_json errors_json(const Tally& tally);
// null where the server tells nothing.
[[nodiscard]] nlohmann::ordered_json server_json(const StageMeans& server, const Tally& tally);
[[nodiscard]] nlohmann::ordered_json open_loop_json(double rate, const Tally& tally);

}  // namespace lumen::client
