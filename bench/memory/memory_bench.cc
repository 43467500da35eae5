// One round of the memory bench: every contender once, as JSON lines {"row", "contender", "value"}.
// bench/memory.py runs it round after round (an allocator is chosen by LD_PRELOAD: --only malloc),
// rotates the order by --rotate, and takes medians.
//
//   arena           one thread, core 0: 1,000 allocations of 16 or 256 bytes, then a reset or frees
//   shared buffer   1, 2, 8 threads, thread i on core i % 2: reserve, write 8 bytes, commit
//
// Threads: as said. Memory: before measuring, but for malloc's own. Errors: exit 2.
#include <lumen/base/cache_line.h>
#include <lumen/base/clock.h>
#include <lumen/base/core_distance.h>
#include <lumen/memory/arena.h>
#include <lumen/memory/shared_buffer.h>

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory_resource>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lumen::bench {
namespace {

constexpr size_t kBatch = 1000;  // allocations between two resets
constexpr size_t kRecord = 16;
constexpr size_t kBuffer = 1024 * 1024;
constexpr size_t kBuffers = 4;

struct Settings {
  uint64_t batches = 20'000;     // arena: 20 M allocations, 10 ms
  uint64_t records = 4'000'000;  // shared buffer, of all threads
};

void pin_to(size_t cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // One core only: then all threads share it, and the table says "far" for nobody.
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

// The compiler must make the address, and must assume that the memory behind it is read.
inline void use(void* address) { asm volatile("" : : "r"(address) : "memory"); }
// A value that the compiler cannot know: sizes at run time for all contenders.
inline size_t hidden(size_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

void report(const std::string& row, const std::string& contender, double value) {
  std::printf("{\"row\": \"%s\", \"contender\": \"%s\", \"value\": %.4f}\n", row.c_str(),
              contender.c_str(), value);
}

// --- Arena ---------------------------------------------------------------------------------------

// The floor: the steps of any checked bump allocator, and no more.
struct Bump {
  uintptr_t cursor, end;
  void* allocate(size_t bytes, size_t alignment) {
    const uintptr_t begin = (cursor + alignment - 1) & ~(alignment - 1);
    if (begin > end || bytes > end - begin) return nullptr;
    cursor = begin + bytes;
    return reinterpret_cast<void*>(begin);
  }
};

template <typename Body>
double ns_per_allocation(const Settings& s, Body one_batch) {
  const uint64_t start = now_ns();
  for (uint64_t i = 0; i < s.batches; ++i) one_batch();
  return static_cast<double>(now_ns() - start) / static_cast<double>(s.batches * kBatch);
}

double run_arena(const Settings& s, size_t size) {
  Arena arena = Arena::create(kBuffer, {.prefault = true}).value();
  return ns_per_allocation(s, [&] {
    const size_t bytes = hidden(size);
    for (size_t i = 0; i < kBatch; ++i) use(arena.allocate(bytes, 16));
    arena.reset();
  });
}

double run_bump(const Settings& s, size_t size) {
  std::vector<std::byte> memory(kBuffer);
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  Bump bump{begin, begin + kBuffer};
  use(&bump);  // in memory, as an allocator that is passed around is
  return ns_per_allocation(s, [&] {
    const size_t bytes = hidden(size);
    for (size_t i = 0; i < kBatch; ++i) use(bump.allocate(bytes, 16));
    bump.cursor = begin;
  });
}

double run_pmr(const Settings& s, size_t size) {
  std::vector<std::byte> memory(kBuffer);
  return ns_per_allocation(s, [&] {
    std::pmr::monotonic_buffer_resource resource(memory.data(), memory.size(),
                                                 std::pmr::null_memory_resource());
    const size_t bytes = hidden(size);
    for (size_t i = 0; i < kBatch; ++i) use(resource.allocate(bytes, 16));
  });
}

double run_malloc(const Settings& s, size_t size) {
  std::vector<void*> held(kBatch);
  Settings fewer = s;
  fewer.batches = std::max<uint64_t>(s.batches / 20, 1);
  return ns_per_allocation(fewer, [&] {
    const size_t bytes = hidden(size);
    for (void*& p : held) use(p = std::malloc(bytes));
    for (void* p : held) std::free(p);
  });
}

// ns of one reset after `used` bytes were allocated in blocks of a mebibyte at most.
double run_reset(size_t used) {
  Arena arena = Arena::create_growing(kBuffer, 2 * used + kBuffer).value();
  constexpr int kResets = 2000;
  uint64_t sum = 0;
  for (int i = 0; i < kResets; ++i) {
    for (size_t n = 0; n < used; n += 4096) use(arena.allocate(4096, 16));
    const uint64_t start = now_ns();
    arena.reset();
    use(&arena);
    sum += now_ns() - start;
  }
  return static_cast<double>(sum) / kResets;
}

// The same of the standard's arena over the heap: release() frees block after block.
double run_reset_pmr(size_t used) {
  std::pmr::monotonic_buffer_resource resource(kBuffer, std::pmr::new_delete_resource());
  constexpr int kResets = 50;
  uint64_t sum = 0;
  for (int i = 0; i < kResets; ++i) {
    for (size_t n = 0; n < used; n += 4096) use(resource.allocate(4096, 16));
    const uint64_t start = now_ns();
    resource.release();
    sum += now_ns() - start;
  }
  return static_cast<double>(sum) / kResets;
}

// --- Shared buffer -------------------------------------------------------------------------------

// All threads between two lines; ns a record as the wall clock sees it.
double ns_per_record(const Settings& s, size_t threads, const std::function<void(uint64_t)>& body) {
  std::atomic<size_t> ready{0}, done{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> running;
  running.reserve(threads);
  const uint64_t each = s.records / threads;
  for (size_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      pin_to(t % 2);
      ready.fetch_add(1, std::memory_order_acq_rel);
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      body(each);
      done.fetch_add(1, std::memory_order_acq_rel);
    });
  }
  while (ready.load(std::memory_order_acquire) != threads) std::this_thread::yield();
  const uint64_t start = now_ns();
  go.store(true, std::memory_order_release);
  for (std::thread& t : running) t.join();
  return static_cast<double>(now_ns() - start) / static_cast<double>(each * threads);
}

inline void write_record(std::byte* memory, uint64_t value) {
  std::memcpy(memory, &value, sizeof(value));
}

// The floors have the same memory to write to, and no end that they look for: it wraps around.
double run_fetch_add(const Settings& s, size_t threads) {
  alignas(kFalseSharingRange) std::atomic<uint64_t> position{0};
  std::vector<std::byte> memory(kBuffer * kBuffers);
  return ns_per_record(s, threads, [&](uint64_t records) {
    for (uint64_t i = 0; i < records; ++i) {
      const uint64_t at = position.fetch_add(kRecord, std::memory_order_relaxed);
      write_record(&memory[at % (kBuffer * kBuffers)], i);
    }
  });
}

double run_chunks(const Settings& s, size_t threads) {
  alignas(kFalseSharingRange) std::atomic<uint64_t> position{0};
  std::vector<std::byte> memory(kBuffer * kBuffers);
  return ns_per_record(s, threads, [&](uint64_t records) {
    uint64_t at = 0, end = 0;
    for (uint64_t i = 0; i < records; ++i) {
      if (kRecord > end - at) {
        at = position.fetch_add(4096, std::memory_order_relaxed);
        end = at + 4096;
      }
      std::byte* memory_at = &memory[at % (kBuffer * kBuffers)];
      use(memory_at);
      write_record(memory_at, i);
      at += kRecord;
    }
  });
}

double run_mutex(const Settings& s, size_t threads) {
  std::mutex mutex;
  uint64_t position = 0;
  std::vector<std::byte> memory(kBuffer * kBuffers);
  return ns_per_record(s, threads, [&](uint64_t records) {
    for (uint64_t i = 0; i < records; ++i) {
      const std::lock_guard lock(mutex);
      write_record(&memory[position % (kBuffer * kBuffers)], i);
      position += kRecord;
    }
  });
}

// The lock once for 4 KiB: a chunk is filled without it and given back, full, when the next one is
// taken. A thread that stops in the middle of a chunk keeps its records to itself, which chunked
// mode does not.
double run_mutex_chunks(const Settings& s, size_t threads) {
  std::mutex mutex;
  uint64_t position = 0, handed_over = 0;
  std::vector<std::byte> memory(kBuffer * kBuffers);
  return ns_per_record(s, threads, [&](uint64_t records) {
    uint64_t at = 0, end = 0, filled = 0;
    const auto next_chunk = [&] {
      const std::lock_guard lock(mutex);
      handed_over += std::exchange(filled, 0);
      at = position;
      position += 4096;
      end = position;
    };
    for (uint64_t i = 0; i < records; ++i) {
      if (kRecord > end - at) next_chunk();
      std::byte* memory_at = &memory[at % (kBuffer * kBuffers)];
      use(memory_at);
      write_record(memory_at, i);
      at += kRecord;
      filled += kRecord;
    }
    next_chunk();
  });
}

// One reservation for each record, or one for the records of `reservation` bytes, which the flusher
// gets together, as those of "mutex a 4 KiB". Two loops: an inner one would cost the first rows.
double run_shared(const Settings& s, size_t threads, SharedBuffer::Mode mode, size_t reservation) {
  SharedBuffer::Options o;
  o.mode = mode;
  o.buffer_bytes = kBuffer;
  o.buffer_count = kBuffers;
  o.stall_timeout_ns = 0;
  o.flush = [](void*, const SharedBuffer::Flushed&) noexcept {};
  auto made = SharedBuffer::create(o);
  SharedBuffer& buffer = **made;
  const double ns = ns_per_record(s, threads, [&](uint64_t records) {
    SharedBuffer::Writer writer = buffer.writer().value();
    if (reservation == kRecord) {
      for (uint64_t i = 0; i < records; ++i) {
        write_record(writer.reserve(kRecord), i);
        writer.commit();
      }
      return;
    }
    for (uint64_t i = 0; i < records;) {
      const uint64_t end = std::min(records, i + reservation / kRecord);
      std::byte* at = writer.reserve((end - i) * kRecord);
      for (; i < end; ++i, at += kRecord) {
        use(at);
        write_record(at, i);
      }
      writer.commit();
    }
  });
  if (!buffer.flush() || buffer.stats().bytes_flushed - buffer.stats().wasted_bytes !=
                             s.records / threads * threads * kRecord) {
    std::fprintf(stderr, "memory_bench: a record is missing\n");
    std::exit(2);
  }
  return ns;
}

struct Contender {
  std::string row, name;
  std::function<double()> run;
};

std::vector<Contender> contenders(const Settings& s) {
  std::vector<Contender> all;
  for (const size_t size : {16, 256}) {
    const std::string row = "arena " + std::to_string(size) + " B";
    all.push_back({row, "lumen", [=] { return run_arena(s, size); }});
    all.push_back({row, "bump", [=] { return run_bump(s, size); }});
    all.push_back({row, "std::pmr::monotonic_buffer_resource", [=] { return run_pmr(s, size); }});
    all.push_back({row, "malloc", [=] { return run_malloc(s, size); }});
  }
  constexpr size_t kLarge = 64 * 1024 * 1024;
  all.push_back({"arena reset after 64 MiB", "lumen", [] { return run_reset(kLarge); }});
  all.push_back({"arena reset after 64 MiB", "lumen after 4 KiB", [] { return run_reset(4096); }});
  all.push_back({"arena reset after 64 MiB", "std::pmr::monotonic_buffer_resource",
                 [] { return run_reset_pmr(kLarge); }});
  for (const size_t threads : {1, 2, 8}) {
    const std::string row = "shared buffer " + std::to_string(threads) + " threads";
    const auto add = [&](const char* name, SharedBuffer::Mode mode, size_t reservation) {
      all.push_back({row, name, [=] { return run_shared(s, threads, mode, reservation); }});
    };
    add("dense", SharedBuffer::Mode::kDense, kRecord);
    add("dense, 4 KiB a reservation", SharedBuffer::Mode::kDense, 4096);
    add("chunked", SharedBuffer::Mode::kChunked, kRecord);
    all.push_back({row, "fetch_add", [=] { return run_fetch_add(s, threads); }});
    all.push_back({row, "chunks", [=] { return run_chunks(s, threads); }});
    all.push_back({row, "mutex", [=] { return run_mutex(s, threads); }});
    all.push_back({row, "mutex a 4 KiB", [=] { return run_mutex_chunks(s, threads); }});
  }
  return all;
}

}  // namespace
}  // namespace lumen::bench

// memory_bench [--only NAME] [--rotate N] [--quick]
int main(int argc, char** argv) {
  std::string only;
  size_t rotate = 0;
  lumen::bench::Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--quick") {
      settings.batches /= 4;
      settings.records /= 4;
    } else if (flag == "--only" && i + 1 < argc) {
      only = argv[++i];
    } else if (flag == "--rotate" && i + 1 < argc) {
      rotate = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::fprintf(stderr, "memory_bench [--only NAME] [--rotate N] [--quick]\n");
      return 2;
    }
  }
  lumen::measure_core_distance();  // as the server does at its start
  lumen::bench::pin_to(0);
  std::vector<lumen::bench::Contender> all = lumen::bench::contenders(settings);
  std::rotate(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(rotate % all.size()),
              all.end());
  for (const auto& c : all) {
    if (only.empty() || c.name == only) lumen::bench::report(c.row, c.name, c.run());
  }
  return 0;
}
