// Looking at several rings, and sleeping for all of them. One thread. Memory: none. Errors:
// Outcome.
#include <lumen/bus/wait_any.h>

#include <lumen/base/check.h>
#include <lumen/base/clock.h>

#include <array>
#include <optional>

namespace lumen::bus {
namespace {

std::optional<Ready> look(std::span<Subscriber* const> subscribers, size_t start) noexcept {
  for (size_t i = 0; i < subscribers.size(); ++i) {
    const size_t index = (start + i) % subscribers.size();
    Subscriber& one = *subscribers[index];
    if (one.ready() != 0 || one.look_now()) return Ready{Outcome::kOk, index};
    if (one.peer()->state() == Outcome::kOk) continue;
    if (const Outcome over = one.state(); over != Outcome::kOk) return Ready{over, index};
  }
  return std::nullopt;
}

}  // namespace

Ready wait_any(std::span<Subscriber* const> subscribers, IdleStrategy& idle, size_t start,
               uint64_t deadline_ns) noexcept {
  LUMEN_CHECK(!subscribers.empty() && subscribers.size() <= kMostWaitedFor);
  for (;;) {
    if (const std::optional<Ready> ready = look(subscribers, start)) {
      idle.found();
      return *ready;
    }
    if (idle.idle() != IdleStrategy::Step::kPark) continue;
    if (deadline_ns != UINT64_MAX && now_ns() >= deadline_ns) return {Outcome::kTimedOut, 0};
    for (Subscriber* one : subscribers) one->announce_sleep();
    std::array<pollfd, 3 * kMostWaitedFor> fds;
    size_t count = 0;
    for (const Subscriber* one : subscribers) {
      for (const pollfd& fd : one->polls()) fds[count++] = fd;
    }
    Woken woken = Woken::kEvent;
    const bool is_empty = !look(subscribers, start);
    if (is_empty) {
      idle.parking();
      woken = sleep_on({fds.data(), count}, deadline_ns);
      idle.unparked();
    }
    for (size_t i = 0; i < subscribers.size(); ++i) {
      subscribers[i]->end_sleep();
      if (is_empty && fds[3 * i].revents != 0) subscribers[i]->bell().found_rung();
      const bool is_gone = is_empty && (fds[3 * i + 1].revents | fds[3 * i + 2].revents) != 0;
      if (is_gone) (void)subscribers[i]->peer()->look();
    }
    if (woken == Woken::kInterrupted) return {Outcome::kInterrupted, 0};
  }
}

}  // namespace lumen::bus
