// See the header.
#include "transports/grpc/backlog.h"

#include <lumen/base/check.h>

#include <sys/mman.h>

#include <cstring>

namespace lumen::grpc {

bool Backlog::take_room() noexcept {
  const size_t bytes = room_.size();
  if (!backlogs_->try_take(bytes)) return false;
  if (thread_->take([&]() noexcept { return thread_->budget().try_take(bytes); })) return true;
  backlogs_->give_back(bytes);
  return false;
}

bool Backlog::append(std::string_view bytes) noexcept {
  if (bytes.empty()) return true;
  if (is_empty() && !take_room()) return false;
  if (bytes.size() > room_.size() - end_) {
    std::memmove(room_.data(), room_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  LUMEN_CHECK(bytes.size() <= room_.size() - end_);  // the session ends a client that sends more
  end_ += bytes.copy(room_.data() + end_, bytes.size());
  return true;
}

void Backlog::drop(size_t count) noexcept {
  if (is_empty()) return;
  begin_ += count;
  if (!is_empty()) return;
  begin_ = end_ = 0;
  (void)::madvise(room_.data(), room_.size(), MADV_DONTNEED);
  backlogs_->give_back(room_.size());
  thread_->budget().give_back(room_.size());
  thread_->on_freed();
}

}  // namespace lumen::grpc
