// Loop over epoll, edge-triggered: a socket is registered once and costs no epoll_ctl afterwards.
// Owner thread only, but for wake(). Allocates at creation. Errors reach the handlers as -errno.
//
// wake() and the loop share a word of three states. wake() makes it kWoken, and rings the eventfd only
// if it was kAsleep. kWoken stays until the loop is where on_wake() and on_turn_end() both follow in
// the same turn: a wake() that comes behind them keeps the next wait from sleeping. With two states,
// awake and asleep, such a wake() was lost: a change of the engine's configuration then hung.
#include <lumen/net/loop.h>

#include <lumen/base/cache_line.h>
#include <lumen/base/clock.h>
#include <lumen/base/idle_strategy.h>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>

namespace lumen::net {
namespace {

// Events of one wait: more only delays completions that are due already.
constexpr size_t kEventsPerTurn = 256;
// Connections taken from one listener a turn, so that a flood does not starve those that are served.
constexpr int kAcceptsPerTurn = 64;

// How often a turn delivers what its own handlers have completed before it looks for events again.
constexpr int kCompletionPasses = 4;
// How many streams are served before it looks what other threads have left: with hundreds of bodies
// of 600 KB to take in, a reply that was ready waited 20 ms for the end of the pass.
constexpr int kDeliveriesPerLook = 8;
// What a turn's end brings about (replies of models that ran on this thread) has its own passes.
constexpr int kTurnEnds = 2;
// How long the loop polls before it sleeps, at most and only while events come that close: a sleeper
// takes about 20 us to run after its wake-up on a virtual machine, and the wake costs its sender 6.
constexpr uint64_t kMaxSpinNs = 50'000;
// How long no connection is accepted once no descriptor is left, not even the reserve: other threads
// close connections too, and tell nobody. Long beside an empty turn (20 us), short beside a client's
// patience.
constexpr uint64_t kAcceptPauseNs = 20'000'000;

// One segment, as most requests and replies are, goes by recv and send: the kernel need not copy in a
// msghdr and a list of segments, 0.1 us a call of 1 to 3.
ssize_t receive_some(int fd, std::span<iovec> buffers, int flags) noexcept {
  if (buffers.size() == 1) return ::recv(fd, buffers[0].iov_base, buffers[0].iov_len, flags);
  msghdr message{};
  message.msg_iov = buffers.data();
  message.msg_iovlen = std::min<size_t>(buffers.size(), IOV_MAX);
  return ::recvmsg(fd, &message, flags);
}

ssize_t send_some(int fd, std::span<iovec> buffers) noexcept {
  if (buffers.size() == 1) {
    return ::send(fd, buffers[0].iov_base, buffers[0].iov_len, MSG_NOSIGNAL);
  }
  msghdr message{};
  message.msg_iov = buffers.data();
  message.msg_iovlen = std::min<size_t>(buffers.size(), IOV_MAX);
  return ::sendmsg(fd, &message, MSG_NOSIGNAL);
}

// epoll_event.data: a pointer whose low bits say what it points to.
constexpr uint64_t kStreamTag = 0;
constexpr uint64_t kListenerTag = 1;
constexpr uint64_t kWakeTag = 2;
constexpr uint64_t kTagMask = 3;

class EpollLoop final : public Loop {
 public:
  EpollLoop(WakeHandler& wake_handler, UniqueFd epoll, UniqueFd event, UniqueFd reserve) noexcept
      : wake_handler_(wake_handler),
        epoll_(std::move(epoll)),
        event_(std::move(event)),
        reserve_(std::move(reserve)) {
    completions_.loop.previous = completions_.loop.next = &completions_;
  }

  const char* name() const noexcept override { return "epoll"; }
  Status add(Stream& stream) noexcept override;
  void remove(Stream& stream) noexcept override;
  Status add(Listener& listener) noexcept override;
  void remove(Listener& listener) noexcept override;
  void wait_readable(Stream& stream) noexcept override;
  void receive(Stream& stream, std::span<iovec> buffers) noexcept override;
  void drop(Stream& stream, std::span<iovec> buffers) noexcept override;
  void cancel_receive(Stream& stream) noexcept override;
  void send(Stream& stream, std::span<iovec> buffers) noexcept override;
  bool look_now(Stream& stream) noexcept override;
  size_t run_once(uint64_t deadline_ns) noexcept override;
  void wake() noexcept override;
  uint64_t last_turn_ns() const noexcept override { return last_turn_ns_; }
  uint64_t wakeups() const noexcept override { return wakeups_; }

 private:
  void try_receive(Stream& stream) noexcept;
  void try_send(Stream& stream) noexcept;
  void queue_completion(Stream& stream) noexcept;
  void unqueue(Stream& stream) noexcept;
  size_t run_completions() noexcept;
  size_t deliver(Stream& stream) noexcept;
  size_t on_event(const epoll_event& event) noexcept;
  size_t accept_some(Listener& listener) noexcept;
  size_t accept_without_descriptor(Listener& listener, int error) noexcept;
  void pause(Listener& listener) noexcept;
  void resume_listeners() noexcept;
  [[nodiscard]] bool peek(Stream& stream) noexcept;
  int poll_before_sleep() noexcept;
  int sleep(uint64_t deadline_ns, size_t& ran) noexcept;
  int wait_ms(uint64_t deadline_ns) noexcept;
  [[nodiscard]] bool was_woken() const noexcept;
  void served() noexcept;

  enum WakeState : uint32_t {
    kAwake,
    kAsleep,  // the owner is in, or about to enter, the kernel's wait
    kWoken,   // wake() was called, and what it was called for may not be served yet
  };

  WakeHandler& wake_handler_;
  UniqueFd epoll_;
  UniqueFd event_;
  // Given up for a moment when no descriptor is left, to refuse politely. Another thread may take the
  // number meanwhile; then it is invalid until one is free again, and nothing is accepted.
  UniqueFd reserve_;
  Listener* paused_ = nullptr;  // listeners that wait for a descriptor
  uint64_t resume_ns_ = UINT64_MAX;
  Stream completions_{nullptr};  // sentinel of the list of streams with results to deliver
  std::array<epoll_event, kEventsPerTurn> events_{};
  uint64_t wakeups_ = 0;
  uint64_t turn_began_ns_ = 0;
  uint64_t last_turn_ns_ = 0;
  IdleStrategy idle_{kMaxSpinNs, IdleStrategy::kKernelWakeCostNs};
  alignas(kFalseSharingRange) std::atomic<uint32_t> wake_state_{kAwake};
};

Status EpollLoop::add(Stream& stream) noexcept {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = reinterpret_cast<uint64_t>(&stream) | kStreamTag;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stream.fd.get(), &event) != 0) {
    return Status::from_errno(errno, "adding a connection to epoll");
  }
  return {};
}

void EpollLoop::remove(Stream& stream) noexcept {
  unqueue(stream);
  stream.loop = {};
  stream.fd.reset();  // closing takes it out of epoll: nobody holds a duplicate
}

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

void EpollLoop::wait_readable(Stream& stream) noexcept {
  stream.loop.receiving = Stream::Receiving::kReadiness;
  if (!stream.loop.readable) return;
  // A receive that filled its buffers exactly (a body, as a rule) leaves it open whether more is
  // there. Taken for readable, an idle connection would be given a request's memory and the timeout
  // of a head of which no byte has come; one look costs 0.2 us and only after such a receive.
  if (peek(stream)) queue_completion(stream);
}

// Whether there is something to receive, be it the end or an error.
bool EpollLoop::peek(Stream& stream) noexcept {
  char byte = 0;
  const ssize_t got = ::recv(stream.fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  stream.loop.readable = got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  return stream.loop.readable;
}

bool EpollLoop::look_now(Stream& stream) noexcept {
  auto& state = stream.loop;
  if (state.queued) return true;  // its handler runs in the next turn
  const int64_t sent_before = state.send_result;
  if (state.sending) try_send(stream);
  if (state.receiving == Stream::Receiving::kData) try_receive(stream);
  if (state.receiving == Stream::Receiving::kReadiness && peek(stream)) queue_completion(stream);
  return state.queued || state.send_result != sent_before;
}

void EpollLoop::receive(Stream& stream, std::span<iovec> buffers) noexcept {
  stream.loop.receiving = Stream::Receiving::kData;
  stream.loop.receive_buffers = buffers;
  stream.loop.dropping = false;
  if (stream.loop.readable) try_receive(stream);
}

void EpollLoop::drop(Stream& stream, std::span<iovec> buffers) noexcept {
  stream.loop.receiving = Stream::Receiving::kData;
  stream.loop.receive_buffers = buffers;
  stream.loop.dropping = true;
  if (stream.loop.readable) try_receive(stream);
}

void EpollLoop::cancel_receive(Stream& stream) noexcept {
  if (stream.loop.receiving == Stream::Receiving::kNo) return;
  if (stream.loop.receiving != Stream::Receiving::kDone) stream.loop.receive_result = -ECANCELED;
  stream.loop.receiving = Stream::Receiving::kDone;
  queue_completion(stream);
}

void EpollLoop::send(Stream& stream, std::span<iovec> buffers) noexcept {
  stream.loop.sending = true;
  stream.loop.send_buffers = buffers;
  stream.loop.send_result = 0;
  // Attempted without waiting for readiness: a reply nearly always fits the socket's buffer.
  if (stream.loop.writable) try_send(stream);
}

void EpollLoop::try_receive(Stream& stream) noexcept {
  auto& state = stream.loop;
  size_t wanted = 0;
  for (const iovec& buffer : state.receive_buffers) wanted += buffer.iov_len;
  ssize_t got = 0;
  do {
    got = receive_some(stream.fd.get(), state.receive_buffers, state.dropping ? MSG_TRUNC : 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    state.readable = false;
    return;
  }
  // A short read has emptied the socket (epoll(7)), so the next attempt waits for an edge and the
  // read that would only say EAGAIN is spared. Not after the peer's close: no edge will come.
  if (got > 0 && static_cast<size_t>(got) < wanted && !state.peer_closed) state.readable = false;
  state.receive_result = got < 0 ? -errno : got;
  state.receiving = Stream::Receiving::kDone;
  queue_completion(stream);
}

void EpollLoop::try_send(Stream& stream) noexcept {
  auto& state = stream.loop;
  while (!state.send_buffers.empty()) {
    const ssize_t sent = send_some(stream.fd.get(), state.send_buffers);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        state.writable = false;
        return;
      }
      state.send_result = -errno;
      break;
    }
    state.send_result += sent;
    size_t left = static_cast<size_t>(sent);
    while (!state.send_buffers.empty() && left >= state.send_buffers.front().iov_len) {
      left -= state.send_buffers.front().iov_len;
      state.send_buffers = state.send_buffers.subspan(1);
    }
    if (left > 0) {
      iovec& first = state.send_buffers.front();
      first.iov_base = static_cast<char*>(first.iov_base) + left;
      first.iov_len -= left;
    }
  }
  state.sending = false;
  state.send_done = true;
  queue_completion(stream);
}

void EpollLoop::queue_completion(Stream& stream) noexcept {
  if (stream.loop.queued) return;
  stream.loop.queued = true;
  stream.loop.previous = completions_.loop.previous;
  stream.loop.next = &completions_;
  completions_.loop.previous->loop.next = &stream;
  completions_.loop.previous = &stream;
}

void EpollLoop::unqueue(Stream& stream) noexcept {
  if (!stream.loop.queued) return;
  stream.loop.queued = false;
  stream.loop.previous->loop.next = stream.loop.next;
  stream.loop.next->loop.previous = stream.loop.previous;
}

// Delivers what was queued when the turn began; what handlers queue meanwhile waits for the next
// turn, so that a pipelining client can't hold the loop.
size_t EpollLoop::run_completions() noexcept {
  size_t ran = 0;
  int until_look = kDeliveriesPerLook;
  const Stream* last = completions_.loop.previous;
  while (completions_.loop.next != &completions_) {
    Stream& stream = *completions_.loop.next;
    const bool is_last = &stream == last;
    unqueue(stream);
    ran += deliver(stream);
    if (is_last) break;
    if (--until_look == 0) {
      ran += wake_handler_.on_wake();
      until_look = kDeliveriesPerLook;
    }
  }
  return ran;
}

size_t EpollLoop::deliver(Stream& stream) noexcept {
  auto& state = stream.loop;
  size_t ran = 0;
  if (state.send_done) {
    state.send_done = false;
    stream.handler->on_sent(stream, state.send_result);
    ++ran;
    if (!stream.fd.valid()) return ran;  // the handler has removed it
  }
  if (state.receiving == Stream::Receiving::kDone) {
    state.receiving = Stream::Receiving::kNo;
    stream.handler->on_received(stream, state.receive_result);
    ++ran;
  } else if (state.receiving == Stream::Receiving::kReadiness && state.readable) {
    state.receiving = Stream::Receiving::kNo;
    stream.handler->on_readable(stream);
    ++ran;
  }
  if (state.gone && state.receiving == Stream::Receiving::kNo && !state.sending) {
    state.gone = false;  // remove() has cleared it too
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
  Stream& stream = *reinterpret_cast<Stream*>(event.data.u64 & ~kTagMask);
  if (!stream.fd.valid()) return 0;  // removed earlier in this turn
  auto& state = stream.loop;
  if (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) state.peer_closed = true;
  if (event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
    state.readable = true;
    if (state.receiving == Stream::Receiving::kData) try_receive(stream);
    if (state.receiving == Stream::Receiving::kReadiness) queue_completion(stream);
  }
  if (event.events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) {
    state.writable = true;
    const int64_t sent_before = state.send_result;
    if (state.sending) try_send(stream);
    if (state.sending && state.send_result != sent_before) stream.handler->on_send_progress(stream);
  }
  if (event.events & (EPOLLHUP | EPOLLERR)) {
    state.gone = true;
    queue_completion(stream);
  }
  return 0;
}

size_t EpollLoop::accept_some(Listener& listener) noexcept {
  size_t ran = 0;
  for (int i = 0; i < kAcceptsPerTurn && listener.fd.valid(); ++i) {
    UniqueFd fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      listener.handler->on_accepted(std::move(fd));
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

// The pending connection would keep the listener readable and the loop spinning: the reserve takes
// it, and it is closed. Where the reserve is gone too (another thread was quicker), it waits in the
// kernel's backlog until a descriptor is free.
size_t EpollLoop::accept_without_descriptor(Listener& listener, int error) noexcept {
  reserve_.reset();
  UniqueFd refused(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const bool has_refused = refused.valid();
  refused.reset();
  reserve_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!reserve_.valid()) pause(listener);
  if (!has_refused) return 0;
  listener.handler->on_accept_failed(error);
  return 1;
}

void EpollLoop::pause(Listener& listener) noexcept {
  // Out of epoll, not merely without events: a shared listener's entry can't be modified (epoll_ctl(2)).
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener.fd.get(), nullptr);
  listener.next_paused = std::exchange(paused_, &listener);
  resume_ns_ = now_ns() + kAcceptPauseNs;
}

// Only with the reserve in hand: without it the next accept() would end here again.
void EpollLoop::resume_listeners() noexcept {
  if (!reserve_.valid()) reserve_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
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

int EpollLoop::wait_ms(uint64_t deadline_ns) noexcept {
  if (deadline_ns == UINT64_MAX) return -1;
  const uint64_t now = now_ns();
  if (deadline_ns <= now) return 0;
  // Rounded up: waking a fraction too early would only mean a second, empty wait.
  const uint64_t ms = (deadline_ns - now + 999'999) / 1'000'000;
  return static_cast<int>(std::min<uint64_t>(ms, INT_MAX));
}

// A wake() came that may not be served yet.
bool EpollLoop::was_woken() const noexcept {
  // sync[loop.wake_state]: acquire; pairs with wake()
  return wake_state_.load(std::memory_order_acquire) == kWoken;
}

// on_wake() and on_turn_end() both follow in this turn and see what the wake() so far was for.
void EpollLoop::served() noexcept {
  // The load spares the exchange, 20 cycles, in most turns.
  // sync[loop.wake_state]: acquire; an exchange, not a store, so that a wake() just before it is acquired
  if (was_woken()) wake_state_.exchange(kAwake, std::memory_order_acq_rel);
}

// Events that came while the loop polled; 0: it is time to sleep, or to look what a wake() was for.
int EpollLoop::poll_before_sleep() noexcept {
  if (!wake_handler_.may_spin()) return 0;
  while (!was_woken() && idle_.idle() != IdleStrategy::Step::kPark) {
    const int count = ::epoll_wait(epoll_.get(), events_.data(), kEventsPerTurn, 0);
    if (count > 0) return count;
  }
  return 0;
}

// Events after a wait in the kernel, which work that is there already makes a mere look.
int EpollLoop::sleep(uint64_t deadline_ns, size_t& ran) noexcept {
  ++wakeups_;
  // What was left without a wake() so far (a worker lets completions gather) saves that wake().
  const size_t found = wake_handler_.on_wake();
  ran += found;
  uint32_t awake = kAwake;
  // sync[loop.wake_state]: both sides are read-modify-writes of one word, so one comes first: if
  // wake() does, this finds kWoken and does not sleep; if this does, wake() finds kAsleep and rings
  if (found > 0 || completions_.loop.next != &completions_ ||
      !wake_state_.compare_exchange_strong(awake, kAsleep, std::memory_order_acq_rel,
                                           std::memory_order_acquire)) {
    return ::epoll_wait(epoll_.get(), events_.data(), kEventsPerTurn, 0);
  }
  idle_.parking();
  const int count =
      ::epoll_wait(epoll_.get(), events_.data(), kEventsPerTurn, wait_ms(deadline_ns));
  idle_.unparked();
  // sync[loop.wake_state]: an exchange, not a store, so that a wake() is acquired. It may be
  // forgotten here, since on_wake() and on_turn_end() follow in this turn.
  wake_state_.exchange(kAwake, std::memory_order_acq_rel);
  return count;
}

size_t EpollLoop::run_once(uint64_t deadline_ns) noexcept {
  size_t ran = 0;
  last_turn_ns_ = turn_began_ns_ == 0 ? 0 : now_ns() - turn_began_ns_;
  deadline_ns = std::min(deadline_ns, resume_ns_);
  const bool may_sleep = completions_.loop.next == &completions_ &&
                         (deadline_ns == UINT64_MAX || wait_ms(deadline_ns) != 0);
  int count = 0;
  if (may_sleep) {
    count = poll_before_sleep();
    if (count == 0) count = sleep(deadline_ns, ran);
  } else {
    count = ::epoll_wait(epoll_.get(), events_.data(), kEventsPerTurn, 0);
  }
  turn_began_ns_ = now_ns();
  if (turn_began_ns_ >= resume_ns_) resume_listeners();
  if (count > 0) idle_.found();
  for (int i = 0; i < count; ++i) ran += on_event(events_[static_cast<size_t>(i)]);
  // Readiness leads to a receive, that to a send, that to the next wait: three hops of a request
  // without another system call between them.
  for (int round = 0; round < kTurnEnds; ++round) {
    served();
    ran += wake_handler_.on_wake();
    for (int pass = 0; pass < kCompletionPasses && completions_.loop.next != &completions_;
         ++pass) {
      ran += run_completions();
    }
    const size_t done = wake_handler_.on_turn_end();
    ran += done;
    if (done == 0) break;
  }
  return ran;
}

void EpollLoop::wake() noexcept {
  // sync[loop.wake_state]: see sleep() and served()
  if (wake_state_.exchange(kWoken, std::memory_order_acq_rel) == kAsleep) {
    const uint64_t one = 1;
    (void)!::write(event_.get(), &one, sizeof(one));  // can only fail when it is rung already
  }
}

}  // namespace

Result<std::unique_ptr<Loop>> make_epoll_loop(WakeHandler& wake_handler) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return Status::from_errno(errno, "creating an epoll instance");
  UniqueFd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event.valid()) return Status::from_errno(errno, "creating an eventfd");
  UniqueFd reserve(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  epoll_event wake_event{};
  wake_event.events = EPOLLIN;
  wake_event.data.u64 = kWakeTag;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &wake_event) != 0) {
    return Status::from_errno(errno, "adding the eventfd to epoll");
  }
  return std::unique_ptr<Loop>(std::make_unique<EpollLoop>(wake_handler, std::move(epoll),
                                                           std::move(event), std::move(reserve)));
}

}  // namespace lumen::net
