// Making, locking, publishing and removing the file. See the header.
#include <lumen/telemetry/counters_file.h>

#include <lumen/telemetry/counter_region.h>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

namespace lumen::telemetry {
namespace {

constexpr size_t kKeptOfTheDead = 2;  // 1 to 3 MiB of memory each
constexpr mode_t kMode = 0640;        // its user writes, its group reads

Status taken(const std::string& path, const char* by_what) {
  return Status::error(
      Code::kAlreadyExists,
      "counters file %s: %s is there, and is left alone; give --stats another path", path.c_str(),
      by_what);
}

// A file of a server that is dead may be replaced; anything else is left alone.
Status make_way(const std::string& path) {
  const UniqueFd found(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!found.valid()) {
    if (errno == ENOENT) return {};
    return Status::from_errno(errno, "counters file %s: a file is there that can't be read",
                              path.c_str());
  }
  uint64_t magic = 0;
  if (::pread(found.get(), &magic, sizeof(magic), 0) != sizeof(magic) ||
      magic != RegionHead::kMagic) {
    return taken(path, "a file that is no counters file");
  }
  if (::flock(found.get(), LOCK_SH | LOCK_NB) != 0) return taken(path, "that of a live server");
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return Status::from_errno(errno, "counters file %s: removing a dead server's", path.c_str());
  }
  return {};
}

}  // namespace

std::string default_counters_path() {
  const std::string pid = std::to_string(::getpid());
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  // The XDG base directory specification: a path that is not absolute is to be ignored.
  if (folder != nullptr && folder[0] == '/') {
    return std::string(folder) + "/lumen-" + pid + ".counters";
  }
  return "/dev/shm/lumen-" + std::to_string(::geteuid()) + "-" + pid + ".counters";
}

void remove_old_counters_files(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> dead;
  // increment(), since ++ throws where a folder can't be read to its end.
  for (fs::directory_iterator at(fs::path(path).parent_path(), error);
       !error && at != fs::directory_iterator(); at.increment(error)) {
    const fs::directory_entry& entry = *at;
    const std::string name = entry.path().filename().string();
    struct stat found{};
    if (!name.starts_with("lumen-") || !name.ends_with(".counters") ||
        ::lstat(entry.path().c_str(), &found) != 0 || !S_ISREG(found.st_mode) ||
        found.st_uid != ::geteuid()) {
      continue;
    }
    const UniqueFd fd(::open(entry.path().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd.valid() || ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0) continue;
    std::error_code gone;
    const auto when = entry.last_write_time(gone);
    if (!gone) dead.emplace_back(when, entry.path());
  }
  std::ranges::sort(dead, std::greater());
  for (size_t i = kKeptOfTheDead; i < dead.size(); ++i) fs::remove(dead[i].second, error);
}

Result<std::unique_ptr<CountersFile>> CountersFile::create(std::string path, size_t bytes) {
  std::unique_ptr<CountersFile> file(new CountersFile(std::move(path)));  // alloc: at start
  LUMEN_RETURN_IF_ERROR(file->open(bytes));
  return file;
}

Status CountersFile::open(size_t bytes) {
  aside_ = path_ + ".new-" + std::to_string(::getpid());
  // Only a dead process of the same number can have left one.
  (void)::unlink(aside_.c_str());
  fd_ = UniqueFd(::open(aside_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kMode));
  if (!fd_.valid()) {
    const int error = errno;
    aside_.clear();
    return Status::from_errno(error,
                              "counters file %s: making it; wanted a folder of a tmpfs that can be "
                              "written (or --stats off)",
                              path_.c_str());
  }
  struct stat made{};
  struct statfs where{};
  if (::fchmod(fd_.get(), kMode) != 0 || ::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 ||
      ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0 || ::fstat(fd_.get(), &made) != 0 ||
      ::fstatfs(fd_.get(), &where) != 0) {
    return Status::from_errno(errno, "counters file %s: making it", path_.c_str());
  }
  device_ = made.st_dev;
  inode_ = made.st_ino;
  is_in_memory_ = where.f_type == TMPFS_MAGIC || where.f_type == RAMFS_MAGIC;
  Result<Mapping> mapped = Mapping::of_file(fd_.get(), bytes);
  if (!mapped.ok()) return mapped.status();
  memory_ = std::move(*mapped);
  guard_.emplace(memory_.bytes(), path_,
                 "it goes on with fresh memory that nobody else sees: restart it to have the file "
                 "again");
  return {};
}

Status CountersFile::allocate(size_t offset, size_t bytes) noexcept {
  const int error =
      ::posix_fallocate(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes));
  if (error == 0) return {};
  return Status::from_errno(
      error,
      "counters file %s: %zu bytes more; wanted room there, or --stats with a "
      "path on another tmpfs, or --stats off",
      path_.c_str(), bytes);
}

Status CountersFile::publish() {
  LUMEN_RETURN_IF_ERROR(make_way(path_));
  // Not over a file that another server has put there just now.
  if (::renameat2(AT_FDCWD, aside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno == EEXIST) return taken(path_, "another server's");
    // Some file systems lack the flag.
    if (errno != EINVAL || ::rename(aside_.c_str(), path_.c_str()) != 0) {
      return Status::from_errno(errno, "counters file %s: putting it there", path_.c_str());
    }
  }
  aside_.clear();
  return {};
}

bool CountersFile::is_ours(const std::string& path) const noexcept {
  struct stat found{};
  return ::lstat(path.c_str(), &found) == 0 && found.st_dev == device_ && found.st_ino == inode_;
}

CountersFile::~CountersFile() {
  for (const std::string& name : {path_, aside_}) {
    if (fd_.valid() && !name.empty() && is_ours(name)) (void)::unlink(name.c_str());
  }
}

}  // namespace lumen::telemetry
