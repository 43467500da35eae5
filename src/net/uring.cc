// The ring's system calls and mappings. See the header for threads, memory and errors.
#include "net/uring.h"

#include <lumen/base/check.h>

#include <linux/time_types.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace lumen::net {
namespace {

// Newer than Debian 12's headers: a MSG_RING by a thread without a ring (Linux 6.13).
constexpr unsigned kRegisterSendMessage = 31;

// One thread submits; completions are worked off where it asks for them, and not by an interrupt of
// its other work; a flag in memory says that some are due.
constexpr uint32_t kSetupFlags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                 IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CQSIZE |
                                 IORING_SETUP_SUBMIT_ALL | IORING_SETUP_R_DISABLED;
// A full completion queue loses nothing; a wait takes a timeout; headers are copied at submission.
constexpr uint32_t kFeatures = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG |
                               IORING_FEAT_SUBMIT_STABLE | IORING_FEAT_FAST_POLL;

int register_with(int fd, unsigned what, void* argument, unsigned count) noexcept {
  return static_cast<int>(::syscall(SYS_io_uring_register, fd, what, argument, count));
}

Result<std::span<std::byte>> map_ring(int fd, size_t bytes, uint64_t offset) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
                    static_cast<off_t>(offset));
  if (at == MAP_FAILED) return Status::from_errno(errno, "mapping an io_uring of %zu bytes", bytes);
  return std::span(static_cast<std::byte*>(at), bytes);
}

// By a thread of its own, which ends: when a ring is freed, the kernel interrupts the threads that
// have made or entered it. A blocking call of theirs returns EINTR, which callers of create() need
// not expect. Returns a descriptor, or -errno.
int set_up(uint32_t entries, io_uring_params& params) {
  int result = 0;
  std::thread([&] {
    result = static_cast<int>(::syscall(SYS_io_uring_setup, entries, &params));
    if (result < 0) result = -errno;
  }).join();
  return result;
}

}  // namespace

Result<std::unique_ptr<Uring>> Uring::create(uint32_t entries, uint32_t completions) {
  io_uring_params params{};
  params.flags = kSetupFlags;
  params.cq_entries = completions;
  std::unique_ptr<Uring> ring(new Uring);  // alloc: at start
  const int fd = set_up(entries, params);
  if (fd < 0) {
    const int error = -fd;
    if (error == EPERM || error == EACCES) {
      return Status::error(Code::kUnsupported,
                           "io_uring is forbidden here (io_uring_setup: EPERM): by the container's "
                           "seccomp profile, or by /proc/sys/kernel/io_uring_disabled");
    }
    if (error == ENOSYS) {
      return Status::error(Code::kUnsupported,
                           "this kernel has no io_uring, or the container hides it "
                           "(io_uring_setup: ENOSYS)");
    }
    if (error == EINVAL) {
      return Status::error(Code::kUnsupported,
                           "this kernel's io_uring is too old (io_uring_setup refuses "
                           "DEFER_TASKRUN): wanted Linux 6.1 or later");
    }
    return Status::from_errno(error, "creating an io_uring");
  }
  ring->fd_ = UniqueFd(fd);
  if ((params.features & kFeatures) != kFeatures) {
    return Status::error(Code::kUnsupported,
                         "this kernel's io_uring lacks features: got 0x%x, wanted 0x%x",
                         params.features, kFeatures);
  }
  LUMEN_RETURN_IF_ERROR(ring->map(params));
  ring->entered_fd_ = ring->fd_.get();
  // The ring is not enabled yet, of which the kernel complains where it knows the call.
  ring->is_linux_6_13_ = ring->tell_now(0) == EBADFD;
  return ring;
}

Status Uring::map(const io_uring_params& params) {
  const size_t sq_bytes = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
  const size_t cq_bytes = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
  auto rings = map_ring(fd_.get(), std::max(sq_bytes, cq_bytes), IORING_OFF_SQ_RING);
  if (!rings.ok()) return rings.status();
  rings_ = *rings;
  auto sqes = map_ring(fd_.get(), params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
  if (!sqes.ok()) return sqes.status();
  sqe_memory_ = *sqes;

  const auto word = [this](uint32_t offset) {
    return reinterpret_cast<uint32_t*>(rings_.data() + offset);
  };
  entries_ = params.sq_entries;
  messages_.resize(entries_);
  sqes_ = reinterpret_cast<io_uring_sqe*>(sqe_memory_.data());
  sq_head_place_ = word(params.sq_off.head);
  sq_tail_place_ = word(params.sq_off.tail);
  sq_flags_ = word(params.sq_off.flags);
  // Entry i is always at place i.
  for (uint32_t i = 0; i < entries_; ++i) word(params.sq_off.array)[i] = i;
  cqes_ = reinterpret_cast<const io_uring_cqe*>(rings_.data() + params.cq_off.cqes);
  cq_mask_ = params.cq_entries - 1;
  cq_head_place_ = word(params.cq_off.head);
  cq_tail_place_ = word(params.cq_off.tail);
  return {};
}

Uring::~Uring() {
  for (const std::span<std::byte> mapping : {rings_, sqe_memory_}) {
    if (!mapping.empty()) ::munmap(mapping.data(), mapping.size());
  }
}

void Uring::enable() noexcept {
  LUMEN_CHECK(register_with(fd_.get(), IORING_REGISTER_ENABLE_RINGS, nullptr, 0) == 0);
  io_uring_rsrc_update by_thread{};
  by_thread.offset = UINT32_MAX;  // any free number
  by_thread.data = static_cast<uint64_t>(fd_.get());
  // Spares the look-up of the descriptor in each call. Without it the ring works all the same.
  if (register_with(fd_.get(), IORING_REGISTER_RING_FDS, &by_thread, 1) == 1) {
    entered_fd_ = static_cast<int>(by_thread.offset);
    enter_flags_ = IORING_ENTER_REGISTERED_RING;
  }
  system_calls_ += 2;
}

Uring::Entry Uring::next_entry() noexcept {
  const uint32_t index = tail_ & (entries_ - 1);
  ++tail_;
  sqes_[index] = io_uring_sqe{};
  messages_[index] = msghdr{};
  return {sqes_[index], messages_[index]};
}

void Uring::enter(Wait wait, uint64_t timeout_ns) noexcept {
  // sync[uring.sq]: release; the entries are written before the kernel reads them
  std::atomic_ref(*sq_tail_place_).store(tail_, std::memory_order_release);
  __kernel_timespec time{.tv_sec = static_cast<int64_t>(timeout_ns / 1'000'000'000u),
                         .tv_nsec = static_cast<int64_t>(timeout_ns % 1'000'000'000u)};
  io_uring_getevents_arg argument{};
  if (timeout_ns != UINT64_MAX) argument.ts = reinterpret_cast<uint64_t>(&time);
  uint32_t flags = enter_flags_ | IORING_ENTER_EXT_ARG;
  if (wait != Wait::kNo) flags |= IORING_ENTER_GETEVENTS;
  // It may fail (a signal, no memory for a request for the moment) with some entries taken or none:
  // the head says how many, and the others go with the next call.
  (void)::syscall(SYS_io_uring_enter, entered_fd_, tail_ - submitted_,
                  wait == Wait::kForOne ? 1u : 0u, flags, &argument, sizeof(argument));
  ++system_calls_;
  // sync[uring.sq]: acquire; pairs with the kernel's release of the head, after it has read the
  // entries
  submitted_ = std::atomic_ref(*sq_head_place_).load(std::memory_order_acquire);
}

Status Uring::provide_buffers(io_uring_buf_ring& ring, uint32_t count) noexcept {
  io_uring_buf_reg buffers{};
  buffers.ring_addr = reinterpret_cast<uint64_t>(&ring);
  buffers.ring_entries = count;
  if (register_with(fd_.get(), IORING_REGISTER_PBUF_RING, &buffers, 1) == 0) return {};
  return Status::from_errno(errno, "giving %u receive buffers to an io_uring", count);
}

Status Uring::make_file_table(uint32_t count) noexcept {
  rlimit limit{};  // which bounds the table, too
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < count) {
    count = static_cast<uint32_t>(limit.rlim_cur);
  }
  io_uring_rsrc_register table{};
  table.nr = count;
  table.flags = IORING_RSRC_REGISTER_SPARSE;
  if (register_with(fd_.get(), IORING_REGISTER_FILES2, &table, sizeof(table)) != 0) {
    return Status::from_errno(errno, "giving an io_uring a table of %u sockets", count);
  }
  file_places_ = count;
  return {};
}

bool Uring::set_file(uint32_t place, int fd) noexcept {
  if (place >= file_places_) return false;
  io_uring_rsrc_update2 update{};
  update.offset = place;
  update.data = reinterpret_cast<uint64_t>(&fd);
  update.nr = 1;
  ++system_calls_;
  return register_with(fd_.get(), IORING_REGISTER_FILES_UPDATE2, &update, sizeof(update)) == 1;
}

int Uring::tell_now(uint64_t user_data) const noexcept {
  io_uring_sqe message{};
  message.opcode = IORING_OP_MSG_RING;
  message.fd = fd_.get();
  message.off = user_data;
  return register_with(-1, kRegisterSendMessage, &message, 1) == 0 ? 0 : errno;
}

}  // namespace lumen::net
