// Places: where bytes that arrive in pieces belong, in order.
// Threads: one. Memory: none; the segments and their memory belong to a call. Errors: none.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace lumen::service {

class Places {
 public:
  Places() noexcept = default;
  // `segments` is used up as bytes arrive.
  explicit Places(std::span<iovec> segments) noexcept : segments_(segments) { advance(0); }

  [[nodiscard]] bool empty() const noexcept { return segments_.empty(); }
  // For readv() and its like.
  [[nodiscard]] std::span<iovec> segments() const noexcept { return segments_; }

  // The next `bytes` have been put there; no more than there is room for.
  void advance(size_t bytes) noexcept {
    while (!segments_.empty() && bytes >= segments_.front().iov_len) {
      bytes -= segments_.front().iov_len;
      segments_ = segments_.subspan(1);
    }
    if (bytes > 0) {
      iovec& first = segments_.front();
      first.iov_base = static_cast<char*>(first.iov_base) + bytes;
      first.iov_len -= bytes;
    }
  }

  // Copies the first of `bytes` there; returns how many had a place.
  size_t fill(std::string_view bytes) noexcept {
    size_t copied = 0;
    while (copied < bytes.size() && !segments_.empty()) {
      const iovec& first = segments_.front();
      const size_t piece = std::min(first.iov_len, bytes.size() - copied);
      std::memcpy(first.iov_base, bytes.data() + copied, piece);
      copied += piece;
      advance(piece);
    }
    return copied;
  }

 private:
  std::span<iovec> segments_;
};

}  // namespace lumen::service
