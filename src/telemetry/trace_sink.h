// TraceSink: takes flushed buffers of RequestRecords and makes lines of a CsvFile of them.
// Threads: take() and begin() by one at a time; counts and last_error() from any.
// Memory: a chunk of text and its line ends, at creation. Errors: counts, and tells once.
#pragma once

#include <lumen/base/result.h>
#include <lumen/memory/shared_buffer.h>
#include <lumen/telemetry/request_record.h>
#include <lumen/telemetry/shared_counter.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "telemetry/csv_file.h"
#include "telemetry/csv_line.h"

namespace lumen::telemetry::detail {

class TraceSink {
 public:
  TraceSink(CsvFile file, CsvNames names, std::function<void(const Status&)> on_error);

  // The header, if it is due: a reader finds it before the first record comes.
  void begin() noexcept;
  void take(const SharedBuffer::Flushed& flushed) noexcept;

  // Any thread.
  void name_model(uint16_t model, std::string_view name);

  SharedCounter written;
  SharedCounter dropped;
  SharedCounter errors;
  SharedCounter rotations;
  [[nodiscard]] Status last_error() const;

 private:
  void add(const RequestRecord& record) noexcept;
  void rotate() noexcept;
  void write_out() noexcept;
  void failed(const Status& status) noexcept;

  CsvFile file_;
  CsvNames names_;
  std::mutex names_mutex_;  // held while a buffer is taken
  const std::function<void(const Status&)> on_error_;
  const std::unique_ptr<char[]> chunk_;
  size_t chunk_bytes_ = 0;
  std::vector<uint32_t> ends_;
  bool refused_ = false;  // in this buffer
  bool told_ = false;     // since the disk last took something

  mutable std::mutex mutex_;  // for last_error_ alone
  Status last_error_;
};

}  // namespace lumen::telemetry::detail
