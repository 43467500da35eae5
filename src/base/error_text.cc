// The pool of long error messages. See the header.
#include <lumen/base/error_text.h>

#include <algorithm>
#include <cstring>

namespace lumen {
namespace {

// Zeroes, so that the file and a process without errors have none of its pages.
constinit std::array<ErrorText, ErrorText::kSlots> g_slots;
// Where this thread found its last slot: it is mostly free again, and in this core's caches.
thread_local size_t t_first = 0;

}  // namespace

ErrorText* ErrorText::claim(std::string_view text) noexcept {
  for (size_t look = 0; look < kMostLooks; ++look) {
    const size_t at = (t_first + look) % kSlots;
    ErrorText& slot = g_slots[at];
    uint32_t holders = 0;
    // relaxed: only a look; another thread may be quicker.
    if (slot.holders_.load(std::memory_order_relaxed) != 0) continue;
    // sync[error_text.holders]: the last holder has read the old text.
    if (!slot.holders_.compare_exchange_strong(holders, 1, std::memory_order_acquire,
                                               std::memory_order_relaxed)) {
      continue;
    }
    slot.size_ = static_cast<uint16_t>(std::min(text.size(), kMaxBytes));
    std::memcpy(slot.bytes_.data(), text.data(), slot.size_);
    slot.bytes_[slot.size_] = '\0';
    t_first = at;
    return &slot;
  }
  // The next claim of this thread looks at other slots.
  t_first = (t_first + kMostLooks) % kSlots;
  return nullptr;
}

size_t ErrorText::in_use() noexcept {
  return static_cast<size_t>(std::count_if(g_slots.begin(), g_slots.end(), [](const auto& slot) {
    return slot.holders_.load(std::memory_order_relaxed) != 0;  // relaxed: a count for tests
  }));
}

}  // namespace lumen
