// TraceLog: one line of CSV for each finished request, written by a thread of its own, so that
// threads that finish requests never wait for a disk; and one in a file beside it
// (traceparent_path()) for each that belongs to a trace. docs/formats/telemetry-csv.md describes
// the lines.
// Threads, memory: as record_log.h says; the thread is "lumen-trace", it alone touches the file,
// and a line takes 80 ns of it.
// Errors: open() with a Status; afterwards records that can't be kept are counted, and on_error and
// last_error() tell the disk's errors.
#pragma once

#include <lumen/base/result.h>
#include <lumen/telemetry/record_log.h>
#include <lumen/telemetry/request_record.h>
#include <lumen/telemetry/shared_counter.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace lumen::telemetry {

inline constexpr std::string_view kTraceCsvHeader =
    "request_id,timestamp,model,queue_type,allocator_type,worker,connect_us,parse_us,queue_us,"
    "preprocess_us,inference_us,postprocess_us,write_us,total_us,rows,status,cache,transport,lane";

inline constexpr std::string_view kTraceparentCsvHeader = "request_id,timestamp,traceparent";

struct TraceLogOptions {
  std::filesystem::path path = {};
  uint64_t max_bytes = uint64_t{256} << 20;  // of one file; 0: one file without a bound
  uint32_t keep = 4;                         // PATH.1 to PATH.<keep> beside PATH; 0: none
  std::span<const std::string_view> queue_types = {};
  std::span<const std::string_view> allocator_types = {};
  // As those of RecordLogOptions.
  size_t buffer_bytes = RecordLogOptions{}.buffer_bytes;
  size_t buffer_count = RecordLogOptions{}.buffer_count;
  size_t max_threads = RecordLogOptions{}.max_threads;
  uint64_t flush_delay_ns = RecordLogOptions{}.flush_delay_ns;
  // By "lumen-trace", the first time the disk refuses, and again after it had recovered.
  std::function<void(const Status&)> on_error = {};
};

struct TraceLogCounters {
  uint64_t written = 0;       // records whose line was given to the file, whole
  uint64_t dropped = 0;       // records without one; after flush() the two are all write() calls
  uint64_t write_errors = 0;  // system calls that failed, of both files
  uint64_t rotations = 0;     // of both files
  uint64_t wakeups = 0;       // of "lumen-trace"
  // The first two of requests that belong to a trace, in the file beside it.
  uint64_t traceparents_written = 0;
  uint64_t traceparents_dropped = 0;
};

namespace detail {
class TraceSink;
}

class TraceLog {
 public:
  static constexpr uint64_t kLeastMaxBytes = 4096;

  // Creates missing parents. A file that is there is appended to if it begins with our header; one
  // that doesn't, or that another process writes, is refused.
  [[nodiscard]] static Result<std::unique_ptr<TraceLog>> open(TraceLogOptions options);
  ~TraceLog();
  TraceLog(const TraceLog&) = delete;
  TraceLog& operator=(const TraceLog&) = delete;

  void write(const RequestRecord& record) noexcept;

  // Earlier records are in the file at hand; later records go into the file that has the name then,
  // as after logrotate has moved this one. A file that was removed or cut is noticed without it.
  // Not by several threads at once.
  [[nodiscard]] Status reopen() { return log_->reopen(); }
  // The meaning of RequestRecord::model from now on; without a name its number is written. Earlier
  // records are in the file by then. Not by several threads at once.
  void name_model(uint16_t model, std::string_view name);
  // Waits until earlier records are in the file or were counted as dropped. False: not by
  // `deadline_ns` of CLOCK_MONOTONIC.
  bool flush(uint64_t deadline_ns = UINT64_MAX) noexcept { return log_->flush(deadline_ns); }
  // The same for good; write() only counts from now on. A second call changes nothing.
  void close() noexcept { log_->close(); }

  [[nodiscard]] TraceLogCounters counters() const noexcept;
  [[nodiscard]] Status last_error() const;  // ok: there was none
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }  // absolute
  // Where the requests of traces are: requests.traceparent.csv beside requests.csv. There from the
  // first one on, if path() is a regular file.
  [[nodiscard]] static std::filesystem::path traceparent_path(const std::filesystem::path& path);

 private:
  explicit TraceLog(TraceLogOptions options);
  [[nodiscard]] Status start();

  TraceLogOptions options_;
  std::filesystem::path path_;
  std::unique_ptr<detail::TraceSink> sink_;
  std::unique_ptr<RecordLog> log_;
  SharedCounter refused_traceparents_;  // by write() itself
};

}  // namespace lumen::telemetry
