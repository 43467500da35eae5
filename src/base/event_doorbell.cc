// The system calls of EventDoorbell. Threads: as in the header. Memory: none.
// Errors: open() alone; a write to an eventfd fails only when its counter is full, that is rung.
#include <lumen/base/event_doorbell.h>

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace lumen {

Status EventDoorbell::open() noexcept {
  event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_.valid()) {
    return Status::from_errno(errno,
                              "eventfd for a doorbell failed; raise the limit of open files");
  }
  return {};
}

bool EventDoorbell::drain() noexcept {
  cancel();
  uint64_t rings = 0;
  return ::read(event_.get(), &rings, sizeof rings) == static_cast<ssize_t>(sizeof rings);
}

void EventDoorbell::ring_slow() noexcept {
  // relaxed: who wakes is decided here; what was published is ordered by the caller's seq_cst
  if (sleeping_.exchange(0, std::memory_order_relaxed) == 0) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

}  // namespace lumen
