// Uring: one io_uring of the kernel (io_uring(7)), by its raw interface: entries go out and
// completions come in. ADR 0018 says why not by liburing.
// Threads: the one that has called enable(), but for tell(): any.
// Memory: mappings and message headers at creation. Errors: create() says which call the kernel
// refuses.
//
// Buffers that an entry names are the kernel's from enter() until the completion. Message headers
// and lists of segments are its own only until enter() returns: it has copied them by then
// (IORING_FEAT_SUBMIT_STABLE).
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <linux/io_uring.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lumen::net {

class Uring {
 public:
  // An entry to fill in, all zero, and a message header that lasts until it is submitted.
  struct Entry {
    io_uring_sqe& sqe;
    msghdr& message;
  };
  enum class Wait : uint8_t {
    kNo,      // submits, and lets no completion come in
    kLook,    // lets the completions in that are due
    kForOne,  // ... and sleeps until there is one
  };

  // `entries` and `completions`: powers of two.
  [[nodiscard]] static Result<std::unique_ptr<Uring>> create(uint32_t entries,
                                                             uint32_t completions);
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // By the thread that enters it from now on.
  void enable() noexcept;

  // How many entries may be filled in before the next enter().
  [[nodiscard]] uint32_t room() const noexcept { return entries_ - (tail_ - submitted_); }
  // There is room.
  [[nodiscard]] Entry next_entry() noexcept;
  [[nodiscard]] bool has_entries() const noexcept { return tail_ != submitted_; }
  // Submits the entries. `timeout_ns`: of kForOne; UINT64_MAX: none.
  void enter(Wait wait, uint64_t timeout_ns = UINT64_MAX) noexcept;

  // Completions that have come in and are not taken yet, oldest first.
  [[nodiscard]] uint32_t completions() const noexcept {
    // sync[uring.cq]: acquire; pairs with the kernel's release of the tail, after the completion
    return cq_tail().load(std::memory_order_acquire) - cq_head_;
  }
  [[nodiscard]] const io_uring_cqe& completion(uint32_t index) const noexcept {
    return cqes_[(cq_head_ + index) & cq_mask_];
  }
  void take(uint32_t count) noexcept {
    cq_head_ += count;
    // sync[uring.cq]: release; the completions are read before the kernel may write there again
    std::atomic_ref(*cq_head_place_).store(cq_head_, std::memory_order_release);
  }
  // Completions wait in the kernel until the next enter() with kLook or kForOne.
  [[nodiscard]] bool has_work_in_kernel() const noexcept {
    // relaxed: a hint; the completions themselves come by enter()
    return (std::atomic_ref(*sq_flags_).load(std::memory_order_relaxed) &
            (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
  }

  // Buffers that the kernel may take for receives (group 0), `count` of `bytes` each, in `memory`.
  // `ring`: page-aligned, of count * sizeof(io_uring_buf) bytes.
  [[nodiscard]] Status provide_buffers(io_uring_buf_ring& ring, uint32_t count) noexcept;
  // Leaves a completion with `user_data` for the ring's thread, which ends its wait. False: this
  // kernel can't do that for a thread without a ring (before Linux 6.13), or has no memory.
  [[nodiscard]] bool tell(uint64_t user_data) const noexcept {
    return is_linux_6_13_ && tell_now(user_data) == 0;
  }

  // Sockets that the kernel looks up once, and not for each entry: as many as `count`, or as
  // the process may have descriptors.
  [[nodiscard]] Status make_file_table(uint32_t count) noexcept;
  // Whether a socket that has lost its place is free then. Before Linux 6.13 it stays open until
  // all entries that were there before have ended, such as the polls of other connections.
  [[nodiscard]] bool frees_files_at_once() const noexcept { return is_linux_6_13_; }
  // A socket for the place of its own number, -1: none any more. False: it has no place, or the
  // kernel refuses; entries then name the descriptor.
  [[nodiscard]] bool set_file(uint32_t place, int fd) noexcept;

  [[nodiscard]] uint64_t system_calls() const noexcept { return system_calls_; }

 private:
  Uring() = default;
  [[nodiscard]] Status map(const io_uring_params& params);
  [[nodiscard]] std::atomic_ref<uint32_t> cq_tail() const noexcept {
    return std::atomic_ref(*cq_tail_place_);
  }
  [[nodiscard]] int tell_now(uint64_t user_data) const noexcept;

  UniqueFd fd_;
  int entered_fd_ = -1;  // or its number among the thread's registered rings
  uint32_t enter_flags_ = 0;
  bool is_linux_6_13_ = false;  // or later
  uint32_t file_places_ = 0;

  std::span<std::byte> rings_;
  std::span<std::byte> sqe_memory_;
  io_uring_sqe* sqes_ = nullptr;
  std::vector<msghdr> messages_;  // one an entry
  uint32_t entries_ = 0;
  uint32_t tail_ = 0;       // entries filled in so far
  uint32_t submitted_ = 0;  // ... that the kernel has taken
  uint32_t* sq_head_place_ = nullptr;
  uint32_t* sq_tail_place_ = nullptr;
  uint32_t* sq_flags_ = nullptr;

  const io_uring_cqe* cqes_ = nullptr;
  uint32_t cq_mask_ = 0;
  uint32_t cq_head_ = 0;
  uint32_t* cq_head_place_ = nullptr;
  uint32_t* cq_tail_place_ = nullptr;

  uint64_t system_calls_ = 0;
};

}  // namespace lumen::net
