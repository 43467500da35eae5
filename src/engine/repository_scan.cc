// Walks a repository by file descriptor, one path component at a time with O_NOFOLLOW: that is what
// openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS) would promise, on every kernel.
// Any thread; the heap. Errors: the Status of each version found.
#include "engine/repository_scan.h"

#include <lumen/base/limits.h>
#include <lumen/base/unique_fd.h>

#include "engine/model_config.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>

namespace lumen::engine {
namespace {

// Lumen's own config.json is under 1 KiB; the cap keeps a stray file from being read whole.
constexpr size_t kMaxConfigBytes = 64 * 1024;

enum class Kind : uint8_t { kAbsent, kFile, kDirectory, kLink, kOther };

struct Entry {
  std::string name;
  Kind kind;
};

Kind kind_at(int directory, const char* name) noexcept {
  struct stat info;
  if (::fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return Kind::kAbsent;
  if (S_ISLNK(info.st_mode)) return Kind::kLink;
  if (S_ISDIR(info.st_mode)) return Kind::kDirectory;
  return S_ISREG(info.st_mode) ? Kind::kFile : Kind::kOther;
}

UniqueFd open_directory(int parent, const char* name, int extra_flags) noexcept {
  return UniqueFd(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | extra_flags));
}

Result<std::vector<Entry>> list(int directory, const std::filesystem::path& shown) {
  // fdopendir takes the descriptor over, so it gets one of its own.
  UniqueFd own = open_directory(directory, ".", 0);
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

bool is_valid_name(std::string_view name) noexcept {
  const auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= limits::kMaxNameBytes && name != "." && name != ".." &&
         std::ranges::all_of(name, allowed);
}

bool is_digits(std::string_view text) noexcept {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// 0 for what is no version: signs, letters, 0 itself, leading zeros (01 and 1 would be two names of
// one version), more than 18 digits.
uint64_t version_number(std::string_view text) noexcept {
  if (!is_digits(text) || text.size() > 18 || text.front() == '0') return 0;
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// A name for lists and messages, whatever bytes the directory entry had.
std::string printable(std::string_view name) {
  std::string text(name.substr(0, limits::kMaxNameBytes));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

Status refused_link(const std::filesystem::path& path) noexcept {
  return Status::error(Code::kUnavailable,
                       "%s is a symbolic link, which a model repository must not contain; "
                       "copy or bind-mount what it points to",
                       path.c_str());
}

Status check_file(int directory, const std::filesystem::path& path) {
  const Kind kind = kind_at(directory, path.filename().c_str());
  if (kind == Kind::kLink) return refused_link(path);
  if (kind != Kind::kFile) {
    return Status::error(Code::kUnavailable, "%s: wanted a regular file", path.c_str());
  }
  const UniqueFd file(
      ::openat(directory, path.filename().c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return Status::from_errno(errno, "opening %s", path.c_str());
  struct stat info;
  if (::fstat(file.get(), &info) == 0 && info.st_size == 0) {
    return Status::error(Code::kUnavailable, "%s is empty; was the copy interrupted?",
                         path.c_str());
  }
  return {};
}

// Sets source.file, or says why there is none.
Status find_model_file(int model_directory, const std::filesystem::path& version_path,
                       ModelSource& source) {
  const UniqueFd directory =
      open_directory(model_directory, version_path.filename().c_str(), O_NOFOLLOW);
  if (!directory.valid()) return Status::from_errno(errno, "opening %s", version_path.c_str());
  const bool onnx = kind_at(directory.get(), "model.onnx") != Kind::kAbsent;
  const bool xml = kind_at(directory.get(), "model.xml") != Kind::kAbsent;
  if (onnx == xml) {
    return Status::error(Code::kUnavailable, "%s holds %s; wanted exactly one of them",
                         version_path.c_str(),
                         onnx ? "both model.onnx and model.xml" : "no model.onnx and no model.xml");
  }
  source.file = version_path / (onnx ? "model.onnx" : "model.xml");
  LUMEN_RETURN_IF_ERROR(check_file(directory.get(), source.file));
  // The weights of an IR; a model without weights has none.
  if (xml && kind_at(directory.get(), "model.bin") != Kind::kAbsent) {
    LUMEN_RETURN_IF_ERROR(check_file(directory.get(), version_path / "model.bin"));
  }
  return {};
}

Result<ModelOptions> read_config(int model_directory, const std::filesystem::path& path) {
  const Kind kind = kind_at(model_directory, "config.json");
  if (kind == Kind::kAbsent) return ModelOptions{};
  if (kind == Kind::kLink) return refused_link(path);
  if (kind != Kind::kFile) {
    return Status::error(Code::kUnavailable, "%s: wanted a regular file", path.c_str());
  }
  const UniqueFd file(
      ::openat(model_directory, "config.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) return Status::from_errno(errno, "opening %s", path.c_str());
  std::string text(kMaxConfigBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, "reading %s", path.c_str());
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kMaxConfigBytes) {
    return Status::error(Code::kUnavailable, "%s is larger than %zu bytes", path.c_str(),
                         kMaxConfigBytes);
  }
  return parse_model_config(std::string_view(text).substr(0, size), path.string());
}

bool holds_model_file(int parent, const std::string& name) noexcept {
  const UniqueFd directory = open_directory(parent, name.c_str(), O_NOFOLLOW);
  return directory.valid() && (kind_at(directory.get(), "model.onnx") != Kind::kAbsent ||
                               kind_at(directory.get(), "model.xml") != Kind::kAbsent);
}

Status check_version(int model_directory, const std::filesystem::path& path, const Entry& entry,
                     FoundModel& found) {
  if (!is_valid_name(path.parent_path().filename().string())) {
    return Status::error(Code::kUnavailable,
                         "model name '%s': wanted 1 to %zu of A-Z a-z 0-9 . _ -; rename the "
                         "directory",
                         found.source.name.c_str(), limits::kMaxNameBytes);
  }
  if (entry.kind == Kind::kLink) return refused_link(path);
  if (found.version_number == 0) {
    return Status::error(Code::kUnavailable,
                         "version '%s' in %s: wanted a whole number from 1, without leading zeros; "
                         "rename the directory",
                         found.source.version.c_str(), path.parent_path().c_str());
  }
  return find_model_file(model_directory, path, found.source);
}

void scan_model(int root, const std::filesystem::path& path, std::vector<FoundModel>& models) {
  const std::string name = path.filename().string();
  FoundModel unversioned;
  unversioned.source.name = printable(name);
  const UniqueFd directory = open_directory(root, name.c_str(), O_NOFOLLOW);
  Result<std::vector<Entry>> entries = directory.valid()
                                           ? list(directory.get(), path)
                                           : Status::from_errno(errno, "opening %s", path.c_str());
  if (!entries.ok()) {
    unversioned.status = entries.status();
    models.push_back(std::move(unversioned));
    return;
  }
  const Result<ModelOptions> options = read_config(directory.get(), path / "config.json");
  for (const Entry& entry : *entries) {
    const bool may_be_directory = entry.kind == Kind::kDirectory || entry.kind == Kind::kLink;
    const bool is_version = may_be_directory && (is_digits(entry.name) ||
                                                 holds_model_file(directory.get(), entry.name));
    if (!is_version) continue;
    FoundModel found = unversioned;
    found.source.version = printable(entry.name);
    found.version_number = version_number(entry.name);
    found.status = check_version(directory.get(), path / entry.name, entry, found);
    if (options.ok()) found.source.options = *options;
    if (found.status.ok()) found.status = options.status();
    models.push_back(std::move(found));
  }
}

}  // namespace

Result<std::vector<FoundModel>> scan_repository(const std::filesystem::path& directory) {
  const UniqueFd root = open_directory(AT_FDCWD, directory.c_str(), 0);
  if (!root.valid()) {
    return Status::from_errno(errno,
                              "opening model repository %s (wanted a readable directory of "
                              "<model>/<version>/model.onnx or model.xml)",
                              directory.c_str());
  }
  Result<std::vector<Entry>> entries = list(root.get(), directory);
  if (!entries.ok()) return entries.status();
  std::vector<FoundModel> models;
  for (const Entry& entry : *entries) {
    const std::filesystem::path path = directory / entry.name;
    std::error_code error;
    if (entry.kind == Kind::kDirectory) {
      scan_model(root.get(), path, models);
    } else if (entry.kind == Kind::kLink && std::filesystem::is_directory(path, error)) {
      FoundModel found;
      found.source.name = printable(entry.name);
      found.status = refused_link(path);
      models.push_back(std::move(found));
    }
  }
  std::ranges::sort(models, [](const FoundModel& a, const FoundModel& b) {
    return std::tie(a.source.name, a.version_number, a.source.version) <
           std::tie(b.source.name, b.version_number, b.source.version);
  });
  return models;
}

}  // namespace lumen::engine
