// RecordLog: start, the way of a record into the shared buffer, and the log's thread.
// Threads: as the header says. Memory: all in start(). Errors: start() with a Status.
#include <lumen/telemetry/record_log.h>

#include <lumen/base/check.h>
#include <lumen/base/clock.h>
#include <lumen/base/cpu.h>
#include <lumen/base/idle_strategy.h>

#include <signal.h>

#include <bit>
#include <system_error>
#include <utility>

namespace lumen::telemetry {
namespace {

// Where this thread begins its search for a free place. Zero-initialised and trivial, so that the
// first use neither allocates nor registers a destructor.
thread_local uint32_t first_place = 0;
std::atomic<uint32_t> threads_seen{0};

void take(void* sink, const SharedBuffer::Flushed& flushed) noexcept {
  static_cast<RecordSink*>(sink)->take(flushed);
}

// A new thread inherits the mask: signals stay with the threads that wait for them, and a pipe
// whose reader has gone is an error of write() instead of the end of the process.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Result<std::unique_ptr<RecordLog>> RecordLog::start(const RecordLogOptions& options,
                                                    RecordSink& sink) {
  if (!std::has_single_bit(options.buffer_bytes) || options.buffer_bytes < sizeof(RequestRecord)) {
    return Status::error(Code::kInvalidArgument,
                         "%s: buffers of %zu bytes; a power of two from 256 on",
                         options.thread_name, options.buffer_bytes);
  }
  std::unique_ptr<RecordLog> log(new RecordLog(options, sink));
  LUMEN_RETURN_IF_ERROR(log->start());
  return log;
}

Status RecordLog::start() {
  Result<Mapping> memory =
      Mapping::create(options_.buffer_bytes * options_.buffer_count, {.prefault = true});
  if (!memory.ok()) return memory.status();
  memory_ = std::move(*memory);
  Result<std::unique_ptr<SharedBuffer>> buffer =
      SharedBuffer::create({.mode = SharedBuffer::Mode::kDense,
                            .when_full = SharedBuffer::WhenFull::kDrop,
                            .flush_by_writers = false,
                            .buffer_bytes = options_.buffer_bytes,
                            .buffer_count = options_.buffer_count,
                            .max_writers = options_.max_threads,
                            .flush = take,
                            .context = &sink_},
                           memory_.bytes());
  if (!buffer.ok()) return buffer.status();
  buffer_ = std::move(*buffer);
  places_ = std::make_unique<Place[]>(options_.max_threads);
  try {
    const AllSignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    return Status::from_errno(e.code().value(), "%s: can't start its thread", options_.thread_name);
  }
  // Until the thread has made the places and the sink has begun.
  (void)flush();
  return {};
}

RecordLog::~RecordLog() { close(); }

RecordLog::Place* RecordLog::enter() noexcept {
  if (first_place == 0) {
    // relaxed: only to spread the threads
    first_place = 1 + threads_seen.fetch_add(1, std::memory_order_relaxed);
  }
  const auto count = static_cast<uint32_t>(options_.max_threads);
  for (uint32_t i = 0; i < count; ++i) {
    Place& place = places_[(first_place + i) % count];
    // relaxed: only to leave the line of a busy one alone
    if (place.busy.load(std::memory_order_relaxed) != 0) continue;
    // sync[record_log.place]: acquire, the Writer as the last thread in it left it
    if (place.busy.exchange(1, std::memory_order_acquire) == 0) return &place;
  }
  return nullptr;
}

bool RecordLog::write(const RequestRecord& record) noexcept {
  Place* const place = enter();
  if (place == nullptr) {
    refused_.add();
    return false;
  }
  std::byte* const at = place->writer->reserve(sizeof record);
  if (at != nullptr) {
    std::memcpy(at, &record, sizeof record);
    place->writer->commit();
  }
  // sync[record_log.place]: release, the Writer to the next thread in it
  place->busy.store(0, std::memory_order_release);
  if (at == nullptr) {
    refused_.add();
    return false;
  }
  if ((static_cast<size_t>(at - memory_.data()) & (options_.buffer_bytes - 1)) != 0) return true;
  // sync[record_log.news]: seq_cst, against the sleeper's announcement of itself
  begun_.fetch_add(1, std::memory_order_seq_cst);
  news_bell_.wake_published();
  return true;
}

// sync[record_log.news]: seq_cst, both: they are the look between announcing oneself and sleeping
uint64_t RecordLog::buffers_begun() const noexcept {
  return begun_.load(std::memory_order_seq_cst);
}
uint64_t RecordLog::calls_asked() const noexcept { return asked_.load(std::memory_order_seq_cst); }

bool RecordLog::was_answered(uint64_t ticket) const noexcept {
  // sync[record_log.answered]: seq_cst, the sink has had the records; also the look before flush()
  // sleeps
  return answered_.load(std::memory_order_seq_cst) >= ticket;
}

void RecordLog::run() noexcept {
  name_this_thread(options_.thread_name);
  // By this thread, because a SharedBuffer asks whether the thread that made a Writer has ended:
  // this one outlives all use. flush() in start() publishes them.
  for (size_t i = 0; i < options_.max_threads; ++i) {
    Result<SharedBuffer::Writer> writer = buffer_->writer();
    LUMEN_CHECK(writer.ok());
    places_[i].writer.emplace(std::move(*writer));
  }
  sink_.begin();
  IdleStrategy idle(0);  // nobody waits for this thread: it never spins
  uint64_t begun = 0, asked = 0;
  const auto has_news = [&]() noexcept {
    return buffers_begun() != begun || calls_asked() != asked;
  };
  for (;;) {
    (void)await(news_bell_, idle, UINT64_MAX, has_news);
    const uint64_t deadline_ns = now_ns() + options_.flush_delay_ns;
    do {
      wakeups_.add();
      begun = buffers_begun();
      (void)buffer_->flush_ready();  // another one was begun, so the one before it is full
    } while (calls_asked() == asked && await(news_bell_, idle, deadline_ns, has_news));
    const uint64_t answer = calls_asked();
    const bool closing = closing_.load(std::memory_order_relaxed);  // relaxed: published by asked_
    if (closing) buffer_->close();
    // Before sealing: a thread that begins a buffer after it is news again.
    begun = buffers_begun();
    (void)buffer_->flush();
    // relaxed: published by asked_
    if (is_reopen_asked_.exchange(false, std::memory_order_relaxed)) reopened_ = sink_.reopen();
    asked = answer;
    // sync[record_log.answered]: seq_cst, the sink has had the records; the look of a thread that
    // waits for it
    answered_.store(closing ? UINT64_MAX : answer, std::memory_order_seq_cst);
    answered_bell_.wake_all();
    if (closing) return;
  }
}

bool RecordLog::flush(uint64_t deadline_ns) noexcept {
  // sync[record_log.news]: seq_cst, as write()
  const uint64_t ticket = asked_.fetch_add(1, std::memory_order_seq_cst) + 1;
  news_bell_.wake_published();
  // Not await(): an IdleStrategy would count the caller, some control thread, as one that spins.
  while (!was_answered(ticket)) {
    const Doorbell::Ticket waiter = answered_bell_.prepare();
    if (was_answered(ticket)) {
      answered_bell_.cancel();
    } else if (!answered_bell_.wait(waiter, deadline_ns)) {
      return was_answered(ticket);
    }
  }
  return true;
}

Status RecordLog::reopen() {
  if (!thread_.joinable()) return {};
  is_reopen_asked_.store(true,
                         std::memory_order_relaxed);  // relaxed: flush() publishes it by asked_
  (void)flush();
  return reopened_;
}

void RecordLog::close() noexcept {
  if (!thread_.joinable()) return;
  closing_.store(true, std::memory_order_relaxed);  // relaxed: flush() publishes it by asked_
  (void)flush();
  thread_.join();
}

}  // namespace lumen::telemetry
