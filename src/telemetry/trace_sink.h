// TraceSink: takes flushed buffers of RequestRecords and makes lines of them: of each in the CSV,
// and of those that belong to a trace in the CSV's neighbour, which is made for the first of them.
// Threads: take() and begin() by one at a time; counts and last_error() from any.
// Memory: a chunk of text at creation, and one for the neighbour with it. Errors: counts, and tells
// once.
#pragma once

#include <lumen/base/result.h>
#include <lumen/memory/shared_buffer.h>
#include <lumen/telemetry/record_log.h>
#include <lumen/telemetry/request_record.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>

#include "telemetry/csv_file.h"
#include "telemetry/csv_line.h"
#include "telemetry/csv_lines.h"

namespace lumen::telemetry::detail {

// How the neighbour is opened, once it is.
struct NeighbourOptions {
  std::filesystem::path path;  // absolute
  uint64_t max_bytes;
  uint32_t keep;
};

class TraceSink final : public RecordSink {
 public:
  TraceSink(CsvFile file, CsvNames names, NeighbourOptions neighbour,
            std::function<void(const Status&)> on_error);

  // The header, if it is due.
  void begin() noexcept override { requests_.begin(); }
  void take(const SharedBuffer::Flushed& flushed) noexcept override;
  // Both files; the first error of the two.
  [[nodiscard]] Status reopen() noexcept override;

  // Any thread.
  void name_model(uint16_t model, std::string_view name);

  CsvCounts requests;
  CsvCounts traceparents;
  [[nodiscard]] uint64_t errors() const noexcept { return failures_.count(); }
  [[nodiscard]] Status last_error() const { return failures_.last(); }

 private:
  void add(const RequestRecord& record) noexcept;
  [[nodiscard]] bool open_neighbour() noexcept;

  CsvNames names_;
  std::mutex names_mutex_;  // held while a buffer is taken
  TimestampText time_;
  CsvFailures failures_;
  CsvLines requests_;
  const NeighbourOptions neighbour_;
  std::optional<CsvLines> traceparents_;
  bool neighbour_was_refused_ = false;  // in this buffer
  bool neighbour_was_told_ = false;     // that it can't be opened
};

}  // namespace lumen::telemetry::detail
