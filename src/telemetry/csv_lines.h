// CsvLines: lines on their way into a CsvFile: gathered, rotated as they fill it, counted where it
// doesn't take them.
// Threads: one at a time; CsvCounts and CsvFailures to read from any.
// Memory: a chunk of text and its line ends, at creation. Errors: counted, and told once.
#pragma once

#include <lumen/base/result.h>
#include <lumen/telemetry/shared_counter.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "telemetry/csv_file.h"
#include "telemetry/csv_line.h"

namespace lumen::telemetry::detail {

// Of one file.
struct CsvCounts {
  SharedCounter written;  // lines that the file has, whole
  SharedCounter dropped;
  SharedCounter rotations;
};

// The errors of all files of a trace log.
class CsvFailures {
 public:
  explicit CsvFailures(std::function<void(const Status&)> on_error)
      : on_error_(std::move(on_error)) {}

  // `was_told`: that this file fails; it becomes true.
  void add(const Status& status, bool& was_told) noexcept;
  [[nodiscard]] uint64_t count() const noexcept { return count_.get(); }
  [[nodiscard]] Status last() const;

 private:
  const std::function<void(const Status&)> on_error_;
  SharedCounter count_;
  mutable std::mutex mutex_;  // for last_ alone
  Status last_;
};

class CsvLines {
 public:
  // One system call for some 500 lines; larger chunks win nothing and cost cache.
  static constexpr size_t kChunkBytes = 64 * 1024;

  // Both outlive it.
  CsvLines(CsvFile file, CsvCounts& counts, CsvFailures& failures);

  // The header, if it is due: a reader finds it before the first record comes.
  void begin() noexcept;
  // The disk is asked anew.
  void begin_buffer() noexcept { refused_ = false; }
  // `write(out)`: one line, of at most kMaxCsvLineBytes; returns where it ended.
  template <typename Write>
  void add(Write&& write) noexcept {
    if (chunk_bytes_ + kMaxCsvLineBytes > kChunkBytes) write_out();
    // The disk has just said no: it is asked again with the next buffer.
    if (refused_) return counts_.dropped.add();
    char* const begin = chunk_.get() + chunk_bytes_;
    keep(begin, static_cast<size_t>(write(begin) - begin));
  }
  void write_out() noexcept;
  // CsvFile's.
  [[nodiscard]] Status reopen() noexcept { return file_.reopen(); }
  [[nodiscard]] bool is_regular() const noexcept { return file_.is_regular(); }

 private:
  void keep(const char* line, size_t bytes) noexcept;
  void rotate() noexcept;

  CsvFile file_;
  CsvCounts& counts_;
  CsvFailures& failures_;
  const std::unique_ptr<char[]> chunk_;
  size_t chunk_bytes_ = 0;
  std::vector<uint32_t> ends_;
  bool refused_ = false;  // in this buffer
  bool told_ = false;     // since the disk last took something
};

}  // namespace lumen::telemetry::detail
