// SessionMemory: the heap of nghttp2's sessions on one I/O thread, so that serving takes none of
// malloc's: blocks of powers of two, each size with a list of free ones.
// Threads: its I/O thread. Memory: one mapping at create(), virtual until touched. Errors: nullptr,
// where it is used up; the session then ends.
#pragma once

#include <lumen/base/result.h>
#include <lumen/memory/request_memory.h>

#include <nghttp2/nghttp2.h>

#include <array>
#include <cstddef>

namespace lumen::grpc {

class SessionMemory {
 public:
  [[nodiscard]] Status create(size_t bytes);
  SessionMemory() = default;
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;

  [[nodiscard]] nghttp2_mem* functions() noexcept { return &functions_; }

 private:
  struct Block {
    size_t number;  // of its size
    Block* next;    // among the free ones
  };
  static constexpr size_t kLeastBytes = 32;
  static constexpr size_t kSizes = 16;  // up to 1 MiB

  [[nodiscard]] void* allocate(size_t bytes) noexcept;
  void free(void* memory) noexcept;
  [[nodiscard]] void* reallocate(void* memory, size_t bytes) noexcept;

  RequestMemory memory_;
  std::array<Block*, kSizes> free_{};
  nghttp2_mem functions_{};
};

}  // namespace lumen::grpc
