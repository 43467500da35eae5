// EngineConfig: how requests meet workers and where their bytes live. All of it can be changed
// while serving. Threads: a value. Memory: none. Errors: check() names the key, got and wanted.
#pragma once

#include <lumen/base/bounds.h>
#include <lumen/base/limits.h>
#include <lumen/base/result.h>
#include <lumen/models/queue_type.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lumen::engine {

// Which request a free worker takes, where those of several models wait. `spsc` and `naive` have
// one queue for all models and take from it in the order of arrival.
enum class Policy : uint8_t {
  kFair,      // from the model that has had the least of the workers' time, by its weight
  kDeadline,  // the earliest deadline; those without one last
  kFifo,      // the oldest
};
inline constexpr std::array<std::string_view, 3> kPolicyNames = {"fair", "deadline", "fifo"};

[[nodiscard]] constexpr std::string_view name_of(Policy policy) noexcept {
  return kPolicyNames[static_cast<size_t>(policy)];
}

struct EngineConfig {
  // The bounds of its numbers.
  static constexpr Bounds kThreadCount = {0, limits::kMaxWorkers};
  static constexpr Bounds kBatchSize = {1, limits::kMaxBatchSize};
  static constexpr Bounds kMaxQueueDelayUs = {0, limits::kMaxQueueDelayUs};
  static constexpr Bounds kQueueCapacity = {2, limits::kMaxQueueCapacity, true};
  static constexpr Bounds kTimeoutUs = {0, limits::kMaxTimeoutUs};

  models::QueueType queue_type = models::QueueType::kMpmc;
  Policy policy = Policy::kFair;
  models::AllocatorType allocator_type = models::AllocatorType::kLumenArena;
  // 0: as many as CPUs may be used (affinity and cgroup quota). `inline` has no workers: its I/O
  // threads run the models.
  uint32_t thread_count = 1;
  // Rows that `batched` and `inline` may pack into one inference, at most; 1: they never pack.
  uint32_t batch_size = limits::kDefaultBatchSize;
  // How long `batched` may hold a request back for others to join it. 0: packs only requests that
  // wait already.
  uint32_t max_queue_delay_us = 0;
  // Requests of one model that may wait for a worker (with `spsc` and `naive`: of all models). A
  // power of two.
  size_t queue_capacity = limits::kDefaultQueueCapacity;
  // A request that waited longer is answered 504 without running; 0: none. A request's own
  // "timeout" parameter wins.
  uint64_t default_timeout_us = 0;
  // Admission: a request that would wait longer than this by the measured service time is refused
  // at once. 0: none.
  uint64_t latency_budget_us = 0;

  [[nodiscard]] bool operator==(const EngineConfig&) const = default;
  [[nodiscard]] Status check() const;
};

// Whether requests of each model wait in a queue of their own, for any worker or for some.
[[nodiscard]] constexpr bool has_model_queues(models::QueueType type) noexcept {
  return type == models::QueueType::kAuto || type == models::QueueType::kMpmc ||
         type == models::QueueType::kBatched;
}
// The places of each ring of `spsc`: a power of two, so many that the rings of all workers together
// have queue_capacity at least, and less than twice that.
[[nodiscard]] size_t spsc_ring_capacity(const EngineConfig& config) noexcept;
// Requests of one I/O thread that may be between submit() and their completion, whichever queue
// type. thread_count: 0 stands for as many as may be used.
[[nodiscard]] size_t most_requests_held(const EngineConfig& config) noexcept;

}  // namespace lumen::engine
