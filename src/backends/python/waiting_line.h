// WaitingLine: requests that the ring to a process has no room for yet, in their order.
// Threads: one at a time. Memory: none. Errors: push() is false once it is full.
#pragma once

#include <lumen/models/infer_request.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

namespace lumen::backends::python {

// A request and where its end is told.
struct Place {
  models::InferRequest* request = nullptr;
  void (*done)(models::InferRequest&) noexcept = nullptr;
};

class WaitingLine {
 public:
  // As many as may be in flight.
  static constexpr uint32_t kMost = 1024;

  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool push(const Place& place) noexcept {
    if (count_ == kMost) return false;
    places_[count_++] = place;
    next_deadline_ns_ = std::min(next_deadline_ns_, place.request->deadline_ns);
    return true;
  }
  [[nodiscard]] const Place& front() const noexcept { return places_[0]; }
  void pop() noexcept { remove(0); }
  // None is late before; it may lie before the earliest deadline. UINT64_MAX: none.
  [[nodiscard]] uint64_t next_deadline_ns() const noexcept { return next_deadline_ns_; }
  // One whose deadline has passed.
  [[nodiscard]] std::optional<Place> take_late(uint64_t now_ns) noexcept {
    if (now_ns < next_deadline_ns_) return std::nullopt;
    next_deadline_ns_ = UINT64_MAX;
    for (uint32_t i = 0; i < count_; ++i) {
      const Place place = places_[i];
      if (place.request->deadline_ns <= now_ns) {
        remove(i);
        next_deadline_ns_ = now_ns;  // more may be late
        return place;
      }
      next_deadline_ns_ = std::min(next_deadline_ns_, place.request->deadline_ns);
    }
    return std::nullopt;
  }

 private:
  void remove(uint32_t at) noexcept {
    std::copy(places_.begin() + at + 1, places_.begin() + count_, places_.begin() + at);
    if (--count_ == 0) next_deadline_ns_ = UINT64_MAX;
  }

  std::array<Place, kMost> places_{};
  uint32_t count_ = 0;
  uint64_t next_deadline_ns_ = UINT64_MAX;
};

}  // namespace lumen::backends::python
