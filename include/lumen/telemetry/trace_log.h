// TraceLog: one line of CSV for each finished request, written by a thread of its own, so that
// threads that finish requests never wait for a disk; and one in a file beside it
// (traceparent_path()) for each that belongs to a trace. docs/formats/telemetry-csv.md describes
// the lines.
// Threads: write() from any; flush(), counters(), last_error() from any; close() from one. Only the
// thread "lumen-trace" touches the file; it sleeps for ever while nothing is written.
// Memory: all at open(). write() allocates nothing, locks nothing and makes one system call at
// most: to wake "lumen-trace" by the first record of a buffer, five a second or one a MiB of
// records. Where a thread was preempted in the few ns of sealing a full buffer, the others yield to
// it, 1 ms at most.
// Errors: open() with a Status; afterwards records that can't be kept are counted, and on_error and
// last_error() tell the disk's errors.
//
// Records go through a dense SharedBuffer. The record at offset 0 of a raw buffer is written by
// exactly one thread; it is the one that wakes. So nothing is polled, and "has the timer been
// armed?" needs no word that all writers share: a new buffer means that the one before is full, or
// was sealed by "lumen-trace" itself, whose timer has then run out. write() takes 20 ns, a line 80
// ns of "lumen-trace".
// A thread that dies inside write() costs its record, its place and one of the raw buffers, which
// is handed over a second late and then passed over; nobody else waits for it.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/doorbell.h>
#include <lumen/base/result.h>
#include <lumen/memory/mapping.h>
#include <lumen/memory/shared_buffer.h>
#include <lumen/telemetry/request_record.h>
#include <lumen/telemetry/shared_counter.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

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
  // 6,553 records each; all four are 0.09 s of a server that answers 300,000 requests a second.
  size_t buffer_bytes = size_t{1} << 20;  // a power of two
  size_t buffer_count = 4;
  size_t max_threads = 64;  // inside write() at one moment; more are dropped and counted
  // How long a record may stay in memory. 200 ms: a user that follows the file sees it as now, and
  // a slow trickle of requests wakes a second thread five times a second, not once a request.
  uint64_t flush_delay_ns = 200'000'000;
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
  [[nodiscard]] Status reopen();
  // The meaning of RequestRecord::model from now on; without a name its number is written. Earlier
  // records are in the file by then. Not by several threads at once.
  void name_model(uint16_t model, std::string_view name);
  // Waits until earlier records are in the file or were counted as dropped. False: not by
  // `deadline_ns` of CLOCK_MONOTONIC.
  bool flush(uint64_t deadline_ns = UINT64_MAX) noexcept;
  // The same for good; write() only counts from now on. A second call changes nothing.
  void close() noexcept;

  [[nodiscard]] TraceLogCounters counters() const noexcept;
  [[nodiscard]] Status last_error() const;  // ok: there was none
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }  // absolute
  // Where the requests of traces are: requests.traceparent.csv beside requests.csv. There from the
  // first one on, if path() is a regular file.
  [[nodiscard]] static std::filesystem::path traceparent_path(const std::filesystem::path& path);

 private:
  // A SharedBuffer writer and whether a thread is in it. Threads aren't bound to places, they begin
  // their search at different ones: a place bound to a thread would have to be given back when the
  // thread ends, by a destructor that allocates on first use and may outlive the TraceLog.
  struct alignas(kFalseSharingRange) Place {
    std::atomic<uint32_t> busy{0};
    std::optional<SharedBuffer::Writer> writer;
  };

  explicit TraceLog(TraceLogOptions options);
  [[nodiscard]] Status start();
  void run() noexcept;
  [[nodiscard]] Place* enter() noexcept;
  void refuse(const RequestRecord& record) noexcept;
  [[nodiscard]] uint64_t buffers_begun() const noexcept;
  [[nodiscard]] uint64_t calls_asked() const noexcept;
  [[nodiscard]] bool was_answered(uint64_t ticket) const noexcept;

  TraceLogOptions options_;
  std::filesystem::path path_;
  Mapping memory_;
  std::unique_ptr<SharedBuffer> buffer_;
  std::unique_ptr<Place[]> places_;
  std::unique_ptr<detail::TraceSink> sink_;
  std::thread thread_;

  alignas(kFalseSharingRange) std::atomic<uint64_t> begun_{0};  // raw buffers with a first record
  std::atomic<uint64_t> asked_{0};                              // flush() and close() calls
  std::atomic<bool> closing_{false};
  std::atomic<bool> is_reopen_asked_{false};
  Status reopened_;     // by "lumen-trace", for the thread that asked
  Doorbell news_bell_;  // woken when one of these has moved
  std::atomic<uint64_t> answered_{0};
  Doorbell answered_bell_;
  // By write() itself.
  SharedCounter refused_;
  SharedCounter refused_traceparents_;
  SharedCounter wakeups_;
};

}  // namespace lumen::telemetry
