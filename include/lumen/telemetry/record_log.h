// RecordLog: takes the records of finished requests to a thread of its own, which hands them to a
// RecordSink; so that threads that finish requests never wait for a disk or a peer.
// Threads: write() from any; flush() and wakeups() from any; close() and reopen() from one. The
// log's thread alone calls the sink; it sleeps for ever while nothing is written.
// Memory: all at start(). write() allocates nothing, locks nothing and makes one system call at
// most: to wake the log's thread by the first record of a buffer, five a second or one a MiB of
// records. Where a thread was preempted in the few ns of sealing a full buffer, the others yield to
// it, 1 ms at most.
// Errors: start() with a Status; write() says whether the record was kept, and counts.
//
// Records go through a dense SharedBuffer. The record at offset 0 of a raw buffer is written by
// exactly one thread; it is the one that wakes. So nothing is polled, and "has the timer been
// armed?" needs no word that all writers share: a new buffer means that the one before is full, or
// was sealed by the log's thread itself, whose timer has then run out. write() takes 20 ns.
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
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

namespace lumen::telemetry {

// A reader of records. The log's thread calls it, begin() before the others.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  virtual void begin() noexcept {}
  virtual void take(const SharedBuffer::Flushed& flushed) noexcept = 0;
  [[nodiscard]] virtual Status reopen() noexcept { return {}; }

 protected:
  RecordSink() = default;
  RecordSink(const RecordSink&) = default;
  RecordSink& operator=(const RecordSink&) = default;
};

// Calls `use` with each record of a buffer. Returns how many were lost: their threads have ended
// before they were whole.
template <typename Use>
uint64_t for_each_record(const SharedBuffer::Flushed& flushed, Use&& use) {
  uint64_t hole_bytes = 0;
  for (const SharedBuffer::Hole& hole : flushed.holes) hole_bytes += hole.bytes;
  // Somewhere in it is an old record that nobody wrote over, and which one can't be told.
  if (flushed.missing_bytes != hole_bytes) return flushed.bytes.size() / sizeof(RequestRecord);
  for (const SharedBuffer::Extent& run : flushed.records) {
    for (size_t at = run.begin; at < run.begin + run.bytes; at += sizeof(RequestRecord)) {
      RequestRecord record;
      std::memcpy(&record, flushed.bytes.data() + at, sizeof record);
      use(record);
    }
  }
  return flushed.missing_bytes / sizeof(RequestRecord);
}

struct RecordLogOptions {
  const char* thread_name = "";  // 15 characters at most
  // 6,553 records each; all four are 0.09 s of a server that answers 300,000 requests a second.
  size_t buffer_bytes = size_t{1} << 20;  // a power of two
  size_t buffer_count = 4;
  size_t max_threads = 64;  // inside write() at one moment; more are refused
  // How long a record may stay in memory. 200 ms: a user that follows a file sees it as now, and a
  // slow trickle of requests wakes a second thread five times a second, not once a request.
  uint64_t flush_delay_ns = 200'000'000;
};

class RecordLog {
 public:
  // `sink` outlives it.
  [[nodiscard]] static Result<std::unique_ptr<RecordLog>> start(const RecordLogOptions& options,
                                                                RecordSink& sink);
  ~RecordLog();
  RecordLog(const RecordLog&) = delete;
  RecordLog& operator=(const RecordLog&) = delete;

  // False: the sink does not follow, or too many threads are in it; the record is lost.
  bool write(const RequestRecord& record) noexcept;  // NOLINT(modernize-use-nodiscard)

  // Waits until the sink has had all earlier records. False: not by `deadline_ns` of
  // CLOCK_MONOTONIC.
  bool flush(uint64_t deadline_ns = UINT64_MAX) noexcept;
  // Calls the sink's reopen() between earlier records and later ones. Not by several threads at
  // once.
  [[nodiscard]] Status reopen();
  // A flush for good; write() only counts from now on. A second call changes nothing.
  void close() noexcept;

  [[nodiscard]] uint64_t refused() const noexcept { return refused_.get(); }
  [[nodiscard]] uint64_t wakeups() const noexcept { return wakeups_.get(); }  // of its thread

 private:
  // A SharedBuffer writer and whether a thread is in it. Threads aren't bound to places, they begin
  // their search at different ones: a place bound to a thread would have to be given back when the
  // thread ends, by a destructor that allocates on first use and may outlive the log.
  struct alignas(kFalseSharingRange) Place {
    std::atomic<uint32_t> busy{0};
    std::optional<SharedBuffer::Writer> writer;
  };

  RecordLog(const RecordLogOptions& options, RecordSink& sink) noexcept
      : options_(options), sink_(sink) {}
  [[nodiscard]] Status start();
  void run() noexcept;
  [[nodiscard]] Place* enter() noexcept;
  [[nodiscard]] uint64_t buffers_begun() const noexcept;
  [[nodiscard]] uint64_t calls_asked() const noexcept;
  [[nodiscard]] bool was_answered(uint64_t ticket) const noexcept;

  const RecordLogOptions options_;
  RecordSink& sink_;
  Mapping memory_;
  std::unique_ptr<SharedBuffer> buffer_;
  std::unique_ptr<Place[]> places_;
  std::thread thread_;

  alignas(kFalseSharingRange) std::atomic<uint64_t> begun_{0};  // raw buffers with a first record
  std::atomic<uint64_t> asked_{0};                              // flush() and close() calls
  std::atomic<bool> closing_{false};
  std::atomic<bool> is_reopen_asked_{false};
  Status reopened_;     // by the log's thread, for the thread that asked
  Doorbell news_bell_;  // woken when one of these has moved
  std::atomic<uint64_t> answered_{0};
  Doorbell answered_bell_;
  SharedCounter refused_;
  SharedCounter wakeups_;
};

}  // namespace lumen::telemetry
