// The ring of buffers that the kernel takes from, and their memory. See the header.
#include "net/lent_buffers.h"

#include <lumen/base/check.h>

#include <sys/mman.h>

#include <atomic>
#include <cerrno>

namespace lumen::net {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kRingBytes = LentBuffers::kCount * sizeof(io_uring_buf);
static_assert(kRingBytes % kPageBytes == 0);
static_assert((LentBuffers::kCount & (LentBuffers::kCount - 1)) == 0);

}  // namespace

Status LentBuffers::create(Uring& ring) {
  const size_t bytes = kRingBytes + size_t{kCount} * kBytes;
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return Status::from_errno(errno, "mapping %zu receive buffers", bytes);
  memory_ = {static_cast<std::byte*>(at), bytes};
  ring_ = reinterpret_cast<io_uring_buf_ring*>(at);
  buffers_ = reinterpret_cast<char*>(memory_.data() + kRingBytes);
  LUMEN_RETURN_IF_ERROR(ring.provide_buffers(*ring_, kCount));
  for (uint16_t i = 0; i < kCount; ++i) offer(i);
  return {};
}

LentBuffers::~LentBuffers() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

void LentBuffers::give_back(std::span<char> lent) noexcept {
  const auto offset = static_cast<size_t>(lent.data() - buffers_);
  LUMEN_CHECK(offset < size_t{kCount} * kBytes && offset % kBytes == 0);
  offer(static_cast<uint16_t>(offset / kBytes));
}

void LentBuffers::offer(uint16_t index) noexcept {
  io_uring_buf& place = ring_->bufs[tail_ & (kCount - 1)];
  place.addr = reinterpret_cast<uint64_t>(this->place(index));
  place.len = kBytes;
  place.bid = index;
  ++tail_;
  // sync[uring.sq]: release; the place is written before the kernel, whose load acquires, reads it
  std::atomic_ref(ring_->tail).store(tail_, std::memory_order_release);
}

}  // namespace lumen::net
