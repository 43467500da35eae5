// CsvFile: a file of whole lines under one header, rotated by size: PATH to PATH.1, that to PATH.2.
// Threads: one at a time. Memory: the heap at open(), none later.
// Errors: open() with a Status; append() tells how many lines got into the file, and why no more.
//
// A regular file is locked (flock) while it is open: a second process that appends to it would
// rotate it away, and cutting off half a line after a full disk would cut the other's.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::telemetry::detail {

class CsvFile {
 public:
  // `path` is absolute. A header that the disk doesn't take yet is no error: a full disk keeps no
  // server from starting. It is due before the first line then.
  [[nodiscard]] static Result<CsvFile> open(const std::filesystem::path& path,
                                            std::string_view header, uint64_t max_bytes,
                                            uint32_t keep);

  struct Appended {
    size_t lines = 0;
    Status status;  // not ok: the rest isn't in the file
  };
  // Whole lines; `ends` is where each of them ends in `text`. A file that was removed is made anew,
  // and one that was cut to nothing (logrotate's copytruncate) has its header again.
  [[nodiscard]] Appended append(std::string_view text, std::span<const uint32_t> ends) noexcept;

  // Whether a line of `line_bytes`, behind `pending_bytes` of others, wants a new file.
  [[nodiscard]] bool is_full_for(uint64_t pending_bytes, uint64_t line_bytes) const noexcept {
    const uint64_t before = std::max<uint64_t>(size_, header_.size()) + pending_bytes;
    return rotate_above_ != 0 && before > header_.size() && before + line_bytes > rotate_above_;
  }
  // Not ok: nothing was moved, or not everything; lines go on into the file at hand.
  [[nodiscard]] Status rotate() noexcept;
  // Goes on in the file that has the name now, as after logrotate has moved this one away; it is
  // made where there is none. Not ok: lines go on into the file at hand.
  [[nodiscard]] Status reopen() noexcept;
  [[nodiscard]] bool is_regular() const noexcept { return is_regular_; }

 private:
  CsvFile() = default;
  [[nodiscard]] Status lock() const noexcept;
  [[nodiscard]] Status adopt(uint64_t bytes);
  [[nodiscard]] bool is_older_header(std::string_view line) const noexcept;
  void cut_to(uint64_t bytes) noexcept;
  [[nodiscard]] Status write_header() noexcept;
  [[nodiscard]] Status move_up() noexcept;
  [[nodiscard]] Status notice_changes() noexcept;

  [[nodiscard]] const char* path() const noexcept { return paths_.front().c_str(); }

  std::vector<std::string> paths_;  // PATH, PATH.1, … PATH.<keep>
  std::string fresh_path_;          // the next PATH, after a rotation
  std::string header_;              // with its LF
  uint64_t max_bytes_ = 0;
  uint64_t rotate_above_ = 0;  // 0: never
  UniqueFd fd_;
  bool is_regular_ = false;
  bool header_due_ = false;
  uint64_t size_ = 0;  // of whole lines, so far as it is known: a pipe's are counted
};

}  // namespace lumen::telemetry::detail
