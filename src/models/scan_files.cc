// See the header.
#include "models/scan_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

namespace lumen::models {

Kind kind_at(int directory, const char* name) noexcept {
  struct stat info;
  if (::fstatat(directory, name, &info, 0) != 0) {
    const bool is_link = ::fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
    return is_link ? Kind::kDeadLink : Kind::kAbsent;
  }
  if (S_ISDIR(info.st_mode)) return Kind::kDirectory;
  return S_ISREG(info.st_mode) ? Kind::kFile : Kind::kOther;
}

UniqueFd open_directory(int parent, const char* name) noexcept {
  return UniqueFd(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

Result<std::vector<Entry>> list(int directory, const std::filesystem::path& shown) {
  // fdopendir takes the descriptor over, so it gets one of its own.
  UniqueFd own = open_directory(directory, ".");
  DIR* stream = own.valid() ? ::fdopendir(own.get()) : nullptr;
  if (stream == nullptr) {
    return Status::from_errno(errno, "reading directory %s", shown.c_str());
  }
  (void)own.release();
  const std::unique_ptr<DIR, int (*)(DIR*)> close_at_end(stream, ::closedir);
  std::vector<Entry> entries;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name.starts_with('.')) continue;
    entries.push_back({std::string(name), kind_at(directory, entry->d_name)});
  }
  return entries;
}

Status check_links(const std::filesystem::path& path, const Bounds& bounds) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  if (error) {
    return Status::from_errno(error.value(), "%s is a symbolic link that leads nowhere",
                              path.c_str());
  }
  if (bounds.empty() || std::ranges::mismatch(bounds, real).in1 == bounds.end()) return {};
  return Status::error(Code::kUnavailable,
                       "%s is a symbolic link that leads out of the model repository, to %s; copy "
                       "or bind-mount it, or start the server with --follow-links on",
                       path.c_str(), real.c_str());
}

std::string stamp_of(int directory, const std::vector<Entry>& entries) {
  std::vector<std::string> stamps;
  for (const Entry& entry : entries) {
    struct stat info{};
    if (entry.kind != Kind::kFile || ::fstatat(directory, entry.name.c_str(), &info, 0) != 0) {
      continue;
    }
    const auto at = [](const timespec& time) {
      return std::to_string(time.tv_sec) + '.' + std::to_string(time.tv_nsec);
    };
    std::string stamp = entry.name;
    stamp.append(1, '\0').append(std::to_string(info.st_ino)).append(1, ' ');
    stamp.append(std::to_string(info.st_size)).append(1, ' ').append(at(info.st_mtim));
    stamps.push_back(stamp.append(1, ' ').append(at(info.st_ctim)).append(1, '\n'));
  }
  std::ranges::sort(stamps);
  std::string all;
  for (const std::string& stamp : stamps) all += stamp;
  return all;
}

Status check_file(int directory, const std::filesystem::path& path, const Bounds& bounds) {
  LUMEN_RETURN_IF_ERROR(check_links(path, bounds));
  const Kind kind = kind_at(directory, path.filename().c_str());
  if (kind != Kind::kFile) {
    return Status::error(Code::kUnavailable, "%s: wanted a regular file", path.c_str());
  }
  const UniqueFd file(::openat(directory, path.filename().c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return Status::from_errno(errno, "opening %s", path.c_str());
  struct stat info;
  if (::fstat(file.get(), &info) == 0 && info.st_size == 0) {
    return Status::error(Code::kUnavailable, "%s is empty; was the copy interrupted?",
                         path.c_str());
  }
  return {};
}

Result<std::optional<std::string>> read_small(int directory, const std::filesystem::path& path,
                                              size_t most_bytes, const Bounds& bounds) {
  const std::string name = path.filename();
  const Kind kind = kind_at(directory, name.c_str());
  if (kind == Kind::kAbsent) return std::optional<std::string>();
  LUMEN_RETURN_IF_ERROR(check_links(path, bounds));
  if (kind != Kind::kFile) {
    return Status::error(Code::kUnavailable, "%s: wanted a regular file", path.c_str());
  }
  const UniqueFd file(::openat(directory, name.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) return Status::from_errno(errno, "opening %s", path.c_str());
  std::string text(most_bytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, "reading %s", path.c_str());
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > most_bytes) {
    return Status::error(Code::kUnavailable, "%s is larger than %zu bytes", path.c_str(),
                         most_bytes);
  }
  text.resize(size);
  return std::optional<std::string>(std::move(text));
}

}  // namespace lumen::models
