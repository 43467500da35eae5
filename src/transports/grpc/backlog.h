// Backlog: the bytes of a stream that came while no request was free to take them. No more come
// than the stream's window: the client hears of none of them before they are taken.
// Threads: one. Memory: a place of the transport's, which counts against its budgets while it has
// bytes. Errors: append() says that one is used up.
#pragma once

#include <lumen/memory/memory_budget.h>
#include <lumen/transports/common/thread_memory.h>

#include <span>
#include <string_view>

namespace lumen::grpc {

class Backlog {
 public:
  struct Budgets {
    MemoryBudget& backlogs;  // so that they leave memory for the requests that they wait for
    transports::ThreadMemory& thread;
  };
  // `room`: as many bytes as can come, page-aligned. Once, before serving.
  void use(std::span<char> room, const Budgets& budgets) noexcept {
    room_ = room;
    backlogs_ = &budgets.backlogs;
    thread_ = &budgets.thread;
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
  [[nodiscard]] bool take_room() noexcept;

  std::span<char> room_;
  MemoryBudget* backlogs_ = nullptr;
  transports::ThreadMemory* thread_ = nullptr;
  size_t begin_ = 0;
  size_t end_ = 0;
};

}  // namespace lumen::grpc
