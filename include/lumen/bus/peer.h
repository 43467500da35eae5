// Peer: the process at the other end of a connection: whether it is there, and the bell that wakes
// it.
// Threads: Peer any; a Bell belongs to one side of one stream.
// Memory: none after construction. Errors: state(); a bell that can't be rung is not needed (see
// ring()).
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>
#include <lumen/base/unix_socket.h>
#include <lumen/bus/frame.h>

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

namespace lumen::bus {

// How many times this process is a child of fork(): a handle that was made before belongs to the
// parent.
inline std::atomic<uint32_t> forks{0};
[[nodiscard]] inline uint32_t fork_count() noexcept {
  return forks.load(std::memory_order_relaxed);  // relaxed: changes in a child that has one thread
}

// The last message on a connection's socket says why it is closed; without one its process has
// died.
enum class Goodbye : uint32_t { kClosed = 1, kDropped = 2, kInvalid = 3 };

class Peer {
 public:
  // `connection`: the socket of the handshake, open as long as the connection is. `process`: a
  // pidfd, or none where the kernel has none for it (another pid namespace, seccomp): then only a
  // hang-up tells.
  Peer(UniqueFd connection, UniqueFd process, const PeerCredentials& credentials) noexcept;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer();  // the other side finds the connection closed

  // kOk while it is there; else the cause that ended the connection, for good. As last seen.
  [[nodiscard]] Outcome state() const noexcept {
    return state_.load(std::memory_order_acquire);  // sync[bus.peer]: with end()
  }
  // Asks the kernel, without waiting: two system calls at most.
  Outcome look() noexcept;
  // The other side has broken the protocol: it is not listened to any more, and told so.
  void quarantine() noexcept;
  // Ends the connection from this side.
  void close(Goodbye reason) noexcept;

  [[nodiscard]] const PeerCredentials& credentials() const noexcept { return credentials_; }
  // As share_only_cpu() was when the connection was made. A thread that waits for the peer does not
  // spin then.
  [[nodiscard]] bool is_on_our_only_cpu() const noexcept { return is_on_our_only_cpu_; }
  [[nodiscard]] bool knows_process() const noexcept { return process_.valid(); }
  // For poll(), beside the bell: readable or hung up when the other side is gone.
  [[nodiscard]] pollfd connection_poll() const noexcept { return {connection_.get(), POLLIN, 0}; }
  [[nodiscard]] pollfd process_poll() const noexcept { return {process_.get(), POLLIN, 0}; }

 private:
  Outcome end(Outcome outcome) noexcept;

  UniqueFd connection_;
  UniqueFd process_;
  PeerCredentials credentials_;
  const bool is_on_our_only_cpu_;
  const uint32_t born_ = fork_count();
  std::atomic<Outcome> state_{Outcome::kOk};
};

// Whether process `pid` and the calling thread may use one CPU only, the same: then a thread that
// spins keeps the other from running. False if it can't be known.
[[nodiscard]] bool share_only_cpu(pid_t pid) noexcept;

// A pidfd of the process at the other end of a unix socket; invalid if there is none to be had.
[[nodiscard]] UniqueFd open_peer_process(int socket, const PeerCredentials& credentials) noexcept;

// One end of a stream's bell: a socket pair of the stream's own, so that a byte which one side
// sends to a sleeper is not taken by another thread that sleeps on the same connection. send() and
// recv() are told not to wait call by call: the flag of a shared description could be taken away by
// the other side.
class Bell {
 public:
  Bell() noexcept = default;
  explicit Bell(UniqueFd socket) noexcept : socket_(std::move(socket)) {}
  Bell(Bell&& other) noexcept { *this = std::move(other); }
  Bell& operator=(Bell&& other) noexcept {
    socket_ = std::move(other.socket_);
    has_hung_up_ = other.has_hung_up_;
    is_rung_ = other.is_rung_;
    // relaxed, both: a move has one thread
    rung_for_.store(other.rung_for_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return *this;
  }

  // `asleep`: the other side's word, loaded after the data that it waits for was published, both
  // seq_cst. Rings once for each sleep. Any value of the word costs this side one system call at
  // most.
  void ring(uint64_t asleep) noexcept {
    if ((asleep & 1) != 0 && asleep != rung_for_) [[unlikely]]
      ring_slow(asleep);
  }
  // Whether it has been rung for this sleep.
  [[nodiscard]] bool has_rung_for(uint64_t asleep) const noexcept { return asleep == rung_for_; }
  // Takes away the rings. By the thread that waits, as all that follow.
  void drain() noexcept;
  // The wait has found it readable. before_sleep() takes the rings away, before the next sleep is
  // announced: at the end of a wait that was 0.8 us of each wake-up.
  void found_rung() noexcept { is_rung_ = true; }
  void before_sleep() noexcept {
    if (is_rung_) drain();
  }
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  // The descriptor that a waiting thread watches. None once the other side has closed its end
  // alone: that stays readable, and a wait on it would be a loop without a pause.
  [[nodiscard]] pollfd poll() const noexcept { return {has_hung_up_ ? -1 : fd(), POLLIN, 0}; }
  [[nodiscard]] bool has_hung_up() const noexcept { return has_hung_up_; }

 private:
  void ring_slow(uint64_t asleep) noexcept;
  UniqueFd socket_;
  bool has_hung_up_ = false;
  bool is_rung_ = false;
  std::atomic<uint64_t> rung_for_{0};  // atomic: one thread may wait while another gives back
};

// The value that a sleeping side writes into its own `asleep` word: odd while it sleeps, another
// number each time.
class SleepWord {
 public:
  explicit SleepWord(std::atomic<uint64_t>* word) noexcept : word_(word) {}
  // Then look once more, and sleep only if that finds nothing. May be announced anew.
  uint64_t announce() noexcept {
    value_ = (value_ + 1) | 1;
    // sync[bus.asleep]: seq_cst, so that either the other side sees it or the look that follows
    // sees the other side's publication
    word_->exchange(value_, std::memory_order_seq_cst);
    return value_;
  }
  void wake_up() noexcept {
    value_ = (value_ + 1) & ~uint64_t{1};
    word_->store(value_, std::memory_order_relaxed);  // relaxed: a ring too many does no harm
  }

 private:
  std::atomic<uint64_t>* word_;
  uint64_t value_ = 0;
};

enum class Woken : uint8_t { kEvent, kTimedOut, kInterrupted };
// Sleeps until one of `fds` has something, a signal comes or the deadline (CLOCK_MONOTONIC) has
// passed.
[[nodiscard]] Woken sleep_on(std::span<pollfd> fds, uint64_t deadline_ns) noexcept;

}  // namespace lumen::bus
