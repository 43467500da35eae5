// How the io_uring loop accepts, its way out when no descriptor is left, and the descriptors of
// others that it watches. Its loop's thread only; allocates nothing; failures reach the handlers.
//
// An entry names a place in a table, not the listener or the watch: those may go at once, while the
// kernel lets go of the entry a turn later. A place is used anew after that.
#include "net/uring_loop.h"

#include <lumen/base/clock.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lumen::net {
namespace {

// How long the accept of ReserveDescriptor may block at most, where another thread has taken the
// connection that it saw.
constexpr timeval kAcceptTimeout{.tv_sec = 0, .tv_usec = 1000};

}  // namespace

Status UringLoop::add(Listener& listener) noexcept {
  const auto door = std::ranges::find_if(doors_, &Door::is_free);
  if (door == doors_.end()) {
    return Status::error(Code::kResourceExhausted, "a loop over io_uring takes %zu listeners",
                         kMostDoors);
  }
  // An accept of a non-blocking listener would end with EAGAIN instead of waiting.
  const int flags = ::fcntl(listener.fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(listener.fd.get(), F_SETFL, flags & ~O_NONBLOCK) != 0 ||
      ::setsockopt(listener.fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kAcceptTimeout,
                   sizeof(kAcceptTimeout)) != 0) {
    return Status::from_errno(errno, "preparing a listener for io_uring");
  }
  *door = Door{.listener = &listener};
  ask(*door, Door::Step::kAccepting);
  return {};
}

void UringLoop::ask(Door& door, Door::Step step) noexcept {
  door.step = step;
  door.asked = true;
  doors_asked_ = true;
}

// The kernel holds the listening socket until its entry has ended, so that is waited for no longer
// than this call. A connection that it has accepted meanwhile is closed by on_accept().
void UringLoop::remove(Listener& listener) noexcept {
  for (Door& door : doors_) {
    if (door.listener != &listener) continue;
    door.listener = nullptr;
    door.asked = door.in_kernel;
    doors_asked_ = true;
  }
  submit();
  if (is_enabled_) look();
  listener.fd.reset();
}

Status UringLoop::add(Watch& watch) noexcept {
  const auto watched = std::ranges::find_if(watches_, &Watched::is_free);
  if (watched == watches_.end()) {
    return Status::error(Code::kResourceExhausted, "a loop over io_uring watches %zu descriptors",
                         kMostWatches);
  }
  *watched = Watched{.watch = &watch, .asked = true};
  watches_used_ = std::max(watches_used_, static_cast<size_t>(watched - watches_.begin()) + 1);
  doors_asked_ = true;
  return {};
}

void UringLoop::remove(Watch& watch) noexcept {
  for (size_t i = 0; i < watches_used_; ++i) {
    Watched& watched = watches_[i];
    if (watched.watch != &watch) continue;
    watched.watch = nullptr;
    watched.asked = watched.in_kernel;
    doors_asked_ = true;
  }
  watch.fd = -1;
}

void UringLoop::write_door_entries() noexcept {
  doors_asked_ = false;
  for (size_t i = 0; i < doors_.size(); ++i) {
    Door& door = doors_[i];
    if (!door.asked || door.step == Door::Step::kPaused) continue;
    if (!make_room(1)) {
      doors_asked_ = true;
      return;
    }
    door.asked = false;
    const uint64_t place = i << kIndexShift | kAccept;
    if (door.in_kernel) {
      cancel(place);
      continue;
    }
    const Uring::Entry entry = ring_->next_entry();
    entry.sqe.fd = door.listener->fd.get();
    entry.sqe.user_data = place;
    if (door.step == Door::Step::kPolling) {
      entry.sqe.opcode = IORING_OP_POLL_ADD;
      entry.sqe.poll32_events = POLLIN;
    } else {
      // Waits exclusively: of the loops that share a listener a connection wakes one.
      entry.sqe.opcode = IORING_OP_ACCEPT;
      entry.sqe.ioprio = IORING_ACCEPT_MULTISHOT;
      entry.sqe.accept_flags = SOCK_CLOEXEC;
    }
    door.in_kernel = true;
  }
  for (size_t i = 0; i < watches_used_; ++i) {
    Watched& watched = watches_[i];
    if (!watched.asked) continue;
    if (!make_room(1)) {
      doors_asked_ = true;
      return;
    }
    watched.asked = false;
    const uint64_t place = i << kIndexShift | kWatch;
    if (watched.in_kernel) {
      cancel(place);
      continue;
    }
    const Uring::Entry entry = ring_->next_entry();
    entry.sqe.opcode = IORING_OP_POLL_ADD;
    entry.sqe.fd = watched.watch->fd;
    entry.sqe.poll32_events = POLLIN;
    entry.sqe.user_data = place;
    watched.in_kernel = true;
  }
}

size_t UringLoop::on_accept(Door& door, const io_uring_cqe& completion) noexcept {
  const bool was_accepting = door.step == Door::Step::kAccepting;
  door.in_kernel = (completion.flags & IORING_CQE_F_MORE) != 0;
  UniqueFd fd(was_accepting && completion.res >= 0 ? completion.res : -1);
  if (door.listener == nullptr) {  // removed, so that an accepted connection is closed
    door.asked = door.asked && door.in_kernel;
    return 0;
  }
  if (fd.valid()) {
    if (!door.in_kernel) ask(door, Door::Step::kAccepting);
    if (door.listener->handler->on_accepted(Socket{fd.get()})) (void)fd.release();
    return 1;
  }
  if (was_accepting) return on_accept_error(door, -completion.res);
  ask(door, Door::Step::kAccepting);  // there is a connection, or the poll has failed
  return 0;
}

size_t UringLoop::on_accept_error(Door& door, int error) noexcept {
  ask(door, Door::Step::kPolling);
  if (error == EAGAIN || error == EINTR || error == ECONNABORTED || error == ECANCELED) return 0;
  if (error == EMFILE || error == ENFILE) {
    // The kernel says it before it looks whether there is a connection.
    const bool has_refused = reserve_.refuse_one(door.listener->fd.get());
    if (!reserve_.valid()) {
      door.step = Door::Step::kPaused;
      resume_ns_ = now_ns() + kAcceptPauseNs;
    }
    if (!has_refused) return 0;
  }
  door.listener->handler->on_accept_failed(error);
  return 1;
}

// Only with the reserve in hand: without it the next accept would end here again.
void UringLoop::resume_doors() noexcept {
  reserve_.restore();
  if (!reserve_.valid()) {
    resume_ns_ = now_ns() + kAcceptPauseNs;
    return;
  }
  resume_ns_ = UINT64_MAX;
  for (Door& door : doors_) {
    if (door.step == Door::Step::kPaused && door.listener != nullptr) {
      ask(door, Door::Step::kPolling);
    }
  }
}

// Told in each turn as long as there is something: the next poll completes at once then.
size_t UringLoop::on_watch(Watched& watched, int32_t result) noexcept {
  watched.in_kernel = false;
  watched.asked = watched.watch != nullptr;
  if (!watched.asked) return 0;
  doors_asked_ = true;
  if (result < 0) return 0;
  Watch& watch = *watched.watch;
  watch.handler->on_ready(watch, (result & (POLLHUP | POLLERR)) != 0);
  return 1;
}

}  // namespace lumen::net
