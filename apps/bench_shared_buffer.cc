// The body of `lumen bench shared-buffer`. Threads: as many as asked for, between two start lines.
// Memory: the buffers, prefaulted; nothing on the measured way, which is shown by the heap's count.
// Errors: as the header says.
#include "bench_shared_buffer.h"

#include <lumen/base/clock.h>
#include <lumen/memory/shared_buffer.h>

#include <malloc.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using lumen::SharedBuffer;

struct Arguments {
  size_t num_threads = 8;
  size_t alloc_size = 16;
  size_t num_allocs_per_thread = 256'000;
  uint64_t work_time_ns = 0;
  size_t buffer_size = 1024 * 1024;
  std::string mode = "all";
  bool sweep = false;
  bool json = false;
};

struct Row {
  std::string mode;
  uint64_t work_time_ns = 0;
  uint64_t buffers = 0, used_bytes = 0, last_used_bytes = 0, record_bytes = 0, wasted_bytes = 0;
  size_t heap_bytes = 0;
  double real_s = 0, user_s = 0, system_s = 0, ns_per_allocation = 0;
};

struct Flushed {  // the callback's counts; one thread at a time calls it
  uint64_t buffers = 0, bytes = 0, last = 0;
  void count(uint64_t used) {
    ++buffers;
    bytes += used;
    last = used;
  }
  static void flush(void* self, const SharedBuffer::Flushed& f) noexcept {
    static_cast<Flushed*>(self)->count(f.bytes.size());
  }
};

// The simple buffer that it is compared with: one lock over bump and write, one buffer, flushed
// under the lock.
class LockedBuffer {
 public:
  LockedBuffer(size_t bytes, Flushed& flushed) : memory_(bytes), flushed_(&flushed) {}
  template <typename Write>
  void put(size_t bytes, Write write) {
    const std::lock_guard lock(mutex_);
    if (bytes > memory_.size() - used_) flush_locked();
    write(memory_.data() + used_);
    used_ += bytes;
  }
  void flush() {
    const std::lock_guard lock(mutex_);
    if (used_ != 0) flush_locked();
  }

 private:
  void flush_locked() {
    flushed_->count(used_);
    used_ = 0;
  }
  std::mutex mutex_;
  std::vector<std::byte> memory_;
  size_t used_ = 0;
  Flushed* flushed_;
};

// 0 reads no clock at all.
void work(uint64_t ns) {
  if (ns == 0) return;
  for (const uint64_t until = lumen::now_ns() + ns; lumen::now_ns() < until;) {
  }
}

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
}

// Runs `body(thread, at_line)` on all threads; the measured time is between the two lines that all
// of them cross together, so that thread creation and the rest stay out of it.
template <typename Body>
void measure(const Arguments& a, Row& row, Body body) {
  std::atomic<size_t> at_start{0}, at_end{0};
  std::atomic<bool> go{false}, leave{false};
  std::vector<std::thread> threads;
  threads.reserve(a.num_threads);
  for (size_t t = 0; t < a.num_threads; ++t) {
    threads.emplace_back([&] {
      body(
          [&] {
            at_start.fetch_add(1, std::memory_order_acq_rel);
            go.wait(false, std::memory_order_acquire);
          },
          [&] {
            at_end.fetch_add(1, std::memory_order_acq_rel);
            at_end.notify_one();
            leave.wait(false, std::memory_order_acquire);
          });
    });
  }
  while (at_start.load(std::memory_order_acquire) != a.num_threads) std::this_thread::yield();
  rusage before, after;
  const struct mallinfo2 heap = ::mallinfo2();
  ::getrusage(RUSAGE_SELF, &before);
  const uint64_t start = lumen::now_ns();
  go.store(true, std::memory_order_release);
  go.notify_all();
  for (size_t n = 0; n != a.num_threads; n = at_end.load(std::memory_order_acquire)) {
    at_end.wait(n, std::memory_order_acquire);
  }
  const uint64_t end = lumen::now_ns();
  ::getrusage(RUSAGE_SELF, &after);
  const struct mallinfo2 heap_after = ::mallinfo2();
  leave.store(true, std::memory_order_release);
  leave.notify_all();
  for (std::thread& t : threads) t.join();
  row.heap_bytes = (heap_after.uordblks + heap_after.hblkhd) - (heap.uordblks + heap.hblkhd);
  row.real_s = static_cast<double>(end - start) * 1e-9;
  row.user_s = seconds(after.ru_utime) - seconds(before.ru_utime);
  row.system_s = seconds(after.ru_stime) - seconds(before.ru_stime);
  row.ns_per_allocation =
      row.real_s * 1e9 / static_cast<double>(a.num_threads * a.num_allocs_per_thread);
}

void fill(std::byte* memory, size_t bytes, uint64_t value) {
  std::memcpy(memory, &value, std::min(bytes, sizeof(value)));
}

// False: the buffer could not be made, or not flushed.
bool run_shared(const Arguments& a, SharedBuffer::Mode mode, Row& row, Flushed& flushed) {
  SharedBuffer::Options o;
  o.mode = mode;
  o.buffer_bytes = a.buffer_size;
  o.max_writers = a.num_threads;
  o.stall_timeout_ns = 0;
  o.flush = &Flushed::flush;
  o.context = &flushed;
  auto buffer = SharedBuffer::create(o);
  if (!buffer.ok()) {
    std::fprintf(stderr, "lumen bench shared-buffer: %.*s\n",
                 static_cast<int>(buffer.status().message().size()), buffer.status().c_message());
    return false;
  }
  measure(a, row, [&](auto at_start, auto at_end) {
    auto writer = (*buffer)->writer();
    LUMEN_CHECK(writer.ok());
    at_start();
    for (size_t i = 0; i < a.num_allocs_per_thread; ++i) {
      std::byte* memory = writer->reserve(a.alloc_size);
      if (memory == nullptr) break;  // alloc_size was checked: cannot be, and would not add up
      fill(memory, a.alloc_size, i);
      writer->commit();
      work(a.work_time_ns);
    }
    at_end();
  });
  const bool all = (*buffer)->flush();
  row.wasted_bytes = (*buffer)->stats().wasted_bytes;
  return all;
}

bool run_locked(const Arguments& a, Row& row, Flushed& flushed) {
  LockedBuffer buffer(a.buffer_size, flushed);
  measure(a, row, [&](auto at_start, auto at_end) {
    at_start();
    for (size_t i = 0; i < a.num_allocs_per_thread; ++i) {
      buffer.put(a.alloc_size, [&](std::byte* memory) { fill(memory, a.alloc_size, i); });
      work(a.work_time_ns);
    }
    at_end();
  });
  buffer.flush();
  return true;
}

// False: something is not accounted for.
bool run_mode(const Arguments& a, const std::string& mode, std::vector<Row>& rows) {
  Row row;
  row.mode = mode;
  row.work_time_ns = a.work_time_ns;
  Flushed flushed;
  const bool ran = mode == "locked" ? run_locked(a, row, flushed)
                                    : run_shared(a,
                                                 mode == "chunked" ? SharedBuffer::Mode::kChunked
                                                                   : SharedBuffer::Mode::kDense,
                                                 row, flushed);
  row.buffers = flushed.buffers;
  row.used_bytes = flushed.bytes;
  row.last_used_bytes = flushed.last;
  row.record_bytes = flushed.bytes - row.wasted_bytes;
  rows.push_back(row);
  const uint64_t wanted = a.num_threads * a.num_allocs_per_thread * a.alloc_size;
  if (!ran || row.record_bytes != wanted) {
    std::fprintf(stderr, "lumen bench shared-buffer: %s: %llu bytes of records, wanted %llu\n",
                 mode.c_str(), static_cast<unsigned long long>(row.record_bytes),
                 static_cast<unsigned long long>(wanted));
    return false;
  }
  return true;
}

void print(const Arguments& a, const std::vector<Row>& rows) {
  if (a.json) {
    nlohmann::json out = {{"rows", nlohmann::json::array()}};
    for (const Row& r : rows) {
      out["rows"].push_back({{"mode", r.mode},
                             {"threads", a.num_threads},
                             {"alloc_bytes", a.alloc_size},
                             {"work_time_ns", r.work_time_ns},
                             {"buffers", r.buffers},
                             {"buffer_bytes", r.buffers * a.buffer_size},
                             {"last_used_bytes", r.last_used_bytes},
                             {"record_bytes", r.record_bytes},
                             {"wasted_bytes", r.wasted_bytes},
                             {"heap_bytes", r.heap_bytes},
                             {"real_s", r.real_s},
                             {"user_s", r.user_s},
                             {"system_s", r.system_s},
                             {"ns_per_allocation", r.ns_per_allocation}});
    }
    std::printf("%s\n", out.dump(2).c_str());
    return;
  }
  std::printf("%zu threads, %zu allocations of %zu bytes each, buffers of %zu bytes\n",
              a.num_threads, a.num_allocs_per_thread, a.alloc_size, a.buffer_size);
  std::printf("%-7s %8s %8s %12s %10s %9s %6s %9s %9s %9s %8s\n", "mode", "work ns", "buffers",
              "bytes", "last used", "wasted", "heap", "real s", "user s", "system s", "ns each");
  for (const Row& r : rows) {
    std::printf("%-7s %8llu %8llu %12llu %10llu %9llu %6zu %9.4f %9.4f %9.4f %8.2f\n",
                r.mode.c_str(), static_cast<unsigned long long>(r.work_time_ns),
                static_cast<unsigned long long>(r.buffers),
                static_cast<unsigned long long>(r.buffers) * a.buffer_size,
                static_cast<unsigned long long>(r.last_used_bytes),
                static_cast<unsigned long long>(r.wasted_bytes), r.heap_bytes, r.real_s, r.user_s,
                r.system_s, r.ns_per_allocation);
  }
}

// The work time from which the lock costs less than a twentieth more than `mode`.
void print_meeting(const std::vector<Row>& rows) {
  for (const std::string mode : {"dense", "chunked"}) {
    bool met = false;
    for (const Row& r : rows) {
      if (r.mode != mode) continue;
      const auto locked = std::find_if(rows.begin(), rows.end(), [&](const Row& l) {
        return l.mode == "locked" && l.work_time_ns == r.work_time_ns;
      });
      if (locked == rows.end() || locked->real_s > r.real_s * 1.05) continue;
      std::printf("locked is within 5 %% of %s from %llu ns of work on\n", mode.c_str(),
                  static_cast<unsigned long long>(r.work_time_ns));
      met = true;
      break;
    }
    if (!met) std::printf("locked never comes within 5 %% of %s\n", mode.c_str());
  }
}

}  // namespace

int run_bench_shared_buffer(int argc, char** argv) {
  Arguments a;
  CLI::App app("Reserve, write and commit in a shared buffer from many threads", "shared-buffer");
  app.add_option("--num-threads", a.num_threads)
      ->check(CLI::Range(size_t{1}, SharedBuffer::kMaxWriters));
  app.add_option("--alloc-size", a.alloc_size, "bytes of a record")
      ->check(CLI::Range(size_t{1}, SharedBuffer::kMaxBufferBytes));
  app.add_option("--num-allocs-per-thread", a.num_allocs_per_thread);
  app.add_option("--work-time-ns", a.work_time_ns, "busy time after each record; 0 reads no clock");
  app.add_option("--buffer-size", a.buffer_size, "bytes of a buffer");
  app.add_option("--mode", a.mode)->check(CLI::IsMember({"dense", "chunked", "locked", "all"}));
  app.add_flag("--sweep", a.sweep, "work times from 0 to 20 µs: where do lock and lock-free meet");
  app.add_flag("--json", a.json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (a.alloc_size > a.buffer_size) {
    std::fprintf(stderr,
                 "lumen bench shared-buffer: --alloc-size %zu is larger than --buffer-size "
                 "%zu\n",
                 a.alloc_size, a.buffer_size);
    return 2;
  }
  std::vector<uint64_t> work_times = {a.work_time_ns};
  if (a.sweep) work_times = {0, 50, 100, 200, 500, 1'000, 2'000, 5'000, 10'000, 20'000};
  std::vector<Row> rows;
  for (const uint64_t work_time : work_times) {
    a.work_time_ns = work_time;
    for (const std::string mode : {"dense", "chunked", "locked"}) {
      if ((a.mode == "all" || a.mode == mode) && !run_mode(a, mode, rows)) return 1;
    }
  }
  print(a, rows);
  if (a.sweep && !a.json) print_meeting(rows);
  return 0;
}
