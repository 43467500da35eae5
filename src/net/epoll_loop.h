// EpollLoop: a Loop over epoll, edge-triggered: a socket is registered once and costs no epoll_ctl
// afterwards. Turns: epoll_loop.cc; operations of streams: epoll_streams.cc; accepting:
// epoll_listeners.cc.
// Threads: the owner, but for wake(). Memory: at creation. Errors: reach the handlers as -errno.
#pragma once

#include "net/reserve_descriptor.h"
#include "net/turn_bounds.h"
#include "net/wake_word.h"

#include <lumen/base/idle_strategy.h>
#include <lumen/net/loop.h>

#include <sys/epoll.h>

#include <array>

namespace lumen::net {

// Events of one wait: more only delays completions that are due already.
constexpr size_t kEventsPerTurn = 256;
// epoll_event.data: a pointer whose low bits say the kind of its object.
constexpr uint64_t kStreamTag = 0;
constexpr uint64_t kListenerTag = 1;
constexpr uint64_t kWakeTag = 2;
constexpr uint64_t kWatchTag = 3;
constexpr uint64_t kTagMask = 3;

// The loop's data of a stream: its Stream::state().
struct EpollStream {
  enum class Receiving : uint8_t {
    kNo,
    kReadiness,
    kData,
    kPostponed,  // kData in the loop's list of postponed receives
    kDone,
  };
  Stream* stream = nullptr;
  EpollStream* previous = nullptr;
  EpollStream* next = nullptr;
  EpollStream* next_postponed = nullptr;
  std::span<iovec> receive_buffers{};
  std::span<iovec> send_buffers{};
  int64_t send_result = 0;
  int32_t receive_result = 0;  // at most kMostReceivedAtOnce
  int fd = -1;                 // -1: closed
  // Bytes received since the last wait_readable(), that is of this request; counted up to
  // kMostReceivedAtOnce, from where on its receives are postponed.
  uint32_t received = 0;
  Receiving receiving = Receiving::kNo;
  bool dropping = false;  // the receive is a drop()
  bool sending = false;
  bool send_done = false;
  bool readable = false;  // as far as known: cleared by EAGAIN or a short read
  bool writable = true;
  bool peer_closed = false;  // a short read no longer means "drained"
  bool gone = false;         // to be told by on_gone()
  bool queued = false;       // in the loop's list of completions
};

class EpollLoop final : public Loop {
 public:
  EpollLoop(WakeHandler& wake_handler, UniqueFd epoll, UniqueFd event) noexcept
      : wake_handler_(wake_handler), epoll_(std::move(epoll)), event_(std::move(event)) {
    completions_.previous = completions_.next = &completions_;
  }

  void observe(ThreadTimes times) noexcept override { idle_.observe(times); }
  const char* name() const noexcept override { return "epoll"; }
  Status add(Stream& stream, Socket socket) noexcept override;
  void close(Stream& stream, Closing how) noexcept override;
  Status add(Listener& listener) noexcept override;
  void remove(Listener& listener) noexcept override;
  Status add(Watch& watch) noexcept override;
  void remove(Watch& watch) noexcept override;
  void wait_readable(Stream& stream) noexcept override;
  void give_back(std::span<char> lent) noexcept override { (void)lent; }  // lends nothing
  void receive(Stream& stream, std::span<iovec> buffers) noexcept override;
  void drop(Stream& stream, std::span<iovec> buffers) noexcept override;
  void cancel_receive(Stream& stream) noexcept override;
  void send(Stream& stream, std::span<iovec> buffers) noexcept override;
  uint64_t sent_so_far(Stream& stream) noexcept override;
  bool look_now(Stream& stream) noexcept override;
  bool end_sending(Stream& stream) noexcept override;
  void limit_unsent_time(Stream& stream, uint64_t ns) noexcept override;
  bool had_unread(Stream& stream) noexcept override;
  bool had_unsent(Stream& stream) noexcept override;
  std::optional<PeerCredentials> peer_credentials(Stream& stream) noexcept override;
  std::optional<sockaddr_storage> own_address(Stream& stream) noexcept override;
  size_t run_once(uint64_t deadline_ns) noexcept override;
  void wake() noexcept override;
  uint64_t last_turn_ns() const noexcept override { return last_turn_ns_; }
  uint64_t wakeups() const noexcept override { return wakeups_; }
  uint64_t system_calls() const noexcept override { return system_calls_; }

 private:
  void begin_receive(EpollStream& state, std::span<iovec> buffers, bool drops) noexcept;
  void try_receive_or_postpone(EpollStream& state) noexcept;
  size_t try_receive(EpollStream& state, size_t at_most) noexcept;
  void postpone(EpollStream& state) noexcept;
  void take_off_postponed(EpollStream& state) noexcept;
  void receive_postponed() noexcept;
  void try_send(EpollStream& state) noexcept;
  void queue_completion(EpollStream& state) noexcept;
  size_t run_completions() noexcept;
  size_t deliver(EpollStream& state) noexcept;
  [[nodiscard]] bool has_completions() const noexcept { return completions_.next != &completions_; }
  // No event will tell of it.
  [[nodiscard]] bool has_work() const noexcept {
    return has_completions() || first_postponed_ != nullptr;
  }
  size_t on_event(const epoll_event& event) noexcept;
  void on_stream_event(EpollStream& state, uint32_t events) noexcept;
  size_t accept_some(Listener& listener) noexcept;
  size_t accept_without_descriptor(Listener& listener, int error) noexcept;
  void pause(Listener& listener) noexcept;
  void resume_listeners() noexcept;
  [[nodiscard]] bool peek(EpollStream& state) noexcept;
  // Events that came, or nothing but news in memory.
  struct Found {
    int events = 0;
    bool in_memory = false;
  };
  [[nodiscard]] Found poll_before_sleep() noexcept;
  struct Slept {
    int events = 0;
    size_t ran = 0;  // completions before it
  };
  [[nodiscard]] Slept sleep(uint64_t deadline_ns) noexcept;
  int wait_ms(uint64_t deadline_ns) noexcept;
  // For events, for so long. How many came; < 0: see errno.
  int wait(int timeout_ms) noexcept {
    ++system_calls_;
    return ::epoll_wait(epoll_.get(), events_.data(), kEventsPerTurn, timeout_ms);
  }

  WakeHandler& wake_handler_;
  UniqueFd epoll_;
  UniqueFd event_;
  ReserveDescriptor reserve_;
  Listener* paused_ = nullptr;  // listeners that wait for a descriptor
  uint64_t resume_ns_ = UINT64_MAX;
  EpollStream completions_;  // sentinel of the list of streams with results to deliver
  // Receives of large requests that have still to be tried, first come first served.
  EpollStream* first_postponed_ = nullptr;
  EpollStream* last_postponed_ = nullptr;
  std::array<epoll_event, kEventsPerTurn> events_{};
  uint64_t wakeups_ = 0;
  uint64_t system_calls_ = 0;
  uint64_t turn_began_ns_ = 0;
  uint64_t last_turn_ns_ = 0;
  IdleStrategy idle_{kMaxSpinNs, IdleStrategy::kKernelWakeCostNs};
  WakeWord wake_word_;
};

}  // namespace lumen::net
