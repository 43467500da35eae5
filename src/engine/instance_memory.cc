// Readings and how they are split. See the header for threads, memory and errors.
#include "engine/instance_memory.h"

#include <cstddef>

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
  double weights = 0;
  for (const Making* making : under_way_) weights += static_cast<double>(making->weight_);
  int64_t rest = growth;
  for (Making* making : under_way_) {
    const double share = static_cast<double>(making->weight_) / weights;
    const auto part = static_cast<int64_t>(static_cast<double>(growth) * share);
    making->bytes_ += part;
    rest -= part;
  }
  // Bytes that do not divide go to the oldest, one each, so that none is lost.
  for (size_t i = 0; rest != 0 && !under_way_.empty(); i = (i + 1) % under_way_.size()) {
    const int64_t one = rest > 0 ? 1 : -1;
    under_way_[i]->bytes_ += one;
    rest -= one;
  }
}

}  // namespace lumen::engine
