// The checks of EngineConfig, and its derived numbers. Any thread.
#include <lumen/engine/engine_config.h>

#include <lumen/base/cpu.h>

#include <algorithm>
#include <bit>

namespace lumen::engine {

Status EngineConfig::check() const {
  const struct {
    const char* key;
    uint64_t value;
    Bounds bounds;
  } numbers[] = {{"thread_count", thread_count, kThreadCount},
                 {"batch_size", batch_size, kBatchSize},
                 {"max_queue_delay_us", max_queue_delay_us, kMaxQueueDelayUs},
                 {"queue_capacity", queue_capacity, kQueueCapacity},
                 {"default_timeout_us", default_timeout_us, kTimeoutUs},
                 {"latency_budget_us", latency_budget_us, kTimeoutUs}};
  for (const auto& [key, value, bounds] : numbers) {
    LUMEN_RETURN_IF_ERROR(bounds.check(value).at(key));
  }
  return {};
}

size_t spsc_ring_capacity(const EngineConfig& config) noexcept {
  const size_t workers = std::max<size_t>(config.thread_count, 1);
  return std::bit_ceil(std::max<size_t>((config.queue_capacity + workers - 1) / workers, 2));
}

size_t most_requests_held(const EngineConfig& config) noexcept {
  EngineConfig counted = config;
  if (counted.thread_count == 0) counted.thread_count = usable_cpu_count();
  const size_t workers = counted.thread_count;
  // A worker keeps back up to 16 for models that have no room (or a batch), and runs as many at
  // most.
  const size_t of_a_worker = 2 * std::max<size_t>(config.batch_size, 16);
  const size_t in_rings = workers * spsc_ring_capacity(counted);
  return std::max(config.queue_capacity, in_rings) + workers * of_a_worker;
}

}  // namespace lumen::engine
