// Request: one request of a bus connection, from its frame to its reply.
// Threads: its I/O thread; while it is in the engine, the thread that runs it. Memory: a region,
// made at start.
// Errors: create() returns why there is no region.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/memory/request_memory.h>
#include <lumen/models/model_repository.h>
#include <lumen/service/call.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace lumen::shm {

class BusConnection;
class BusTransport;

// The room that a client has named for all outputs, in memory that it can change at any time.
class ReplyPlace final : public Allocator {
 public:
  ReplyPlace() noexcept = default;
  explicit ReplyPlace(std::span<std::byte> room) noexcept : room_(room) {}

  void* allocate(size_t bytes, size_t alignment) noexcept override {
    const size_t begin = (used_ + alignment - 1) & ~(alignment - 1);
    wanted_ = begin + bytes;
    if (begin > room_.size() || bytes > room_.size() - begin) {
      was_refused_ = true;
      return nullptr;
    }
    used_ = begin + bytes;
    return room_.data() + begin;
  }
  [[nodiscard]] size_t room() const noexcept { return room_.size(); }
  // The size with the last allocation.
  [[nodiscard]] size_t wanted() const noexcept { return wanted_; }
  [[nodiscard]] bool holds(const std::byte* data) const noexcept {
    return std::less_equal<>()(room_.data(), data) &&
           std::less<>()(data, room_.data() + room_.size());
  }
  [[nodiscard]] bool was_refused() const noexcept { return was_refused_; }

 private:
  std::span<std::byte> room_;
  size_t used_ = 0;
  size_t wanted_ = 0;
  bool was_refused_ = false;
};

struct Request final : public service::CallOwner {
  explicit Request(BusTransport& connection_host) noexcept : host(connection_host) {}

  // The outputs lie where they belong, and the reply is written by the I/O thread.
  void encode(service::Call& of_mine) noexcept override { (void)of_mine; }
  void on_returned(service::Call& of_mine) noexcept override;

  BusTransport& host;
  RequestMemory memory;
  service::Call call;
  ReplyPlace reply_place;
  uint64_t id = 0;  // of its frame
  BusConnection* connection = nullptr;
  uint64_t reserved_bytes = 0;             // of the reply ring
  const models::Model* room_of = nullptr;  // it counts among the calls in memory of that model
  // Among the requests of its connection, or (next alone) the free ones.
  Request* previous = nullptr;
  Request* next = nullptr;
  // Among those of RequestIds.
  Request* previous_in_bucket = nullptr;
  Request* next_in_bucket = nullptr;
};

}  // namespace lumen::shm
