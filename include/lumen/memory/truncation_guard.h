// TruncationGuard: a process that maps a file which others may truncate loses the file's content,
// not its life.
//
// A store to a page behind the end of a mapped file raises SIGBUS. The handler puts a fresh page
// there, private to this process, and reports it once on stderr; the store is then made again.
// Seals would forbid the truncation, but the kernel gives them to memfds alone, which have no path
// for readers to open.
// Threads: the constructor and destructor on the control plane; the handler on any thread, without
// a lock.
// Memory: none; kMax guards at once in a process. Errors: one guard too many guards nothing:
// is_active().
#pragma once

#include <lumen/base/limits.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen {

class TruncationGuard {
 public:
  // A process has one server, a test a few: the counters file of each, and its clients' memory.
  static constexpr size_t kMax = 16 + limits::kMaxSharedRegions;

  // `mapped`: whole pages, mapped until the guard is gone. For the message: `path`, cut if it is
  // long, and `then`, the consequence of the loss; it lives as long as the process.
  TruncationGuard(std::span<std::byte> mapped, std::string_view path,
                  std::string_view then) noexcept;
  ~TruncationGuard();
  TruncationGuard(const TruncationGuard&) = delete;
  TruncationGuard& operator=(const TruncationGuard&) = delete;

  [[nodiscard]] bool is_active() const noexcept { return index_ < kMax; }
  // Pages that were replaced so far.
  [[nodiscard]] uint64_t pages_lost() const noexcept;

 private:
  size_t index_ = kMax;
};

}  // namespace lumen
