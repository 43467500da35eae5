// UringLoop: a Loop over io_uring. Operations of a turn gather and go to the kernel together, with
// the look for completions: one system call a turn, of one request or of a hundred.
// Turns: uring_loop.cc; operations of streams: uring_streams.cc; listeners and watches:
// uring_doors.cc.
// Threads: the owner, but for wake(). Memory: at creation. Errors: reach the handlers as -errno.
#pragma once

#include "net/fifo.h"
#include "net/lent_buffers.h"
#include "net/reserve_descriptor.h"
#include "net/turn_bounds.h"
#include "net/uring.h"
#include "net/wake_word.h"

#include <lumen/base/idle_strategy.h>
#include <lumen/net/loop.h>

#include <array>
#include <memory>

namespace lumen::net {

// Entries of one submission: a turn with more operations submits several times.
constexpr uint32_t kUringEntries = 256;
// Completions that the ring holds: with more the kernel keeps them in a list of its own, which
// costs an allocation each. A few times the entries, and as many as a burst of accepts brings.
constexpr uint32_t kUringCompletions = 4096;
// Completions that a turn takes: as many as the epoll loop takes events.
constexpr uint32_t kCompletionsPerTurn = 256;

// Sockets that have a place in the ring's table; those with higher numbers are looked up by each
// entry, some 20 ns. 8 bytes each, in the kernel.
constexpr uint32_t kFilePlaces = 1u << 16;

// The loop's data of a stream: its Stream::state().
struct UringStream {
  enum class Receiving : uint8_t {
    kNo,
    kReadiness,  // a wait_readable() is asked for
    kData,
    kReadable,  // the results of them, to be delivered
    kReceived,
  };
  Stream* stream = nullptr;
  UringStream* next_completed = nullptr;
  UringStream* next_gathered = nullptr;
  UringStream* next_postponed = nullptr;
  std::span<iovec> receive_buffers{};
  std::span<iovec> send_buffers{};
  int64_t send_result = 0;
  int32_t receive_result = 0;
  int fd = -1;            // -1: closed
  uint32_t received = 0;  // bytes since the last wait_readable(), counted up to the bound
  uint16_t lent_index = 0;
  Receiving receiving = Receiving::kNo;
  bool has_lent = false;   // kReadable: receive_result bytes are in the lent buffer
  bool has_early = false;  // the end or an error, found by a wait_readable()
  bool dropping = false;   // the receive is a drop()
  bool sending = false;
  bool send_done = false;
  bool gone = false;       // to be told by on_gone()
  bool has_place = false;  // in the ring's table of sockets, the one of its descriptor's number
  bool closing = false;
  // Asked for, and not submitted yet.
  bool receive_asked = false;
  bool send_asked = false;
  bool cancel_asked = false;
  // The kernel has them, with their buffers.
  bool receive_in_kernel = false;
  bool send_in_kernel = false;
  bool poll_in_kernel = false;  // for the hang-up
  // In the lists of the same names.
  bool completed = false;
  bool gathered = false;
  bool postponed = false;
};

class UringLoop final : public Loop {
 public:
  UringLoop(WakeHandler& wake_handler, std::unique_ptr<Uring> ring, UniqueFd event) noexcept
      : wake_handler_(wake_handler), ring_(std::move(ring)), event_(std::move(event)) {}
  [[nodiscard]] Status prepare() {
    if (ring_->frees_files_at_once()) {
      LUMEN_RETURN_IF_ERROR(ring_->make_file_table(kFilePlaces));
    }
    return lent_.create(*ring_);
  }

  void observe(ThreadTimes times) noexcept override { idle_.observe(times); }
  const char* name() const noexcept override { return "io_uring"; }
  Status add(Stream& stream, Socket socket) noexcept override;
  void close(Stream& stream, Closing how) noexcept override;
  Status add(Listener& listener) noexcept override;
  void remove(Listener& listener) noexcept override;
  Status add(Watch& watch) noexcept override;
  void remove(Watch& watch) noexcept override;
  void wait_readable(Stream& stream) noexcept override;
  void give_back(std::span<char> lent) noexcept override { lent_.give_back(lent); }
  void receive(Stream& stream, std::span<iovec> buffers) noexcept override;
  void drop(Stream& stream, std::span<iovec> buffers) noexcept override;
  void cancel_receive(Stream& stream) noexcept override;
  void send(Stream& stream, std::span<iovec> buffers) noexcept override;
  uint64_t sent_so_far(Stream& stream) noexcept override;
  bool look_now(Stream& stream) noexcept override;
  void submit() noexcept override;
  bool has_gathered() const noexcept override { return !gathered_.empty() || ring_->has_entries(); }
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
  uint64_t system_calls() const noexcept override { return ring_->system_calls(); }

 private:
  // The low bits of an entry's user_data; above them the address of a UringStream, or the index of
  // a door or of a watched descriptor.
  enum Operation : uint64_t {
    kReceive,
    kSend,
    kPoll,
    kAccept,
    kWatch,
    kWake,
    kNothing,  // a cancellation: the cancelled operation tells itself
  };
  static constexpr uint64_t kOperationMask = 15;
  static constexpr uint64_t kIndexShift = 4;

  // A listener, or one that was removed while the kernel still has its entry.
  struct Door {
    enum class Step : uint8_t {
      kAccepting,
      kPolling,  // until there is a connection to accept: after an error an accept may fail at once
      kPaused,   // no descriptor is left
    };
    Listener* listener = nullptr;
    Step step = Step::kAccepting;
    bool in_kernel = false;
    bool asked = false;  // an entry for the step, or its cancellation
    [[nodiscard]] bool is_free() const noexcept { return listener == nullptr && !in_kernel; }
  };
  struct Watched {
    Watch* watch = nullptr;
    bool in_kernel = false;
    bool asked = false;
    [[nodiscard]] bool is_free() const noexcept { return watch == nullptr && !in_kernel; }
  };
  // A server has at most two listeners a thread.
  static constexpr size_t kMostDoors = 8;
  // A server has the bus's listener and its 64 connections.
  static constexpr size_t kMostWatches = 256;

  static UringStream& of(Stream& stream) noexcept { return stream.state<UringStream>(); }
  static uint64_t user_data(const UringStream& state, Operation operation) noexcept {
    return reinterpret_cast<uint64_t>(&state) | operation;
  }

  // --- turns -------------------------------------------------------------------------------------
  void enable() noexcept;
  void fill_entries() noexcept;
  [[nodiscard]] bool make_room(uint32_t entries) noexcept;
  void look() noexcept;
  [[nodiscard]] bool poll_before_sleep() noexcept;
  size_t sleep(uint64_t deadline_ns) noexcept;
  [[nodiscard]] bool has_work() const noexcept {
    return !completed_.empty() || !postponed_.empty() || ring_->completions() > 0;
  }
  size_t take_completions() noexcept;
  size_t on_completion(const io_uring_cqe& completion) noexcept;
  void cancel(uint64_t of_user_data) noexcept;

  // --- streams -----------------------------------------------------------------------------------
  void ask_receive(UringStream& state, std::span<iovec> buffers, bool drops) noexcept;
  void gather(UringStream& state) noexcept;
  void write_entries(UringStream& state) noexcept;
  [[nodiscard]] Uring::Entry entry_of(UringStream& state, Operation operation) noexcept;
  void write_receive(UringStream& state) noexcept;
  void write_send(UringStream& state) noexcept;
  void write_poll(UringStream& state) noexcept;
  void write_cancels(UringStream& state) noexcept;
  void on_receive(UringStream& state, const io_uring_cqe& completion) noexcept;
  void on_send(UringStream& state, int32_t result) noexcept;
  void on_poll(UringStream& state, const io_uring_cqe& completion) noexcept;
  void end_close_if_idle(UringStream& state) noexcept;
  void complete(UringStream& state) noexcept;
  size_t run_completed() noexcept;
  size_t deliver(UringStream& state) noexcept;
  size_t deliver_receive(UringStream& state) noexcept;
  // The completion of an operation of the stream's that has come in and is not taken yet.
  [[nodiscard]] const io_uring_cqe* find_completion(uint64_t user_data) const noexcept;

  // --- doors and watches -------------------------------------------------------------------------
  void write_door_entries() noexcept;
  size_t on_accept(Door& door, const io_uring_cqe& completion) noexcept;
  size_t on_accept_error(Door& door, int error) noexcept;
  void ask(Door& door, Door::Step step) noexcept;
  void resume_doors() noexcept;
  size_t on_watch(Watched& watched, int32_t result) noexcept;

  WakeHandler& wake_handler_;
  std::unique_ptr<Uring> ring_;
  UniqueFd event_;  // ends the sleep where the ring itself can't be told
  LentBuffers lent_;
  ReserveDescriptor reserve_;
  uint64_t resume_ns_ = UINT64_MAX;  // of doors that wait for a descriptor

  Fifo<UringStream, &UringStream::next_completed> completed_;  // results to deliver
  Fifo<UringStream, &UringStream::next_gathered> gathered_;    // operations to submit
  Fifo<UringStream, &UringStream::next_postponed> postponed_;  // receives of large requests
  uint32_t gathered_count_ = 0;
  size_t postponed_left_ = 0;  // receives of them that this turn may still submit

  std::array<Door, kMostDoors> doors_{};
  std::array<Watched, kMostWatches> watches_{};
  size_t watches_used_ = 0;  // no watch lies above
  bool doors_asked_ = false;
  bool is_enabled_ = false;

  uint64_t wakeups_ = 0;
  uint64_t turn_began_ns_ = 0;
  uint64_t last_turn_ns_ = 0;
  IdleStrategy idle_{kMaxSpinNs, IdleStrategy::kKernelWakeCostNs};
  WakeWord wake_word_;
};

}  // namespace lumen::net
