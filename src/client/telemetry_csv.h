// read_queue_residency: how long the requests of one id waited in the queue, from a telemetry CSV
// file (docs/formats/telemetry-csv.md).
// Threads: any. Memory: the heap. Errors: Status naming the file and the columns that it lacks.
#pragma once

#include <lumen/base/result.h>

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace lumen::client {

struct QueueResidency {
  uint64_t count = 0;
  double mean_us = 0;
  double p99_us = 0;  // exact: the smallest value that 99 % do not exceed
};

// Rows whose request_id is `id` and whose queue_us is not empty; none of them is an error.
[[nodiscard]] Result<QueueResidency> read_queue_residency(const std::filesystem::path& file,
                                                          std::string_view id);
// The same from the file's content.
[[nodiscard]] Result<QueueResidency> queue_residency_of(std::string_view csv, std::string_view id);

}  // namespace lumen::client
