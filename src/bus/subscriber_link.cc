// PendingSubscribers: the listener's thread adds, the publisher's thread takes.
// Memory: a list, when a subscriber comes. Errors: never.
#include "bus/subscriber_link.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

namespace lumen::bus {

void PendingSubscribers::add(std::unique_ptr<SubscriberLink> link) {
  {
    const std::scoped_lock lock(mutex_);
    std::erase_if(links_, [](const auto& one) { return one->peer->look() != Outcome::kOk; });
    links_.push_back(std::move(link));
  }
  touch();
}

PendingSubscribers::PendingSubscribers() noexcept
    : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

void PendingSubscribers::touch() noexcept {
  version_.fetch_add(1, std::memory_order_release);  // sync[bus.pending]: with version()
  const uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof(one));  // EAGAIN: it is readable already
}

void PendingSubscribers::drain() noexcept {
  uint64_t count = 0;
  (void)!::read(event_.get(), &count, sizeof(count));  // EAGAIN: nothing to take away
}

std::vector<std::unique_ptr<SubscriberLink>> PendingSubscribers::take() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(links_, {});
}

}  // namespace lumen::bus
