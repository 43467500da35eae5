// ErrorText: the message of a Status that does not fit into it, in a slot of a fixed pool.
// Threads: any, at once. Memory: the pool is static, kSlots of 512 bytes, whose pages are taken
// when they are first used; nothing is allocated. Errors: claim() is nullptr where no slot is
// found; the Status then keeps the beginning of its message.
//
// A slot counts its holders: 0 is free, and a claim makes that 1 by compare-and-swap. The claiming
// thread writes the text before any copy exists, and no thread writes it again until the slot is
// free. A copy for another thread is ordered by the means that publish its Status.
// tests/spin/error_text.pml.
#pragma once

#include <lumen/base/cache_line.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lumen {

class alignas(kCacheLine) ErrorText {
 public:
  static constexpr size_t kMaxBytes = 500;
  // As many requests may fail at once before one of them has its message cut: more than all
  // max_active_requests by default. 512 KiB of address space.
  static constexpr size_t kSlots = 1024;
  // A claim looks at so many slots, from where this thread found its last one: under a flood of
  // errors a claim is bounded, too.
  static constexpr size_t kMostLooks = 64;

  // With one holder and this text, cut at kMaxBytes.
  [[nodiscard]] static ErrorText* claim(std::string_view text) noexcept;

  [[nodiscard]] std::string_view view() const noexcept { return {bytes_.data(), size_}; }
  // The same, with a NUL behind it.
  [[nodiscard]] const char* c_str() const noexcept { return bytes_.data(); }
  // relaxed: the caller holds it, so that it can't become free meanwhile.
  void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
  // sync[error_text.holders]: the next text is not written before this holder has read its own.
  void release() noexcept { holders_.fetch_sub(1, std::memory_order_release); }

  // Slots with a holder now, for tests.
  [[nodiscard]] static size_t in_use() noexcept;

 private:
  std::atomic<uint32_t> holders_{0};
  uint16_t size_ = 0;
  std::array<char, kMaxBytes + 1> bytes_{};
};
static_assert(sizeof(ErrorText) == 512);

}  // namespace lumen
