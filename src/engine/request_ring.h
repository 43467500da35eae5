// RequestRing: a bounded ring of requests, each with a key (its arrival, its deadline) that can be
// looked at without taking it.
// Threads: any. Memory: at construction. Errors: try_push() is false when it is full.
#pragma once

#include <lumen/models/infer_request.h>
#include <lumen/queue/mpmc_queue.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace lumen::engine {

class RequestRing {
 public:
  explicit RequestRing(size_t capacity)
      : queue_(capacity), keys_(std::make_unique<std::atomic<uint64_t>[]>(capacity)) {}

  [[nodiscard]] bool try_push(models::InferRequest& request, uint64_t key) noexcept {
    auto place = queue_.reserve(1);
    if (place.size() == 0) return false;
    // relaxed: a hint, see oldest_key_was()
    key_at(place.position()).store(key, std::memory_order_relaxed);
    place[0] = &request;
    place.done();
    return true;
  }
  [[nodiscard]] models::InferRequest* try_pop() noexcept {
    models::InferRequest* request = nullptr;
    return queue_.try_pop(request) ? request : nullptr;
  }

  // Racy, with those that are claimed and not there yet.
  [[nodiscard]] bool was_empty() const noexcept { return queue_.was_empty(); }
  [[nodiscard]] size_t size_was() const noexcept { return queue_.size_was(); }
  // Racy: of a ring that was not empty. One that was taken meanwhile gives that of a neighbour, and
  // the choice by it is off by one request.
  [[nodiscard]] uint64_t oldest_key_was() const noexcept {
    // relaxed: as above
    return key_at(queue_.oldest_position_was()).load(std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] std::atomic<uint64_t>& key_at(size_t position) const noexcept {
    return keys_[position & (queue_.capacity() - 1)];
  }

  MpmcQueue<models::InferRequest*> queue_;
  const std::unique_ptr<std::atomic<uint64_t>[]> keys_;
};

}  // namespace lumen::engine
