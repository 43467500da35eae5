// See the header. A file: its head, the identity, the compiled bytes.
#include <lumen/models/compiled_cache.h>

#include <lumen/base/unique_fd.h>

#include "models/cache_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace lumen::models {
namespace {

constexpr std::string_view kEnding = ".blob";

struct Head {
  std::array<char, 8> magic{'L', 'U', 'M', 'E', 'N', 'C', 'M', '1'};
  uint64_t identity_bytes = 0;
  uint64_t compiled_bytes = 0;
  uint64_t checksum = 0;  // of both
};
// Longer ones are damage: an identity has a path and a few words.
constexpr uint64_t kMostIdentityBytes = 16 * 1024;

// Against damage by disks and crashes; the folder is the user's alone.
uint64_t checksum_of(std::string_view bytes, uint64_t sum) noexcept {
  constexpr uint64_t kFactor = 0x9E37'79B9'7F4A'7C15u;  // 2^64 by the golden ratio, odd
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof(word));
    sum = std::rotl(sum ^ word, 29) * kFactor;
    bytes.remove_prefix(sizeof(word));
  }
  for (const char c : bytes) sum = std::rotl(sum ^ static_cast<uint8_t>(c), 29) * kFactor;
  return sum;
}

uint64_t checksum_of(std::string_view identity, std::string_view compiled) noexcept {
  return checksum_of(compiled, checksum_of(identity, identity.size() + 1));
}

bool read_all(int fd, void* place, size_t bytes) noexcept {
  auto* at = static_cast<char*>(place);
  while (bytes > 0) {
    const ssize_t got = ::read(fd, at, bytes);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int fd, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd, bytes.data(), bytes.size());
    if (done <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(done));
  }
  return true;
}

// Bytes that another user could have written are not taken: a backend trusts them.
bool is_mine(const struct stat& about) noexcept {
  return about.st_uid == ::geteuid() && (about.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

std::filesystem::path default_compiled_folder() {
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / "compiled";
}

std::filesystem::path CompiledCache::path_of(std::string_view identity) const {
  std::array<char, 17> name{};
  std::snprintf(name.data(), name.size(), "%016llx",
                static_cast<unsigned long long>(checksum_of(identity, {})));
  return folder_ / (std::string(name.data()) + std::string(kEnding));
}

bool CompiledCache::is_ours() const {
  struct stat about{};
  return ::lstat(folder_.c_str(), &about) == 0 && S_ISDIR(about.st_mode) && is_mine(about);
}

std::optional<std::string> CompiledCache::find(std::string_view identity) const {
  if (folder_.empty() || !is_ours()) return std::nullopt;
  const UniqueFd fd(::open(path_of(identity).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat about{};
  if (!fd.valid() || ::fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode) || !is_mine(about)) {
    return std::nullopt;
  }
  Head head;
  if (!read_all(fd.get(), &head, sizeof(head))) return std::nullopt;
  const auto file_bytes = static_cast<uint64_t>(about.st_size);
  const bool is_whole = head.magic == Head().magic && head.identity_bytes <= kMostIdentityBytes &&
                        head.compiled_bytes <= file_bytes &&
                        sizeof(head) + head.identity_bytes + head.compiled_bytes == file_bytes;
  if (!is_whole) return std::nullopt;
  std::string found(head.identity_bytes, '\0');
  if (!read_all(fd.get(), found.data(), found.size()) || found != identity) return std::nullopt;
  std::string compiled(head.compiled_bytes, '\0');
  if (!read_all(fd.get(), compiled.data(), compiled.size())) return std::nullopt;
  if (checksum_of(identity, compiled) != head.checksum) return std::nullopt;
  (void)::futimens(fd.get(), nullptr);  // used now; where it fails it only goes sooner
  return compiled;
}

void CompiledCache::put(std::string_view identity, std::string_view compiled) {
  const uint64_t bytes = sizeof(Head) + identity.size() + compiled.size();
  if (folder_.empty() || identity.size() > kMostIdentityBytes || bytes > most_bytes_) return;
  const std::lock_guard lock(writing_);
  std::error_code error;
  std::filesystem::create_directories(folder_.parent_path(), error);
  (void)::mkdir(folder_.c_str(), 0700);
  if (!is_ours()) return;
  make_room(bytes);
  const std::filesystem::path path = path_of(identity);
  // Renamed into place, so that a reader sees a whole file or none.
  const std::string written = path.string() + "." + std::to_string(::getpid());
  const UniqueFd fd(
      ::open(written.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return;
  const Head head{.identity_bytes = identity.size(),
                  .compiled_bytes = compiled.size(),
                  .checksum = checksum_of(identity, compiled)};
  const std::string_view head_bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  const bool is_written = write_all(fd.get(), head_bytes) && write_all(fd.get(), identity) &&
                          write_all(fd.get(), compiled);
  if (!is_written || ::rename(written.c_str(), path.c_str()) != 0) ::unlink(written.c_str());
}

void CompiledCache::remove(std::string_view identity) noexcept {
  ::unlink(path_of(identity).c_str());
}

struct CompiledCache::File {
  std::filesystem::file_time_type used;
  uint64_t bytes;
  std::filesystem::path path;
};

std::vector<CompiledCache::File> CompiledCache::all_files() const {
  std::vector<File> all;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder_, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    const uint64_t size = at->file_size(gone);
    const auto used = at->last_write_time(gone);
    if (!gone) all.push_back({used, size, at->path()});  // else another process has removed it
  }
  return all;
}

// The folder is read once, and again when it seems to be full: other processes write there, too.
// Files that were left half-written by a process that ended are among those that go.
void CompiledCache::make_room(uint64_t bytes) {
  if (bytes_ && *bytes_ + bytes <= most_bytes_) {
    *bytes_ += bytes;
    return;
  }
  std::vector<File> all = all_files();
  uint64_t total = bytes;
  for (const File& one : all) total += one.bytes;
  std::ranges::sort(all, {}, &File::used);
  for (const File& one : all) {
    if (total <= most_bytes_) break;
    ::unlink(one.path.c_str());
    total -= one.bytes;
  }
  bytes_ = total;
}

}  // namespace lumen::models
