// ReceiveBuffer: a connection's received bytes that are not taken yet, in order: a head, the part
// of its body that came along, the requests behind it.
// Threads: one. Memory: the caller's. Errors: none; free_space() bounds what may be added.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace lumen::http {

class ReceiveBuffer {
 public:
  ReceiveBuffer() noexcept = default;
  explicit ReceiveBuffer(std::span<char> memory) noexcept : memory_(memory) {}

  [[nodiscard]] std::string_view unread() const noexcept {
    return {memory_.data() + begin_, end_ - begin_};
  }
  void take(size_t bytes) noexcept { begin_ += bytes; }

  [[nodiscard]] std::span<char> free_space() const noexcept { return memory_.subspan(end_); }
  // The same, for a receive.
  [[nodiscard]] std::span<iovec> wanted() noexcept {
    segment_ = {free_space().data(), free_space().size()};
    return {&segment_, 1};
  }
  // They lie in free_space().
  void add(size_t bytes) noexcept { end_ += bytes; }
  void append(std::string_view bytes) noexcept {
    std::memcpy(free_space().data(), bytes.data(), bytes.size());
    add(bytes.size());
  }

  // Whether `bytes`, counted from the first unread one, fit without a move.
  [[nodiscard]] bool fits(size_t bytes) const noexcept { return bytes <= memory_.size() - begin_; }
  // Moves unread bytes to the front, so that as much as possible fits.
  void make_room() noexcept {
    if (begin_ == 0) return;
    std::memmove(memory_.data(), memory_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  void clear() noexcept { begin_ = end_ = 0; }

 private:
  std::span<char> memory_;
  size_t begin_ = 0;  // bytes [begin_, end_) are unread
  size_t end_ = 0;
  iovec segment_{};
};

}  // namespace lumen::http
