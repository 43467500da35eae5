// CountersFile: the memory of the counters as a file that other processes read
// (docs/formats/counters.md).
//
// It is made under another name, filled, and renamed by publish(), so that a reader that opens its
// path sees a whole one or none. A lock on it (flock) tells readers that its server lives. Its
// pages are allocated before they are written, since a store into a page that a full tmpfs can't
// give ends the process.
// Threads: the control plane. Memory: the mapping and a path. Errors: a Status with the path and
// the fix.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>
#include <lumen/memory/mapping.h>
#include <lumen/memory/truncation_guard.h>

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace lumen::telemetry {

// Where the file of this process belongs if nobody says: $XDG_RUNTIME_DIR/lumen-PID.counters, or
// /dev/shm/lumen-UID-PID.counters where that is not set or not absolute.
[[nodiscard]] std::string default_counters_path();

// The files of this user's dead servers in that folder, but for the newest: the last one to die may
// still be asked (lumen top PATH), and restarts do not fill a tmpfs.
void remove_old_counters_files(const std::string& path);

class CountersFile {
 public:
  // `bytes` of zeroes, of which none is allocated yet.
  [[nodiscard]] static Result<std::unique_ptr<CountersFile>> create(std::string path, size_t bytes);
  // Removes the file, if it is still the one that it made.
  ~CountersFile();
  CountersFile(const CountersFile&) = delete;
  CountersFile& operator=(const CountersFile&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return memory_.data(); }
  [[nodiscard]] size_t size() const noexcept { return memory_.size(); }
  // Takes the pages of these bytes from the file system now.
  [[nodiscard]] Status allocate(size_t offset, size_t bytes) noexcept;
  // From here on readers find it. kAlreadyExists: a live server's file is there, or one that is
  // none of ours; it is left alone.
  [[nodiscard]] Status publish();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  // Elsewhere the kernel writes pages back to a disk, and a thread that counts may have to wait for
  // it.
  [[nodiscard]] bool is_in_memory() const noexcept { return is_in_memory_; }
  // A process has truncated it: later counts are not in it.
  [[nodiscard]] bool was_truncated() const noexcept { return guard_ && guard_->pages_lost() > 0; }

 private:
  explicit CountersFile(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] Status open(size_t bytes);
  [[nodiscard]] bool is_ours(const std::string& path) const noexcept;

  std::string path_;
  std::string aside_;  // its name until publish()
  UniqueFd fd_;        // holds the lock
  dev_t device_ = 0;
  ino_t inode_ = 0;
  bool is_in_memory_ = false;
  Mapping memory_;
  std::optional<TruncationGuard> guard_;  // goes before the mapping
};

}  // namespace lumen::telemetry
