// csv_line: one RequestRecord as one line of CSV (RFC 4180, but LF ends a line), or of the CSV's
// neighbour.
// Threads: any; pure, but for a TimestampText. Memory: none; CsvNames on the heap, at start.
// Errors: never; indices without a name give an empty field.
#pragma once

#include <lumen/base/limits.h>
#include <lumen/telemetry/request_record.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/timestamp_text.h"

namespace lumen::telemetry::detail {

// Ready to be copied into a line: see csv_field().
struct CsvNames {
  std::vector<std::string> models;
  std::vector<std::string> queue_types;
  std::vector<std::string> allocator_types;
};

// `text`, in quotes where RFC 4180 wants them, cut at kMaxNameBytes.
[[nodiscard]] std::string csv_field(std::string_view text);

inline constexpr size_t kMaxNameFieldBytes = 2 * limits::kMaxNameBytes + 2;
// The longest id has quotes alone: one that begins like a formula has a byte before it, and a first
// byte that is not doubled. Then: timestamp · three names · worker · stages (2^64 ns in µs) · rows
// · status · cache · transport · separators, LF
inline constexpr size_t kMaxCsvLineBytes = (2 * RequestRecord::kMaxIdBytes + 2) +
                                           TimestampText::kBytes + 4 * kMaxNameFieldBytes + 5 +
                                           kStageCount * 21 + 10 + 5 + 6 + 5 + 19;

// Writes at most kMaxCsvLineBytes, LF included, at `out`; where it ended.
[[nodiscard]] char* write_csv_line(const RequestRecord& record, const CsvNames& names,
                                   TimestampText& time, char* out) noexcept;
// The same of a line of requests that belong to a trace: `record.traceparent` is present.
[[nodiscard]] char* write_traceparent_line(const RequestRecord& record, TimestampText& time,
                                           char* out) noexcept;

}  // namespace lumen::telemetry::detail
