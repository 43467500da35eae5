// The bounds of EngineConfig. Any thread; no memory.
#include <lumen/engine/engine_config.h>

#include <lumen/base/cpu.h>

#include <algorithm>
#include <bit>

namespace lumen::engine {

Status EngineConfig::check() const noexcept {
  const auto within = [](const char* key, uint64_t got, uint64_t low, uint64_t high) {
    if (got >= low && got <= high) return Status();
    return Status::error(Code::kInvalidArgument, "%s: got %llu, wanted %llu to %llu", key,
                         static_cast<unsigned long long>(got), static_cast<unsigned long long>(low),
                         static_cast<unsigned long long>(high));
  };
  LUMEN_RETURN_IF_ERROR(within("thread_count", thread_count, 0, limits::kMaxWorkers));
  LUMEN_RETURN_IF_ERROR(within("batch_size", batch_size, 1, limits::kMaxBatchSize));
  LUMEN_RETURN_IF_ERROR(
      within("max_queue_delay_us", max_queue_delay_us, 0, limits::kMaxQueueDelayUs));
  LUMEN_RETURN_IF_ERROR(within("queue_capacity", queue_capacity, 2, limits::kMaxQueueCapacity));
  LUMEN_RETURN_IF_ERROR(within("default_timeout_us", default_timeout_us, 0, limits::kMaxTimeoutUs));
  LUMEN_RETURN_IF_ERROR(within("latency_budget_us", latency_budget_us, 0, limits::kMaxTimeoutUs));
  if (!std::has_single_bit(queue_capacity)) {
    return Status::error(Code::kInvalidArgument, "queue_capacity: got %zu, wanted a power of two",
                         queue_capacity);
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
  // A worker keeps back up to 16 for models that have no room (or a batch), and runs as many at most.
  const size_t of_a_worker = 2 * std::max<size_t>(config.batch_size, 16);
  const size_t in_rings = workers * spsc_ring_capacity(counted);
  return std::max(config.queue_capacity, in_rings) + workers * of_a_worker;
}

}  // namespace lumen::engine
