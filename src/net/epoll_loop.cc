// The epoll loop's turns. Owner thread only, but for wake(). Allocates at creation. A descriptor
// that can't be made is a Status. wake() writes to an eventfd where the loop sleeps (wake_word.h).
#include "net/epoll_loop.h"

#include <lumen/base/clock.h>

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace lumen::net {
void EpollLoop::queue_completion(EpollStream& state) noexcept {
  if (state.queued) return;
  state.queued = true;
  state.previous = completions_.previous;
  state.next = &completions_;
  completions_.previous->next = &state;
  completions_.previous = &state;
}

// Delivers the completions that were queued when the turn began; those that handlers queue
// meanwhile wait for the next turn, so that a pipelining client can't hold the loop.
size_t EpollLoop::run_completions() noexcept {
  size_t ran = 0;
  int until_look = kDeliveriesPerLook;
  const EpollStream* last = completions_.previous;
  while (has_completions()) {
    EpollStream& state = *completions_.next;
    const bool is_last = &state == last;
    state.queued = false;
    completions_.next = state.next;
    state.next->previous = &completions_;
    ran += deliver(state);
    if (is_last) break;
    if (--until_look == 0) {
      ran += wake_handler_.on_wake();
      until_look = kDeliveriesPerLook;
    }
  }
  return ran;
}

size_t EpollLoop::deliver(EpollStream& state) noexcept {
  wake_handler_.before_delivery();
  Stream& stream = *state.stream;
  if (state.fd < 0) {
    stream.handler->on_closed(stream);
    return 1;
  }
  size_t ran = 0;
  if (state.send_done) {
    state.send_done = false;
    stream.handler->on_sent(stream, state.send_result);
    ++ran;
    if (state.fd < 0) return ran;  // the handler has closed it
  }
  if (state.receiving == EpollStream::Receiving::kDone) {
    state.receiving = EpollStream::Receiving::kNo;
    stream.handler->on_received(stream, state.receive_result);
    ++ran;
  } else if (state.receiving == EpollStream::Receiving::kReadiness && state.readable) {
    state.receiving = EpollStream::Receiving::kNo;
    stream.handler->on_readable(stream, {});
    ++ran;
  }
  if (state.fd < 0) return ran;
  if (state.gone && state.receiving == EpollStream::Receiving::kNo && !state.sending) {
    state.gone = false;
    stream.handler->on_gone(stream);
    ++ran;
  }
  return ran;
}

size_t EpollLoop::on_event(const epoll_event& event) noexcept {
  const uint64_t tag = event.data.u64 & kTagMask;
  if (tag == kWakeTag) {
    uint64_t count = 0;
    (void)!::read(event_.get(), &count, sizeof(count));  // only resets the counter
    return 0;
  }
  if (tag == kListenerTag) {
    return accept_some(*reinterpret_cast<Listener*>(event.data.u64 & ~kTagMask));
  }
  if (tag == kWatchTag) {
    Watch& watch = *reinterpret_cast<Watch*>(event.data.u64 & ~kTagMask);
    if (watch.fd < 0) return 0;  // removed earlier in this turn
    watch.handler->on_ready(watch, (event.events & (EPOLLHUP | EPOLLERR)) != 0);
    return 1;
  }
  EpollStream& state = *reinterpret_cast<EpollStream*>(event.data.u64 & ~kTagMask);
  if (state.fd >= 0) on_stream_event(state, event.events);  // not closed earlier in this turn
  return 0;
}

int EpollLoop::wait_ms(uint64_t deadline_ns) noexcept {
  if (deadline_ns == UINT64_MAX) return -1;
  const uint64_t now = now_ns();
  if (deadline_ns <= now) return 0;
  // Rounded up: waking a fraction too early would only mean a second, empty wait.
  const uint64_t ms = (deadline_ns - now + 999'999) / 1'000'000;
  return static_cast<int>(std::min<uint64_t>(ms, INT_MAX));
}

// Events that came while the loop polled; nothing: it is time to sleep, or to look at the causes of
// a wake().
EpollLoop::Found EpollLoop::poll_before_sleep() noexcept {
  if (!wake_handler_.may_spin()) return {};
  while (!wake_word_.was_woken()) {
    if (wake_handler_.poll_memory()) return {.events = 0, .in_memory = true};
    if (idle_.idle() == IdleStrategy::Step::kPark) break;
    const int count = wait(0);
    if (count > 0) return {.events = count, .in_memory = false};
  }
  return {};
}

// Events after a wait in the kernel, which work that is there already makes a mere look.
EpollLoop::Slept EpollLoop::sleep(uint64_t deadline_ns) noexcept {
  ++wakeups_;
  wake_handler_.before_sleep();
  // Completions that were left without a wake() so far (a worker lets them gather) save that
  // wake().
  const size_t found = wake_handler_.on_wake();
  if (found > 0 || has_work() || !wake_word_.begin_sleep()) {
    wake_handler_.after_sleep();
    return {.events = wait(0), .ran = found};
  }
  idle_.parking();
  int count = 0;
  // Interrupted by a signal, or by the kernel's work on a ring of io_uring that this thread had.
  do count = wait(wait_ms(deadline_ns));
  while (count < 0 && errno == EINTR);
  idle_.unparked();
  wake_word_.end_sleep();
  wake_handler_.after_sleep();
  return {.events = count, .ran = found};
}

size_t EpollLoop::run_once(uint64_t deadline_ns) noexcept {
  size_t ran = 0;
  last_turn_ns_ = turn_began_ns_ == 0 ? 0 : now_ns() - turn_began_ns_;
  deadline_ns = std::min(deadline_ns, resume_ns_);
  const bool may_sleep = !has_work() && (deadline_ns == UINT64_MAX || wait_ms(deadline_ns) != 0);
  int count = 0;
  bool found_in_memory = false;
  if (may_sleep) {
    const Found found = poll_before_sleep();
    count = found.events;
    found_in_memory = found.in_memory;
    if (count == 0 && !found_in_memory) {
      const Slept slept = sleep(deadline_ns);
      count = slept.events;
      ran = slept.ran;
    }
  } else {
    count = wait(0);
  }
  turn_began_ns_ = now_ns();
  if (turn_began_ns_ >= resume_ns_) resume_listeners();
  if (count > 0 || found_in_memory) idle_.found();
  for (int i = 0; i < count; ++i) ran += on_event(events_[static_cast<size_t>(i)]);
  receive_postponed();  // after the events, which bring small and new requests
  // Readiness leads to a receive, that to a send, that to the next wait: three hops of a request
  // without another system call between them.
  for (int round = 0; round < kTurnEnds; ++round) {
    wake_word_.served();
    ran += wake_handler_.on_wake();
    for (int pass = 0; pass < kCompletionPasses && has_completions(); ++pass) {
      ran += run_completions();
    }
    const size_t done = wake_handler_.on_turn_end();
    ran += done;
    if (done == 0) break;
  }
  return ran;
}

void EpollLoop::wake() noexcept {
  if (wake_word_.wake()) {
    const uint64_t one = 1;
    (void)!::write(event_.get(), &one, sizeof(one));  // can only fail when it is woken already
  }
}

Result<std::unique_ptr<Loop>> make_epoll_loop(WakeHandler& wake_handler) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return Status::from_errno(errno, "creating an epoll instance");
  UniqueFd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event.valid()) return Status::from_errno(errno, "creating an eventfd");
  epoll_event wake_event{};
  wake_event.events = EPOLLIN;
  wake_event.data.u64 = kWakeTag;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &wake_event) != 0) {
    return Status::from_errno(errno, "adding the eventfd to epoll");
  }
  return std::unique_ptr<Loop>(
      std::make_unique<EpollLoop>(wake_handler, std::move(epoll), std::move(event)));
}

}  // namespace lumen::net
