// Loop: the event loop's face, shaped by completions so that epoll and io_uring both fit behind it:
// an operation is handed in with its buffers and its result comes back through the handler.
// Threads: everything belongs to the thread that calls run_once(), but for wake(): any thread.
// Memory: at creation only; streams, listeners and buffers belong to the caller, but for lent ones.
// Errors: results < 0 are -errno; add() returns a Status.
//
// A Stream has at most one receive (or wait_readable) and one send in flight. Handlers run from
// run_once() only, never from inside an operation, so they do not recurse. A buffer that was handed
// in is the kernel's until the handler is called for it: written or read at any moment, even after
// cancel_receive() and close(). A result may come several turns after the kernel had it.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/thread_times.h>
#include <lumen/base/unique_fd.h>
#include <lumen/base/unix_socket.h>

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace lumen::net {

class Stream;

class StreamHandler {
 public:
  // After wait_readable(): bytes (or the end) are there; an idle connection owns no buffer. `lent`:
  // the loop has received the first bytes into a buffer of its own, the handler's until
  // give_back(). Empty: receive() gets them.
  virtual void on_readable(Stream& stream, std::span<char> lent) noexcept = 0;
  // Bytes received; 0: the peer has closed its side; < 0: -errno. The buffers are free.
  virtual void on_received(Stream& stream, int64_t result) noexcept = 0;
  // All bytes handed to send() are with the kernel (their number), or -errno. The buffers are free.
  virtual void on_sent(Stream& stream, int64_t result) noexcept = 0;
  // The peer has reset the connection or hung up both ways, so that nothing can reach it any more.
  // Only where no operation is in flight: those end with an error. Not for a FIN alone, which may
  // be a half-close whose sender still waits for its reply.
  virtual void on_gone(Stream& stream) noexcept { (void)stream; }
  // After close(), and the last that is heard of the stream: all its buffers are free, and it may
  // be destroyed or added again.
  virtual void on_closed(Stream& stream) noexcept = 0;

 protected:
  ~StreamHandler() = default;
};

// A connection inside a loop: a socket, or another thing by which the loop moves bytes.
class Stream {
 public:
  explicit Stream(StreamHandler* stream_handler) noexcept : handler(stream_handler) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  StreamHandler* handler;

  // --- for loops ---------------------------------------------------------------------------------
  // The loop's data of it: a type of the loop's own, made by begin() when the stream is added.
  template <typename State>
  State& begin(State&& state) noexcept {
    static_assert(sizeof(State) <= sizeof(state_) && alignof(State) <= alignof(std::max_align_t));
    static_assert(std::is_trivially_destructible_v<State>);
    return *new (state_) State(std::forward<State>(state));
  }
  template <typename State>
  [[nodiscard]] State& state() noexcept {
    return *std::launder(reinterpret_cast<State*>(state_));
  }

 private:
  alignas(std::max_align_t) std::byte state_[128];
};

// A connection that no stream has yet: a descriptor, or a number that means one to the loop it is
// from.
struct Socket {
  int number = -1;
};

class ListenerHandler {
 public:
  // True: it has been handed to add(). False: nobody wants it, and the loop closes it.
  [[nodiscard]] virtual bool on_accepted(Socket socket) noexcept = 0;
  // accept() failed (EMFILE: the loop has taken and closed the connection with its reserve
  // descriptor).
  virtual void on_accept_failed(int error_number) noexcept = 0;

 protected:
  ~ListenerHandler() = default;
};

struct Listener {
  UniqueFd fd;
  ListenerHandler* handler = nullptr;
  // Other loops accept from duplicates of it: a connection wakes one of them, not all.
  bool is_shared = false;
  Listener* next_paused = nullptr;  // the loop's
};

class WatchHandler {
 public:
  // The descriptor is readable, or its other side has hung up; told each turn as long as that is
  // so. The watch may be removed here, but has to stay where it is until the turn ends.
  virtual void on_ready(struct Watch& watch, bool hung_up) noexcept = 0;

 protected:
  ~WatchHandler() = default;
};

// A descriptor that somebody else reads: the loop tells when there is something.
struct Watch {
  int fd = -1;  // the owner's, open until the watch is removed
  WatchHandler* handler = nullptr;
};

class WakeHandler {
 public:
  // Before each result that a turn delivers to a stream's handler: a turn of many may take long,
  // and work that others wait for may be passed on meanwhile. Cheap, and delivers nothing itself.
  virtual void before_delivery() noexcept {}
  // Takes the work that other threads have left; returns how much it did. Several times a turn, and
  // once more before the loop sleeps.
  virtual size_t on_wake() noexcept = 0;
  // Called once all events of a turn have been handled; returns how much it did. If that was
  // something, its results (replies that are out, say) are handled before the turn ends.
  virtual size_t on_turn_end() noexcept { return 0; }
  // Whether the loop may poll for a moment before it sleeps. Asked before each sleep. Not while
  // work is elsewhere: a thread that polls for its result may hold the CPU that the result needs.
  virtual bool may_spin() noexcept { return false; }
  // For requests that come through memory, of which no descriptor tells while this thread is awake.
  // poll_memory(): may look several times, for less than the time of a system call; true: on_wake()
  // has something to do. Called while the loop spins.
  virtual bool poll_memory() noexcept { return false; }
  // Around the kernel's wait: from before_sleep() on, a thread that leaves something in memory
  // makes a watched descriptor readable. on_wake() follows before the loop sleeps.
  virtual void before_sleep() noexcept {}
  virtual void after_sleep() noexcept {}

 protected:
  ~WakeHandler() = default;
};

class Loop {
 public:
  enum class Closing : uint8_t {
    kOrderly,  // unsent bytes are left to the kernel
    kReset,    // unsent bytes are dropped, and the peer told so
  };

  virtual ~Loop() = default;
  // On the loop's thread, before its first turn: told where its time goes. Loops without a sleep of
  // their own tell nothing.
  virtual void observe(ThreadTimes times) noexcept { (void)times; }
  [[nodiscard]] virtual const char* name() const noexcept = 0;

  // The socket is the stream's from now on, closed if it can't be added. A reply leaves it in one
  // write, without Nagle's delay.
  [[nodiscard]] virtual Status add(Stream& stream, Socket socket) noexcept = 0;
  // Ends operations in flight untold: only on_closed() follows, once the kernel has let go of their
  // buffers.
  virtual void close(Stream& stream, Closing how) noexcept = 0;
  [[nodiscard]] virtual Status add(Listener& listener) noexcept = 0;
  virtual void remove(Listener& listener) noexcept = 0;
  // Loops without descriptors have no watches.
  [[nodiscard]] virtual Status add(Watch& watch) noexcept {
    return Status::error(Code::kUnsupported, "the loop '%s' can't watch descriptor %d", name(),
                         watch.fd);
  }
  virtual void remove(Watch& watch) noexcept { (void)watch; }

  virtual void wait_readable(Stream& stream) noexcept = 0;
  // A buffer that on_readable() has lent; after close() too.
  virtual void give_back(std::span<char> lent) noexcept = 0;
  // Fills the buffers in order with the bytes that are there, or with the first part of them (at
  // least a byte). A loop may bound the bytes of a turn, so that large bodies do not keep other
  // streams waiting; on_received may then come some turns later. The iovecs and their memory stay
  // untouched by the caller until on_received; the loop leaves the iovecs as they were.
  virtual void receive(Stream& stream, std::span<iovec> buffers) noexcept = 0;
  // As receive(), for bytes to drop: the content of the buffers afterwards is not said, since TCP
  // lets go of them without a copy (tcp(7), MSG_TRUNC). The same memory may be named repeatedly.
  virtual void drop(Stream& stream, std::span<iovec> buffers) noexcept = 0;
  // Ends a receive, drop or wait_readable in flight: on_received(-ECANCELED) follows, or the result
  // that it had before, and the buffers are the caller's again from then on.
  virtual void cancel_receive(Stream& stream) noexcept = 0;
  // Sends everything; the loop advances the iovecs as it goes.
  virtual void send(Stream& stream, std::span<iovec> buffers) noexcept = 0;
  // Of the send in flight, how much the kernel has taken.
  [[nodiscard]] virtual uint64_t sent_so_far(Stream& stream) noexcept = 0;
  // Looks at the stream's socket now instead of at the next event: bytes that wait there may have
  // come while the loop was away. True: an operation in flight has moved, and its handler runs in a
  // next turn if it is complete.
  [[nodiscard]] virtual bool look_now(Stream& stream) noexcept = 0;

  // Hands gathered operations to the kernel, where the loop lets them gather: for a handler
  // that will keep the thread for long, with replies that are ready.
  virtual void submit() noexcept {}
  // Whether submit() has something to do.
  [[nodiscard]] virtual bool has_gathered() const noexcept { return false; }

  // The peer finds our end behind the sent bytes. False: it can't be told any more.
  [[nodiscard]] virtual bool end_sending(Stream& stream) noexcept = 0;
  // The kernel gives the connection up once it could send none of the unsent bytes for so long,
  // after the close too. Rounded up to milliseconds.
  virtual void limit_unsent_time(Stream& stream, uint64_t ns) noexcept = 0;
  // Whether bytes, or the end, wait to be received.
  [[nodiscard]] virtual bool had_unread(Stream& stream) noexcept = 0;
  // Whether the peer has not acknowledged all that was sent. False where the kernel can't tell.
  [[nodiscard]] virtual bool had_unsent(Stream& stream) noexcept = 0;
  // As the kernel noted them at connect(). nullopt: not a unix socket.
  [[nodiscard]] virtual std::optional<PeerCredentials> peer_credentials(
      Stream& stream) noexcept = 0;
  // Where the peer reached us. nullopt: there is no knowing.
  [[nodiscard]] virtual std::optional<sockaddr_storage> own_address(Stream& stream) noexcept = 0;

  // One turn: completions, at most one wait in the kernel (until `deadline_ns` of CLOCK_MONOTONIC,
  // UINT64_MAX for ever), events. Returns how many handlers ran.
  virtual size_t run_once(uint64_t deadline_ns) noexcept = 0;
  // After it on_wake() and on_turn_end() are called once more: it ends the wait of run_once(), or
  // keeps the next one from sleeping. No system call while the loop is awake.
  virtual void wake() noexcept = 0;
  // How long the loop has been away from its sockets before it last looked at them: bytes that it
  // found there may have come that much earlier.
  [[nodiscard]] virtual uint64_t last_turn_ns() const noexcept = 0;
  // Returns from the kernel's wait so far; for counters and idle tests.
  [[nodiscard]] virtual uint64_t wakeups() const noexcept = 0;
  // Of those that a request costs: waits, receives, sends. 0: not counted.
  [[nodiscard]] virtual uint64_t system_calls() const noexcept { return 0; }
};

[[nodiscard]] Result<std::unique_ptr<Loop>> make_epoll_loop(WakeHandler& wake_handler);
// kUnsupported: this kernel or this container has none that serves, and why.
[[nodiscard]] Result<std::unique_ptr<Loop>> make_uring_loop(WakeHandler& wake_handler);

// The loops that a server may run on.
enum class LoopKind : uint8_t {
  kAuto,  // the faster one here
  kEpoll,
  kIoUring,
};
inline constexpr std::array<std::string_view, 3> kLoopNames = {"auto", "epoll", "io_uring"};
[[nodiscard]] constexpr std::string_view name_of(LoopKind kind) noexcept {
  return kLoopNames[static_cast<size_t>(kind)];
}

struct LoopChoice {
  LoopKind kind = LoopKind::kEpoll;  // never kAuto
  std::string why;                   // to be read behind the name
};
// kAuto: a trial of about 10 ms decides, or the reason for which there is no io_uring here. Control
// plane: allocates, and opens descriptors for the trial. kUnsupported: io_uring was wanted, and
// there is none.
[[nodiscard]] Result<LoopChoice> choose_loop(LoopKind wanted);
// `kind`: of a choice. Tests link another definition of both, to run the server on a loop of their
// own.
[[nodiscard]] Result<std::unique_ptr<Loop>> make_loop(LoopKind kind, WakeHandler& wake_handler);

}  // namespace lumen::net
