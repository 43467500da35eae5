// LentBuffers: buffers that the kernel takes for the first bytes of a request and the loop lends to
// a stream's handler: a connection that is idle owns none.
// Threads: the loop's. Memory: one mapping at creation. Errors: create() says why.
#pragma once

#include "net/uring.h"

#include <lumen/base/result.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace lumen::net {

class LentBuffers {
 public:
  // Most heads with a small body fit; of larger requests the rest is received in its place.
  static constexpr uint32_t kBytes = 4096;
  // As many as the completions that a turn takes: a handler gives its buffer back at once, but
  // where it waits for memory. Without one left the handler receives into memory of its own.
  static constexpr uint32_t kCount = 256;
  // The group's number in the kernel.
  static constexpr uint16_t kGroup = 0;

  LentBuffers() noexcept = default;
  ~LentBuffers();
  LentBuffers(const LentBuffers&) = delete;
  LentBuffers& operator=(const LentBuffers&) = delete;

  [[nodiscard]] Status create(Uring& ring);
  // The first `bytes` of the buffer that the kernel has named.
  [[nodiscard]] std::span<char> lend(uint16_t index, uint32_t bytes) const noexcept {
    return {place(index), bytes};
  }
  void give_back(std::span<char> lent) noexcept;

 private:
  [[nodiscard]] char* place(uint16_t index) const noexcept {
    return buffers_ + size_t{index} * kBytes;
  }
  void offer(uint16_t index) noexcept;

  std::span<std::byte> memory_;
  io_uring_buf_ring* ring_ = nullptr;
  char* buffers_ = nullptr;
  uint16_t tail_ = 0;  // buffers offered so far
};

}  // namespace lumen::net
