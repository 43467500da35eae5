// Readings and how they are split. See the header for threads, memory and errors.
#include "engine/instance_memory.h"

#include <cstdlib>

namespace lumen::engine {

uint64_t InstanceMemory::Making::end() {
  if (is_under_way_) memory_.end(*this);
  is_under_way_ = false;
  return bytes_ > 0 ? static_cast<uint64_t>(bytes_) : 0;
}

void InstanceMemory::begin(Making& making) {
  const std::lock_guard lock(mutex_);
  split_growth();
  under_way_.push_back(&making);
}

void InstanceMemory::end(Making& making) {
  const std::lock_guard lock(mutex_);
  split_growth();
  std::erase(under_way_, &making);
}

// Shrinking is split as well: while it compiles, a backend takes memory that it gives back before
// it is done.
void InstanceMemory::split_growth() {
  const uint64_t now = read_();
  const auto growth = static_cast<int64_t>(now) - static_cast<int64_t>(seen_);
  seen_ = now;
  const auto count = static_cast<int64_t>(under_way_.size());
  for (int64_t i = 0; i < count; ++i) {
    // What does not divide goes to the oldest, a byte each, so that nothing is lost.
    const int64_t rest = growth % count;
    const int64_t extra = i < std::abs(rest) ? (rest > 0 ? 1 : -1) : 0;
    under_way_[static_cast<size_t>(i)]->bytes_ += growth / count + extra;
  }
}

}  // namespace lumen::engine
