// Loop: the event loop's face, shaped by completions so that epoll and io_uring both fit behind it:
// an operation is handed in with its buffers and its result comes back through the handler.
// Threads: everything belongs to the thread that calls run_once(), but for wake(): any thread.
// Memory: at creation only; streams, listeners and buffers belong to the caller.
// Says no: results < 0 are -errno; add() returns a Status.
//
// A Stream has at most one receive (or wait_readable) and one send in flight. Handlers run from
// run_once() only, never from inside receive() or send(), so they do not recurse.
// After remove() a Stream may be destroyed once run_once() has returned: events of the turn may
// still name it, and are dropped.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lumen::net {

class Stream;

class StreamHandler {
 public:
  // After wait_readable(): bytes (or the end) are there; an idle connection owns no buffer.
  virtual void on_readable(Stream& stream) noexcept = 0;
  // Bytes received; 0: the peer has closed its side; < 0: -errno.
  virtual void on_received(Stream& stream, int64_t result) noexcept = 0;
  // All bytes handed to send() are with the kernel (their number), or -errno.
  virtual void on_sent(Stream& stream, int64_t result) noexcept = 0;
  // The peer has reset the connection or hung up both ways, so that nothing can reach it any more. Only
  // where no operation is in flight: those end with an error. Not for a FIN alone, which may be a
  // half-close whose sender still waits for its reply.
  virtual void on_gone(Stream& stream) noexcept { (void)stream; }
  // A send that had to wait has gone on, and waits again.
  virtual void on_send_progress(Stream& stream) noexcept { (void)stream; }

 protected:
  ~StreamHandler() = default;
};

// A connected, non-blocking stream socket inside a loop. Members below `handler` are the loop's.
class Stream {
 public:
  explicit Stream(StreamHandler* stream_handler) noexcept : handler(stream_handler) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  StreamHandler* handler;
  UniqueFd fd;

  enum class Receiving : uint8_t { kNo, kReadiness, kData, kDone };
  struct LoopState {
    std::span<iovec> receive_buffers;
    std::span<iovec> send_buffers;
    int64_t receive_result = 0;
    int64_t send_result = 0;
    Receiving receiving = Receiving::kNo;
    bool dropping = false;  // the receive is a drop()
    bool sending = false;
    bool send_done = false;
    bool readable = false;  // as far as known: cleared by EAGAIN or a short read
    bool writable = true;
    bool peer_closed = false;  // a short read no longer means "drained"
    bool gone = false;         // to be told by on_gone()
    bool queued = false;       // in the loop's list of completions
    Stream* previous = nullptr;
    Stream* next = nullptr;
  } loop;
};

class ListenerHandler {
 public:
  // A connected, non-blocking, close-on-exec socket.
  virtual void on_accepted(UniqueFd fd) noexcept = 0;
  // accept() failed (EMFILE: the loop has taken and closed the connection with its reserve descriptor).
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

class WakeHandler {
 public:
  // Takes what other threads have left; returns how much it did. Several times a turn, and once more
  // before the loop sleeps.
  virtual size_t on_wake() noexcept = 0;
  // Called once all that a turn brought has been handled; returns how much it did. If that was
  // something, what came of it (replies that are out, say) is handled before the turn ends.
  virtual size_t on_turn_end() noexcept { return 0; }
  // Whether the loop may poll for a moment before it sleeps. Asked before each sleep. Not while work
  // is elsewhere: a thread that polls for its result may hold the CPU that the result needs.
  virtual bool may_spin() noexcept { return false; }

 protected:
  ~WakeHandler() = default;
};

class Loop {
 public:
  virtual ~Loop() = default;
  [[nodiscard]] virtual const char* name() const noexcept = 0;

  [[nodiscard]] virtual Status add(Stream& stream) noexcept = 0;
  // Takes the stream out and closes its socket; operations in flight never complete.
  virtual void remove(Stream& stream) noexcept = 0;
  [[nodiscard]] virtual Status add(Listener& listener) noexcept = 0;
  virtual void remove(Listener& listener) noexcept = 0;

  virtual void wait_readable(Stream& stream) noexcept = 0;
  // Fills the buffers in order with what is there (at least a byte). The iovecs and their memory
  // stay untouched by the caller until on_received.
  virtual void receive(Stream& stream, std::span<iovec> buffers) noexcept = 0;
  // As receive(), for bytes that nobody wants: what is in the buffers afterwards is not said, since
  // TCP lets go of them without a copy (tcp(7), MSG_TRUNC). The same memory may be named repeatedly.
  virtual void drop(Stream& stream, std::span<iovec> buffers) noexcept = 0;
  // Ends a receive, drop or wait_readable in flight: on_received(-ECANCELED) follows, and the buffers are
  // the caller's again from then on.
  virtual void cancel_receive(Stream& stream) noexcept = 0;
  // Sends everything; the loop advances the iovecs as it goes.
  virtual void send(Stream& stream, std::span<iovec> buffers) noexcept = 0;
  // Looks at the stream's socket now instead of at the next event: what waits there may have come while
  // the loop was away. True: an operation in flight has moved, and its handler runs in the next turn
  // if it is complete.
  [[nodiscard]] virtual bool look_now(Stream& stream) noexcept = 0;

  // One turn: completions, at most one wait in the kernel (until `deadline_ns` of CLOCK_MONOTONIC,
  // UINT64_MAX for ever), events. Returns how many handlers ran.
  virtual size_t run_once(uint64_t deadline_ns) noexcept = 0;
  // After it on_wake() and on_turn_end() are called once more: it ends the wait of run_once(), or keeps
  // the next one from sleeping. No system call while the loop is awake.
  virtual void wake() noexcept = 0;
  // How long the loop has been away from its sockets before it last looked at them: what it found
  // there may have come that much earlier.
  [[nodiscard]] virtual uint64_t last_turn_ns() const noexcept = 0;
  // Returns from the kernel's wait so far; for counters and idle tests.
  [[nodiscard]] virtual uint64_t wakeups() const noexcept = 0;
};

[[nodiscard]] Result<std::unique_ptr<Loop>> make_epoll_loop(WakeHandler& wake_handler);

}  // namespace lumen::net
