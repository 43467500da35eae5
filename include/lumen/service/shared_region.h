// SharedRegion: memory that a client shares with the server: a mapped part of a POSIX shared memory
// object. Its client may write there at any time, and may make the object shorter: then the server
// reads zeros instead of SIGBUS, and was_lost() says so.
// Threads: open() on the control plane; everything else by any. Memory: a mapping; the heap at
// open(). Errors: open(): key, got, wanted and the fix.
#pragma once

#include <lumen/base/result.h>
#include <lumen/memory/truncation_guard.h>

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lumen::service {

class SharedRegion {
 public:
  struct Source {
    std::string name;  // by which requests mean it
    std::string key;   // of shm_open(), with or without the slash
    uint64_t offset = 0;
    uint64_t byte_size = 0;
  };

  // `user`: the client's, if it is known, whose object it must be (root's may be another's); else
  // the server's own counts.
  [[nodiscard]] static Result<std::shared_ptr<SharedRegion>> open(Source source,
                                                                  std::optional<uid_t> user);
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return source_.name; }
  [[nodiscard]] const Source& source() const noexcept { return source_; }
  // Whose requests may use it.
  [[nodiscard]] uid_t user() const noexcept { return user_; }
  // `bytes` from `offset` on. Errors: they are not all within the region, or it was lost.
  [[nodiscard]] Result<std::span<std::byte>> part(uint64_t offset, uint64_t bytes) const noexcept;
  [[nodiscard]] bool was_lost() const noexcept { return guard_->pages_lost() > 0; }
  // Why its bytes are not to be used.
  [[nodiscard]] Status lost() const noexcept;

  // Its place in tables; set before another thread sees it.
  [[nodiscard]] uint32_t index() const noexcept { return index_; }
  void set_index(uint32_t index) noexcept { index_ = index; }

 private:
  SharedRegion(Source source, uid_t user, std::span<std::byte> mapped, std::span<std::byte> bytes);

  const Source source_;
  const uid_t user_;
  const std::span<std::byte> mapped_;  // whole pages
  const std::span<std::byte> bytes_;
  std::optional<TruncationGuard> guard_;  // goes before the mapping
  uint32_t index_ = 0;
};

}  // namespace lumen::service
