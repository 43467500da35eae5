// SubscriberLink: one subscriber, as its publisher has it; PendingSubscribers: those on their way
// to the publisher.
// Threads: a link is the publisher's; PendingSubscribers: any. Memory: the heap, at add(). Errors:
// none.
#pragma once

#include <lumen/base/unique_fd.h>
#include <lumen/bus/peer.h>
#include <lumen/bus/stream_memory.h>

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace lumen::bus {

// One subscriber, as the publisher has it.
struct SubscriberLink {
  std::shared_ptr<CursorMemory> cursor;
  std::shared_ptr<Peer> peer;
  Bell bell;
  bool holds_back = true;             // false: is lapped instead
  uint64_t max_hold_ns = UINT64_MAX;  // dropped once the publisher has waited for it for so long
  uint32_t entry = 0;                 // in PublisherPage::subscribers
  uint32_t generation = 0;            // of that entry

  // The publisher's: as last seen and checked.
  uint64_t head_bytes = 0;
  uint64_t head_frames = 0;
  bool has_moved = false;  // its words were not 0 any more
};

// Subscribers that a listener has accepted while the publisher is at work.
class PendingSubscribers {
 public:
  PendingSubscribers() noexcept;
  // Forgets subscribers that have gone meanwhile, so that a publisher that does nothing for long
  // keeps none of them.
  void add(std::unique_ptr<SubscriberLink> link);
  [[nodiscard]] std::vector<std::unique_ptr<SubscriberLink>> take();
  // Cheap: a number that changes with add(), and whenever somebody is known to be gone.
  [[nodiscard]] uint32_t version() const noexcept {
    return version_.load(std::memory_order_acquire);  // sync[bus.pending]: with add() and touch()
  }
  // Wakes the publisher if it sleeps.
  void touch() noexcept;
  // Readable after touch(), until drain().
  [[nodiscard]] pollfd poll() const noexcept { return {event_.get(), POLLIN, 0}; }
  void drain() noexcept;

 private:
  std::mutex mutex_;
  UniqueFd event_;
  std::vector<std::unique_ptr<SubscriberLink>> links_;
  std::atomic<uint32_t> version_{0};
};

}  // namespace lumen::bus
