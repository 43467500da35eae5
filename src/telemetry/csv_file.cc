// Opening, appending to and rotating a file of lines. Threads: one at a time.
// Memory: open() the heap, for paths and one read of the file's end; later none. Errors: as the
// header says.
#include "telemetry/csv_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>

namespace lumen::telemetry::detail {
namespace {

constexpr mode_t kMode = 0640;  // client's ids are in it: nobody else's business

struct Written {
  size_t bytes = 0;
  int error = 0;
};

Written write_all(int fd, std::string_view text) noexcept {
  Written written;
  while (written.bytes < text.size()) {
    const ssize_t n = ::write(fd, text.data() + written.bytes, text.size() - written.bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      written.error = n < 0 ? errno : EIO;
      return written;
    }
    written.bytes += static_cast<size_t>(n);
  }
  return written;
}

// Up to `bytes` from `offset` on; shorter at an error, which the next write shows again.
std::string read_at(const std::filesystem::path& path, uint64_t offset, size_t bytes) {
  std::string text(bytes, '\0');
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  size_t have = 0;
  while (fd.valid() && have < bytes) {
    const ssize_t n =
        ::pread(fd.get(), text.data() + have, bytes - have, static_cast<off_t>(offset + have));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    have += static_cast<size_t>(n);
  }
  text.resize(have);
  return text;
}

}  // namespace

Result<CsvFile> CsvFile::open(const std::filesystem::path& path, std::string_view header,
                              uint64_t max_bytes, uint32_t keep) {
  CsvFile file;
  file.fresh_path_ = path.string() + ".new";
  file.paths_.push_back(path.string());
  for (uint32_t i = 1; i <= keep; ++i) {
    file.paths_.push_back(path.string() + "." + std::to_string(i));
  }
  file.header_ = std::string(header) + "\n";
  file.max_bytes_ = file.rotate_above_ = max_bytes;
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) {
    return Status::from_errno(error.value(), "telemetry CSV %s: can't create its folder",
                              path.c_str());
  }
  // O_NONBLOCK for the open() only: a pipe without a reader is then an error instead of a wait.
  file.fd_ = UniqueFd(::open(
      path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, kMode));
  struct stat info{};
  if (!file.fd_.valid() || ::fstat(file.fd_.get(), &info) != 0 ||
      ::fcntl(file.fd_.get(), F_SETFL, O_APPEND) != 0) {
    return Status::from_errno(errno, "telemetry CSV %s: can't open it for writing%s", path.c_str(),
                              errno == ENXIO ? " (a pipe that nobody reads)" : "");
  }
  file.is_regular_ = S_ISREG(info.st_mode);
  file.header_due_ = true;
  if (file.is_regular_) {
    LUMEN_RETURN_IF_ERROR(file.lock());
    // Anew, for the last owner of the lock may have written since.
    if (::fstat(file.fd_.get(), &info) == 0 && info.st_size > 0) {
      LUMEN_RETURN_IF_ERROR(file.adopt(static_cast<uint64_t>(info.st_size)));
    }
  } else {
    file.rotate_above_ = 0;
  }
  return file;
}

Status CsvFile::lock() const noexcept {
  // Other errors than "held" are file systems without locks: then the user has to keep two servers
  // apart.
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return {};
  return Status::error(
      Code::kAlreadyExists,
      "telemetry CSV %s: another server writes it; give this one a file of its own", path());
}

// Columns are only ever added at the end: the header of an older server is the beginning of ours.
// Half of it tells such a file from another program's that begins alike.
bool CsvFile::is_older_header(std::string_view line) const noexcept {
  return line.size() >= header_.size() / 2 && line.size() < header_.size() &&
         header_.starts_with(line) && header_[line.size()] == ',';
}

// Goes on in a file that has `bytes`: under the same header, behind its last whole line. The file
// of an older server is rotated, where the old ones are kept.
Status CsvFile::adopt(uint64_t bytes) {
  const std::string first = read_at(paths_.front(), 0, header_.size());
  if (first != header_) {
    const std::string_view line = std::string_view(first).substr(0, first.find('\n'));
    if (is_older_header(line) && paths_.size() > 1) {
      header_due_ = false;
      const Status moved = move_up();
      return header_due_ ? Status() : moved;  // due: the file is new, and the disk full
    }
    return Status::error(Code::kInvalidArgument,
                         "telemetry CSV %s: its first line is \"%.*s\", not the header of these "
                         "records; move it away or name another file",
                         path(), static_cast<int>(std::min<size_t>(line.size(), 60)), line.data());
  }
  header_due_ = false;
  size_ = bytes;
  // A server that died while it wrote (or a full disk) leaves half a line.
  constexpr uint64_t kTail = 64 * 1024;
  const uint64_t begin = bytes - std::min(bytes, kTail);
  const std::string tail = read_at(paths_.front(), begin, static_cast<size_t>(bytes - begin));
  const size_t end = tail.rfind('\n');
  if (end != std::string::npos && end + 1 != tail.size()) cut_to(begin + end + 1);
  return {};
}

void CsvFile::cut_to(uint64_t bytes) noexcept {
  if (is_regular_ && ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) return;
  size_ = bytes;
}

Status CsvFile::write_header() noexcept {
  const Written written = write_all(fd_.get(), header_);
  if (written.error != 0) {
    if (written.bytes != 0) cut_to(size_);
    return Status::from_errno(written.error, "telemetry CSV %s: can't write its header", path());
  }
  size_ += header_.size();
  header_due_ = false;
  return {};
}

Status CsvFile::reopen() noexcept {
  struct stat mine{};
  struct stat named{};
  const bool is_same = ::fstat(fd_.get(), &mine) == 0 && ::stat(path(), &named) == 0 &&
                       mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
  if (is_same || !is_regular_) return {};
  try {
    const std::string_view header(header_.data(), header_.size() - 1);
    const auto keep = static_cast<uint32_t>(paths_.size() - 1);
    Result<CsvFile> now = open(paths_.front(), header, max_bytes_, keep);
    if (!now.ok()) return now.status();
    *this = std::move(*now);
  } catch (const std::exception& e) {
    return Status::error(Code::kInternal, "telemetry CSV %s: can't open it anew: %s", path(),
                         e.what());
  }
  return header_due_ ? write_header() : Status();
}

Status CsvFile::notice_changes() noexcept {
  struct stat info{};
  if (!is_regular_ || ::fstat(fd_.get(), &info) != 0) return {};
  if (info.st_nlink == 0) return reopen();
  const auto bytes = static_cast<uint64_t>(info.st_size);
  if (bytes >= size_) return {};
  // Less than a header is the rest of one.
  cut_to(bytes < header_.size() ? 0 : bytes);
  header_due_ = size_ == 0;
  return {};
}

CsvFile::Appended CsvFile::append(std::string_view text, std::span<const uint32_t> ends) noexcept {
  Appended appended;
  appended.status = notice_changes();
  if (appended.status.ok() && header_due_) appended.status = write_header();
  if (!appended.status.ok() || text.empty()) return appended;
  const Written written = write_all(fd_.get(), text);
  const auto cut = std::upper_bound(ends.begin(), ends.end(), written.bytes);
  appended.lines = static_cast<size_t>(cut - ends.begin());
  const uint64_t whole = appended.lines == 0 ? 0 : ends[appended.lines - 1];
  if (written.error != 0) {
    // Half a line would make the next one part of it.
    if (written.bytes != whole) cut_to(size_ + whole);
    appended.status = Status::from_errno(written.error, "telemetry CSV %s: can't write", path());
  }
  size_ = size_ + whole;
  return appended;
}

Status CsvFile::rotate() noexcept {
  Status status = move_up();
  // Not again at the next line: after as much as would have filled a file.
  rotate_above_ = status.ok() ? max_bytes_ : size_ + max_bytes_;
  return status;
}

// The new file is there before an old one moves: if a step fails, there is one to write to.
Status CsvFile::move_up() noexcept {
  UniqueFd fresh(
      ::open(fresh_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, kMode));
  if (!fresh.valid()) {
    return Status::from_errno(errno, "telemetry CSV %s: can't rotate it, no new file", path());
  }
  for (size_t i = paths_.size() - 1; i > 0; --i) {
    if (::rename(paths_[i - 1].c_str(), paths_[i].c_str()) != 0 && errno != ENOENT) {
      const int error = errno;
      (void)::unlink(fresh_path_.c_str());
      return Status::from_errno(error, "telemetry CSV %s: can't rename it to %s", path(),
                                paths_[i].c_str());
    }
  }
  if (::rename(fresh_path_.c_str(), path()) != 0) {
    return Status::from_errno(errno, "telemetry CSV %s: can't put a new file in its place", path());
  }
  fd_ = std::move(fresh);
  size_ = 0;
  header_due_ = true;
  (void)lock();
  return write_header();
}

}  // namespace lumen::telemetry::detail
