// The kernel's side of Peer and Bell: sockets, pidfds, poll(). Any thread. Memory: none.
// Errors: a call that the kernel refuses reads as "not there"; see each.
#include <lumen/bus/peer.h>

#include <lumen/base/clock.h>

#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; asm-generic/socket.h
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434  // Linux 5.3
#endif

namespace lumen::bus {
namespace {

// relaxed: written in a child that has one thread
void count_fork() noexcept { forks.fetch_add(1, std::memory_order_relaxed); }
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, count_fork);

Outcome outcome_of(uint32_t goodbye) noexcept {
  switch (static_cast<Goodbye>(goodbye)) {
    case Goodbye::kClosed: return Outcome::kClosed;
    case Goodbye::kDropped: return Outcome::kDropped;
    case Goodbye::kInvalid: return Outcome::kInvalid;
  }
  return Outcome::kInvalid;
}

}  // namespace

Peer::Peer(UniqueFd connection, UniqueFd process, const PeerCredentials& credentials) noexcept
    : connection_(std::move(connection)),
      process_(std::move(process)),
      credentials_(credentials),
      is_on_our_only_cpu_(share_only_cpu(credentials.pid)) {}

Peer::~Peer() { close(Goodbye::kClosed); }

Outcome Peer::end(Outcome outcome) noexcept {
  Outcome expected = Outcome::kOk;
  // sync[bus.peer]: release to state(); the first to see an end decides its cause
  state_.compare_exchange_strong(expected, outcome, std::memory_order_acq_rel,
                                 std::memory_order_acquire);
  return expected == Outcome::kOk ? outcome : expected;
}

Outcome Peer::look() noexcept {
  if (const Outcome known = state(); known != Outcome::kOk) return known;
  std::array<pollfd, 2> fds = {connection_poll(), process_poll()};
  if (::poll(fds.data(), fds.size(), 0) <= 0) return Outcome::kOk;
  if (fds[0].revents != 0) {
    uint32_t goodbye = 0;
    const ssize_t got =
        ::recv(connection_.get(), &goodbye, sizeof(goodbye), MSG_DONTWAIT | MSG_PEEK);
    if (got == sizeof(goodbye)) return end(outcome_of(goodbye));
    if (got > 0) return end(Outcome::kInvalid);  // nothing else is ever sent here
    if (got == 0 || errno != EAGAIN) return end(Outcome::kDied);
  }
  return fds[1].revents != 0 ? end(Outcome::kDied) : Outcome::kOk;
}

void Peer::quarantine() noexcept {
  close(Goodbye::kInvalid);
  (void)end(Outcome::kInvalid);
}

void Peer::close(Goodbye reason) noexcept {
  if (!connection_.valid() || fork_count() != born_) return;  // a child says nothing for its parent
  const auto number = static_cast<uint32_t>(reason);
  (void)::send(connection_.get(), &number, sizeof(number), MSG_DONTWAIT | MSG_NOSIGNAL);
  (void)::shutdown(connection_.get(), SHUT_WR);
  (void)end(reason == Goodbye::kInvalid ? Outcome::kInvalid : Outcome::kClosed);
}

bool share_only_cpu(pid_t pid) noexcept {
  cpu_set_t ours;
  cpu_set_t theirs;
  if (pid <= 0 || ::sched_getaffinity(0, sizeof(ours), &ours) != 0 ||
      ::sched_getaffinity(pid, sizeof(theirs), &theirs) != 0) {
    return false;
  }
  CPU_OR(&ours, &ours, &theirs);
  return CPU_COUNT(&ours) == 1;
}

UniqueFd open_peer_process(int socket, const PeerCredentials& credentials) noexcept {
  // The kernel keeps this one from connect() or listen() on, so that a number which is given to
  // another process meanwhile can't deceive us.
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0) return UniqueFd(fd);
  if (credentials.pid <= 0) return {};  // another pid namespace
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, credentials.pid, 0)));
}

void Bell::ring_slow(uint64_t asleep) noexcept {
  rung_for_.store(asleep, std::memory_order_relaxed);  // relaxed: this side's own
  const char byte = 0;
  // EAGAIN: its buffer is full of bells that it does not look at; anything else: it is gone.
  (void)::send(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Bell::drain() noexcept {
  is_rung_ = false;
  // One look: a peer that rings more often than once a sleep is drained a buffer at a time, not for
  // ever.
  std::array<char, 256> bytes;
  const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN)) has_hung_up_ = true;
}

Woken sleep_on(std::span<pollfd> fds, uint64_t deadline_ns) noexcept {
  timespec rest{};
  if (deadline_ns != UINT64_MAX) {
    const uint64_t now = now_ns();
    if (now >= deadline_ns) return Woken::kTimedOut;
    const uint64_t ns = deadline_ns - now;
    rest = {static_cast<time_t>(ns / 1'000'000'000u), static_cast<long>(ns % 1'000'000'000u)};
  }
  const int got =
      ::ppoll(fds.data(), fds.size(), deadline_ns == UINT64_MAX ? nullptr : &rest, nullptr);
  if (got > 0) return Woken::kEvent;
  return got == 0 ? Woken::kTimedOut : Woken::kInterrupted;
}

}  // namespace lumen::bus
