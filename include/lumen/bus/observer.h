// Observer: reads a listener's figures, as `lumen bus top` does; takes part in nothing.
// Threads: one at a time. Memory: control plane. Errors: Result.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lumen::bus {

// One ring, as its listener sees it; words that the other side writes may be wrong. Also the bytes
// of the answer.
struct RingFigures {
  uint32_t pid = 0;  // of the other side
  uint32_t uid = 0;
  uint32_t publishes = 0;  // 1: the other side publishes
  uint32_t lapped = 0;     // 1: the subscriber is lapped
  uint64_t capacity = 0;
  uint64_t slots = 0;
  uint64_t frames = 0;  // published so far
  uint64_t bytes = 0;   // of payload, rounded up to 64 a frame
  uint64_t unread_frames = 0;
  uint64_t unread_bytes = 0;
  uint64_t stalls = 0;   // times that the publisher had to wait for room
  uint64_t dropped = 0;  // subscribers that held the ring for too long
  uint64_t lost = 0;     // frames that a lapped subscriber has missed
  uint64_t type_rows = 0;
};
static_assert(sizeof(RingFigures) == 96);

struct TypeFigures {
  uint64_t type_id = 0;
  uint64_t frames = 0;
  uint64_t bytes = 0;
};

struct RingReport {
  RingFigures ring;
  std::vector<TypeFigures> types;
};

class Observer {
 public:
  [[nodiscard]] static Result<Observer> connect(const std::string& path);
  // All rings that the listener has now.
  [[nodiscard]] Result<std::vector<RingReport>> read();

 private:
  explicit Observer(UniqueFd socket) noexcept : socket_(std::move(socket)) {}
  UniqueFd socket_;
};

}  // namespace lumen::bus
