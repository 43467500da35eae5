// See the header for threads, memory and errors.
#include <lumen/service/shared_region.h>

#include <lumen/base/limits.h>
#include <lumen/base/unique_fd.h>
#include <lumen/memory/mapping.h>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <utility>

namespace lumen::service {
namespace {

using ull = unsigned long long;

// Objects of servers themselves; none is a client's.
constexpr std::string_view kReserved = "lumen";

// A client's text in a message, cut to a length that fits there, without control characters.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, limits::kMaxNameBytes));
  std::ranges::replace_if(out, [](char c) { return c < ' ' || c == 0x7f; }, '?');
  return out;
}

// The object's name in its file system.
Result<std::string> object_of(std::string_view key) {
  std::string_view name = key;
  if (name.starts_with('/')) name.remove_prefix(1);
  const bool is_plain = !name.empty() && name.size() <= NAME_MAX && name != "." && name != ".." &&
                        name.find('/') == name.npos && name.find('\0') == name.npos;
  if (!is_plain) {
    return Status::error(Code::kInvalidArgument,
                         "key '%s': wanted the name of a POSIX shared memory object, 1 to %d bytes "
                         "without a slash but the first",
                         shown(key).c_str(), NAME_MAX);
  }
  if (name.starts_with(kReserved)) {
    return Status::error(Code::kForbidden,
                         "key '%s': names that begin with 'lumen' are the server's own; choose "
                         "another",
                         shown(key).c_str());
  }
  return std::string(name);
}

// That the object is memory of that user, and long enough.
Status check_object(int fd, const SharedRegion::Source& source, std::optional<uid_t> user) {
  struct stat info{};
  struct statfs system{};
  if (::fstat(fd, &info) != 0 || ::fstatfs(fd, &system) != 0) {
    return Status::from_errno(errno, "key '%s'", shown(source.key).c_str());
  }
  if (!S_ISREG(info.st_mode) || system.f_type != TMPFS_MAGIC) {
    return Status::error(Code::kForbidden, "key '%s': it is no shared memory object",
                         shown(source.key).c_str());
  }
  const uid_t wanted = user.value_or(::geteuid());
  if (info.st_uid != wanted && user != uid_t{0}) {
    return Status::error(Code::kForbidden,
                         "key '%s': the object belongs to user %u, wanted user %u, %s",
                         shown(source.key).c_str(), info.st_uid, wanted,
                         user ? "the client's" : "the server's; over TCP no other is taken");
  }
  uint64_t end = 0;
  const auto size = static_cast<uint64_t>(info.st_size);
  if (__builtin_add_overflow(source.offset, source.byte_size, &end) || end > size) {
    return Status::error(Code::kInvalidArgument,
                         "region '%s': offset %llu and byte_size %llu end beyond the %llu bytes of "
                         "key '%s'",
                         shown(source.name).c_str(), ull{source.offset}, ull{source.byte_size},
                         ull{size}, shown(source.key).c_str());
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<SharedRegion>> SharedRegion::open(Source source, std::optional<uid_t> user) {
  if (source.byte_size == 0) {
    return Status::error(Code::kInvalidArgument, "region '%s': byte_size is 0; wanted 1 or more",
                         shown(source.name).c_str());
  }
  const Result<std::string> object = object_of(source.key);
  if (!object.ok()) return object.status();
  const UniqueFd fd(
      ::open(("/dev/shm/" + *object).c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) {
    return Status::error(Code::kInvalidArgument,
                         "key '%s': there is no such shared memory object; make it before it is "
                         "registered",
                         shown(source.key).c_str());
  }
  if (!fd.valid() && (errno == EACCES || errno == ELOOP)) {
    return Status::error(Code::kForbidden, "key '%s': it is a link, or the server may not open it",
                         shown(source.key).c_str());
  }
  if (!fd.valid()) return Status::from_errno(errno, "key '%s'", shown(source.key).c_str());
  LUMEN_RETURN_IF_ERROR(check_object(fd.get(), source, user));
  const uint64_t before = source.offset % kPageBytes;
  const size_t bytes = (before + source.byte_size + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(),
                          static_cast<off_t>(source.offset - before));
  if (at == MAP_FAILED) {
    return Status::from_errno(errno, "region '%s': mapping %llu bytes", shown(source.name).c_str(),
                              ull{source.byte_size});
  }
  const std::span<std::byte> mapped(static_cast<std::byte*>(at), bytes);
  const std::span<std::byte> own = mapped.subspan(before, source.byte_size);
  std::shared_ptr<SharedRegion> region(
      new SharedRegion(std::move(source), user.value_or(::geteuid()), mapped, own));
  if (region->guard_->is_active()) return region;
  return Status::error(Code::kResourceExhausted,
                       "region '%s': this process guards as many mappings as it can",
                       shown(region->name()).c_str());
}

SharedRegion::SharedRegion(Source source, uid_t user, std::span<std::byte> mapped,
                           std::span<std::byte> bytes)
    : source_(std::move(source)), user_(user), mapped_(mapped), bytes_(bytes) {
  guard_.emplace(mapped_, shown(source_.key), "requests that use it are refused from now on");
}

SharedRegion::~SharedRegion() {
  guard_.reset();
  (void)::munmap(mapped_.data(), mapped_.size());
}

Result<std::span<std::byte>> SharedRegion::part(uint64_t offset, uint64_t bytes) const noexcept {
  const uint64_t size = source_.byte_size;
  if (offset > size || bytes > size - offset) {
    return Status::error(Code::kInvalidArgument,
                         "region '%.128s': shared_memory_offset %llu and shared_memory_byte_size "
                         "%llu end beyond its %llu bytes",
                         name().c_str(), ull{offset}, ull{bytes}, ull{size});
  }
  if (was_lost()) return lost();
  return bytes_.subspan(offset, bytes);
}

Status SharedRegion::lost() const noexcept {
  return Status::error(Code::kInvalidArgument,
                       "region '%.128s': its shared memory object was made shorter; unregister it, "
                       "and register it anew",
                       name().c_str());
}

}  // namespace lumen::service
