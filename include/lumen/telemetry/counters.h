// Counters: every number Lumen counts, in one struct of fixed layout, so that it can later lie in a
// mapped file that other tools read. Fixed-width, no pointers, magic and version first.
// Threads: each counter is a relaxed atomic; writers of one block are few, readers any.
// Memory: one Counters a process, made at start. Says no: never.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/limits.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lumen::telemetry {

// relaxed everywhere: counters order nothing, and a reader accepts a view a moment old.
class Counter {
 public:
  void add(uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  void set(uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
  void subtract(uint64_t n = 1) noexcept { value_.fetch_sub(n, std::memory_order_relaxed); }
  [[nodiscard]] uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct Duration {  // the protocol's {"count", "ns"}
  Counter count;
  Counter ns;
  void add(uint64_t duration_ns) noexcept {
    count.add();
    ns.add(duration_ns);
  }
};

// One model version. Names follow the protocol's statistics extension.
struct alignas(kFalseSharingRange) ModelCounters {
  Counter inference_count;    // rows
  Counter execution_count;    // calls of the model
  Counter last_inference_ms;  // wall clock, ms since the epoch; 0: never
  Duration success;           // whole request, first byte read to reply encoded
  Duration fail;
  Duration queue;
  Duration compute_input;   // stage "preprocess"
  Duration compute_infer;   // stage "inference"
  Duration compute_output;  // stage "postprocess"
};

struct alignas(kFalseSharingRange) ServerCounters {
  Counter connections_accepted;
  Counter connections_open;
  Counter connections_refused;  // over the cap, or no descriptor left
  Counter requests;             // heads understood
  Counter responses_2xx;
  Counter responses_4xx;
  Counter responses_5xx;
  Counter bytes_received;
  Counter bytes_received_direct;  // of these: from the socket straight into a tensor
  Counter bytes_sent;
  Counter timeouts;      // slow head, slow body, slow read
  Counter loop_wakeups;  // returns from the kernel's wait
  Counter worker_parks;
  Counter request_heap_calls;   // malloc and free for requests' memory (allocator_type standard)
  Counter request_arena_bytes;  // taken from requests' regions (allocator_type lumen_arena)
  Counter engine_swaps;         // changes of the engine's configuration while serving
  Counter cancelled;            // requests not run, since their client was gone
};

struct Counters {
  static constexpr uint64_t kMagic = 0x3153'4e4d'554c'4e43u;  // "CNLUMNS1", little-endian
  static constexpr uint32_t kVersion = 1;

  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t model_capacity = limits::kMaxModels;
  ServerCounters server;
  ModelCounters models[limits::kMaxModels];
};

static_assert(sizeof(Counter) == 8 && std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::is_standard_layout_v<Counters>);
static_assert(offsetof(Counters, magic) == 0 && offsetof(Counters, version) == 8);
static_assert(offsetof(Counters, server) == kFalseSharingRange);
static_assert(sizeof(ServerCounters) == 2 * kFalseSharingRange);
static_assert(sizeof(ModelCounters) == kFalseSharingRange);
static_assert(offsetof(Counters, models) == 3 * kFalseSharingRange);

}  // namespace lumen::telemetry
