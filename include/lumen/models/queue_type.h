// QueueType and AllocatorType: how a request reaches the thread that runs its model, and where its
// bytes lie. The engine's configuration sets both; a model's own config.json may set the first.
// Threads: values. Memory: none. Errors: never.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lumen::models {

enum class QueueType : uint8_t {
  kMpmc,     // one lock-free ring for all I/O threads and workers
  kSpsc,     // a ring for each pair of I/O thread and worker; the least busy worker gets a request
  kNaive,    // mutex and condition variable
  kBatched,  // as mpmc; waiting requests are packed along the batch axis
  kInline,   // no hand-off: the I/O thread runs the model
  // A setting only, of no request: inline where the run is expected to cost less than the hand-off
  // to a worker, else batched where packing pays, else mpmc.
  kAuto,
};
inline constexpr std::array<std::string_view, 6> kQueueTypeNames = {"mpmc",    "spsc",   "naive",
                                                                    "batched", "inline", "auto"};

enum class AllocatorType : uint8_t {
  kLumenArena,  // regions, reset in O(1)
  kStandard,    // the heap
};
inline constexpr std::array<std::string_view, 2> kAllocatorTypeNames = {"lumen_arena", "standard"};

[[nodiscard]] constexpr std::string_view name_of(QueueType type) noexcept {
  return kQueueTypeNames[static_cast<size_t>(type)];
}
[[nodiscard]] constexpr std::string_view name_of(AllocatorType type) noexcept {
  return kAllocatorTypeNames[static_cast<size_t>(type)];
}

}  // namespace lumen::models
