// See the header. Only calls that a signal handler may make: no memory, no lock, no stdio.
#include <lumen/telemetry/crash_report.h>

#include <lumen/telemetry/flight_region.h>

#include "telemetry/region_layout.h"

#include <execinfo.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstring>
#include <string_view>

namespace lumen::telemetry {
namespace {

constexpr unsigned kMostSeconds = 5;
constexpr int kMostCalls = 64;

struct Fault {
  int number;
  std::string_view name;
};
constexpr std::array kFaults = {Fault{SIGSEGV, "SIGSEGV"}, Fault{SIGBUS, "SIGBUS"},
                                Fault{SIGILL, "SIGILL"}, Fault{SIGFPE, "SIGFPE"},
                                Fault{SIGABRT, "SIGABRT"}};

std::atomic<const Counters*> counters_of_report{nullptr};
std::atomic<bool> is_reporting{false};

// A line of text, cut where it has no room.
class Line {
 public:
  Line& operator<<(std::string_view text) noexcept {
    for (const char c : text.substr(0, bytes_.size() - 1 - size_)) {
      bytes_[size_++] = c >= ' ' && c != 0x7f ? c : '?';
    }
    return *this;
  }
  Line& number(uint64_t value, int base = 10) noexcept {
    std::array<char, 24> text{};
    return *this << std::string_view(
               text.data(), std::to_chars(text.data(), text.data() + text.size(), value, base).ptr);
  }
  // If stderr is gone no user can be told.
  void end() noexcept {
    bytes_[size_++] = '\n';
    if (::write(STDERR_FILENO, bytes_.data(), size_) < 0) return;
  }

 private:
  std::array<char, 512> bytes_{};
  size_t size_ = 0;
};

// The newest requests of all rings, newest first.
class Newest {
 public:
  void add(const FlightRecord& record) noexcept {
    size_t at = size_;
    while (at > 0 && records_[at - 1].request.received_wall_ns < record.request.received_wall_ns) {
      --at;
    }
    if (at == records_.size()) return;
    size_ = std::min(size_ + 1, records_.size());
    for (size_t i = size_ - 1; i > at; --i) records_[i] = records_[i - 1];
    records_[at] = record;
  }
  [[nodiscard]] std::span<const FlightRecord> all() const noexcept {
    return {records_.data(), size_};
  }

 private:
  std::array<FlightRecord, kRequestsInCrashReport> records_{};
  size_t size_ = 0;
};
// The stack of a thread may be what has run out.
Newest newest;

void gather(const Counters& counters) noexcept {
  for (size_t shard = 0; shard < counters.stages().shards(); ++shard) {
    const auto& ring = *reinterpret_cast<const FlightRing*>(counters.recent(shard).data());
    // sync[flight.ring]: acquire; the entries of the requests that are counted
    const uint64_t written = ring.written.load(std::memory_order_acquire);
    const uint64_t first = written - std::min<uint64_t>(written, kRequestsInCrashReport);
    for (uint64_t i = first; i < written; ++i) {
      if (const auto record = ring.entries[i % kRecentEntries].read()) newest.add(*record);
    }
  }
}

void name_model(Line& line, const Counters& counters, const FlightRecord& record) noexcept {
  const uint16_t index = record.request.model;
  if (index >= limits::kMaxModels) {
    line << "no model";
    return;
  }
  const auto* const models =
      reinterpret_cast<const RegionModel*>(counters.region().data() + RegionLayout::kModels);
  if (counters.generation(index) != record.generation) {
    line << "a model that is gone";
    return;
  }
  const RegionModel& model = models[index];
  line << std::string_view(model.name, ::strnlen(model.name, sizeof(model.name))) << "/"
       << std::string_view(model.version, ::strnlen(model.version, sizeof(model.version)));
}

void say_requests(const Counters& counters) noexcept {
  gather(counters);
  Line head;
  (head << "lumen: the last ").number(newest.all().size()) << " requests, newest first:";
  head.end();
  for (const FlightRecord& record : newest.all()) {
    const RequestRecord& request = record.request;
    Line line;
    (line << "lumen:   ").number(static_cast<uint64_t>(request.received_wall_ns / 1'000'000));
    line << " ms since 1970, ";
    name_model(line, counters, record);
    (line << ", status ").number(request.status);
    (line << ", rows ").number(request.rows);
    for (size_t stage = 0; stage < kStageCount; ++stage) {
      const uint64_t ns = request.stage_ns[stage];
      if (ns == RequestRecord::kAbsent) continue;
      (line << ", " << kStageNames[stage] << " ").number(ns / 1000) << " us";
    }
    line.end();
  }
}

void on_fault(int number, siginfo_t* info, void*) noexcept {
  bool was_reporting = false;
  // relaxed, both: nothing else is told by it
  while (!is_reporting.compare_exchange_strong(was_reporting, true, std::memory_order_relaxed,
                                               std::memory_order_relaxed)) {
    ::pause();  // the process ends meanwhile
    was_reporting = false;
  }
  ::alarm(kMostSeconds);
  const auto* const fault = std::ranges::find(kFaults, number, &Fault::number);
  std::array<char, 16> thread{};
  (void)pthread_getname_np(pthread_self(), thread.data(), thread.size());
  Line line;
  line << "lumen: crashed by " << (fault == kFaults.end() ? "a signal" : fault->name);
  (line << " at address 0x").number(reinterpret_cast<uintptr_t>(info->si_addr), 16);
  (line << " in thread " << thread.data() << ", ")
      .number(static_cast<uint64_t>(::syscall(SYS_gettid)));
  line.end();
  // sync[crash.counters]: acquire; the counters are whole
  const Counters* const counters = counters_of_report.load(std::memory_order_acquire);
  if (counters != nullptr) say_requests(*counters);
  // Last: where the heap or the loader is broken it may hang.
  Line calls;
  calls << "lumen: the calls, for addr2line -Cfe FILE OFFSET:";
  calls.end();
  std::array<void*, kMostCalls> frames{};
  backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), kMostCalls), STDERR_FILENO);
  (void)::raise(number);  // its default action, once this handler has returned
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

}  // namespace

void report_crashes() noexcept {
  if (kIsSanitized) return;
  // The first call loads the unwinder's library, which a handler may not.
  void* frame = nullptr;
  (void)::backtrace(&frame, 1);
  for (const Fault& fault : kFaults) {
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | static_cast<int>(SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    (void)::sigaction(fault.number, &action, nullptr);
  }
}

void report_requests_of(const Counters* counters) noexcept {
  // sync[crash.counters]: release; the counters
  counters_of_report.store(counters, std::memory_order_release);
}

}  // namespace lumen::telemetry
