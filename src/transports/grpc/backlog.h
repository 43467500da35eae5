// Backlog: the bytes of a stream that came while no request was free to take them. No more come
// than the stream's window: the client hears of none of them before they are taken.
// Threads: one. Memory: a place of the transport's, which counts against its budget while bytes are
// in it. Errors: append() says that the budget is used up.
#pragma once

#include <lumen/memory/memory_budget.h>

#include <span>
#include <string_view>

namespace lumen::grpc {

class Backlog {
 public:
  // `room`: as many bytes as can come, page-aligned. Once, before serving.
  void use(std::span<char> room, MemoryBudget& budget) noexcept {
    room_ = room;
    budget_ = &budget;
  }

  [[nodiscard]] bool append(std::string_view bytes) noexcept;
  [[nodiscard]] std::string_view bytes() const noexcept {
    return {room_.data() + begin_, end_ - begin_};
  }
  [[nodiscard]] bool is_empty() const noexcept { return begin_ == end_; }
  // The first `count` have been taken.
  void drop(size_t count) noexcept;
  void clear() noexcept { drop(end_ - begin_); }

 private:
  std::span<char> room_;
  MemoryBudget* budget_ = nullptr;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace lumen::grpc
