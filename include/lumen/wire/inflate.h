// Inflater: a body that was sent with Content-Encoding gzip (RFC 1952; one member or several) or
// deflate (RFC 1950, as RFC 9110 wants it), piece by piece, by zlib. Checksums are checked.
// Threads: one. Memory: the block that it was made in, which it never leaves: it must not be moved.
// Errors: State::kRefused, with the answer.
#pragma once

#include <lumen/wire/content_coding.h>
#include <lumen/wire/http.h>

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::wire {

class Inflater {
 public:
  // zlib takes 32 KiB for its window (RFC 1951), and less than 8 KiB for its state.
  static constexpr size_t kMemoryBytes = 64 * 1024;

  enum class State : uint8_t {
    kNeedMore,  // the whole input was used
    kFull,      // the whole output was used; there may be more without more input
    kRefused,
  };
  struct Step {
    State state = State::kNeedMore;
    size_t consumed = 0;
    size_t produced = 0;
    Refusal refusal;
  };

  // In `memory`, kMemoryBytes that are aligned as max_align_t; `coding` is not the identity.
  [[nodiscard]] static Inflater* create(ContentCoding coding, std::span<std::byte> memory) noexcept;
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  [[nodiscard]] Step step(std::string_view input, std::span<char> output) noexcept;
  // All that has come so far is complete: the body may end here.
  [[nodiscard]] bool is_at_end() const noexcept { return is_at_end_; }

 private:
  explicit Inflater(ContentCoding coding, std::span<std::byte> memory) noexcept;
  static void* allocate(void* self, unsigned items, unsigned size) noexcept;
  static void release(void* self, void* memory) noexcept;
  [[nodiscard]] Step refuse(Step step) const noexcept;

  z_stream stream_{};
  std::span<std::byte> left_;  // of its block
  const ContentCoding coding_;
  bool is_at_end_ = false;
};

}  // namespace lumen::wire
