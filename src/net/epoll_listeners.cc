// How the epoll loop accepts, and its way out when no descriptor is left. Its loop's thread only;
// allocates nothing; failures reach the listener's handler.
#include "net/epoll_loop.h"

#include <lumen/base/clock.h>

#include <sys/socket.h>

#include <cerrno>

namespace lumen::net {
namespace {

// Connections taken from one listener a turn, so that a flood does not starve those that are
// served.
constexpr int kAcceptsPerTurn = 64;

}  // namespace

Status EpollLoop::add(Listener& listener) noexcept {
  epoll_event event{};
  // Of the loops that share a listener a connection wakes one. The others find it too if they look.
  event.events = EPOLLIN | (listener.is_shared ? EPOLLEXCLUSIVE : 0u);
  event.data.u64 = reinterpret_cast<uint64_t>(&listener) | kListenerTag;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener.fd.get(), &event) != 0) {
    return Status::from_errno(errno, "adding a listener to epoll");
  }
  return {};
}

void EpollLoop::remove(Listener& listener) noexcept {
  // Closing is not enough: other loops may hold duplicates of a shared listener.
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener.fd.get(), nullptr);
  for (Listener** next = &paused_; *next != nullptr; next = &(*next)->next_paused) {
    if (*next != &listener) continue;
    *next = listener.next_paused;
    break;
  }
  listener.fd.reset();
}

Status EpollLoop::add(Watch& watch) noexcept {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = reinterpret_cast<uint64_t>(&watch) | kWatchTag;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, watch.fd, &event) != 0) {
    return Status::from_errno(errno, "adding a watch to epoll");
  }
  return {};
}

void EpollLoop::remove(Watch& watch) noexcept {
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watch.fd, nullptr);
  watch.fd = -1;
}

size_t EpollLoop::accept_some(Listener& listener) noexcept {
  size_t ran = 0;
  for (int i = 0; i < kAcceptsPerTurn && listener.fd.valid(); ++i) {
    UniqueFd fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      if (listener.handler->on_accepted(Socket{fd.get()})) (void)fd.release();
      ++ran;
      continue;
    }
    const int error = errno;
    if (error == EAGAIN || error == EWOULDBLOCK) break;
    if (error == EINTR || error == ECONNABORTED) continue;
    if (error == EMFILE || error == ENFILE) return ran + accept_without_descriptor(listener, error);
    listener.handler->on_accept_failed(error);
    ++ran;
    break;
  }
  return ran;
}

// Where the reserve is gone too (another thread was quicker), the connection waits in the kernel's
// backlog until a descriptor is free.
size_t EpollLoop::accept_without_descriptor(Listener& listener, int error) noexcept {
  const bool has_refused = reserve_.refuse_one(listener.fd.get());
  if (!reserve_.valid()) pause(listener);
  if (!has_refused) return 0;
  listener.handler->on_accept_failed(error);
  return 1;
}

void EpollLoop::pause(Listener& listener) noexcept {
  // Out of epoll, not merely without events: a shared listener's entry can't be modified
  // (epoll_ctl(2)).
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener.fd.get(), nullptr);
  listener.next_paused = std::exchange(paused_, &listener);
  resume_ns_ = now_ns() + kAcceptPauseNs;
}

// Only with the reserve in hand: without it the next accept() would end here again.
void EpollLoop::resume_listeners() noexcept {
  reserve_.restore();
  if (!reserve_.valid()) {
    resume_ns_ = now_ns() + kAcceptPauseNs;
    return;
  }
  resume_ns_ = UINT64_MAX;
  while (paused_ != nullptr) {
    Listener& listener = *std::exchange(paused_, paused_->next_paused);
    listener.next_paused = nullptr;
    // It was in this epoll instance before; only a kernel without memory refuses it now.
    if (!add(listener).ok()) {
      pause(listener);
      return;
    }
  }
}

}  // namespace lumen::net
