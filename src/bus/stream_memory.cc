// memfds, seals and mappings. Control plane. Errors: Status with errno's reason and the fix.
#include <lumen/bus/stream_memory.h>

#include <lumen/base/machine_memory.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <new>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010  // Linux 5.1
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif

namespace lumen::bus {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// Of the rest: page tables, and the process's own needs.
constexpr uint64_t kLeftForOthers = uint64_t{2} << 20;

// fallocate() above RLIMIT_FSIZE raises SIGXFSZ, whose default ends the process: blocked here, and
// taken away again if it came, the call only fails.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() noexcept {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~NoFileSizeSignal() {
    const timespec now{};
    if (::sigismember(&before_, SIGXFSZ) == 0) (void)::sigtimedwait(&set_, nullptr, &now);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;

 private:
  sigset_t set_{};
  sigset_t before_{};
};

int allocate(int fd, uint64_t bytes) noexcept {
  const NoFileSizeSignal guard;
  while (::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

Result<SharedFile> SharedFile::create(const char* name, uint64_t bytes) {
  // A memory cgroup does not refuse: it kills, the listener for a client's sake.
  const MachineMemory left = unused_memory();
  if (left.bytes < kLeftForOthers || bytes > left.bytes - kLeftForOthers) {
    return Status::error(
        Code::kResourceExhausted,
        "bus: %llu bytes of shared memory do not fit: %s leaves %zu, of which %llu "
        "stay for others; use a smaller capacity, or raise the limit",
        static_cast<unsigned long long>(bytes), left.source.c_str(), left.bytes,
        static_cast<unsigned long long>(kLeftForOthers));
  }
  int raw = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (raw < 0 && errno == EINVAL) raw = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  UniqueFd fd(raw);
  if (!fd.valid()) {
    const int error = errno;
    return Status::from_errno(
        error, "bus: making shared memory of %llu bytes by memfd_create()%s",
        static_cast<unsigned long long>(bytes),
        error == EPERM || error == ENOSYS ? ", which a seccomp filter may refuse: allow it" : "");
  }
  if (const int error = allocate(fd.get(), bytes); error != 0) {
    const char* fix = error == EFBIG ? " (RLIMIT_FSIZE: ulimit -f unlimited, or a smaller capacity)"
                      : error == ENOSPC ? " (no memory left: a smaller capacity)"
                                        : "";
    return Status::from_errno(error, "bus: reserving %llu bytes of shared memory%s",
                              static_cast<unsigned long long>(bytes), fix);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    return Status::from_errno(errno, "bus: sealing the size of shared memory");
  }
  return SharedFile(std::move(fd), bytes);
}

Result<SharedFile> SharedFile::adopt(UniqueFd fd, uint64_t bytes) {
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  constexpr int kWanted = kSizeSeals | F_SEAL_SEAL;
  if (seals < 0 || (seals & kWanted) != kWanted) {
    return Status::error(
        Code::kForbidden,
        "bus: the other side sent a file whose size it can still change (seals %d, "
        "wanted %d: F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL); it is not mapped",
        seals, kWanted);
  }
  struct stat found{};
  if (::fstat(fd.get(), &found) != 0) return Status::from_errno(errno, "bus: shared memory");
  if (!S_ISREG(found.st_mode) || static_cast<uint64_t>(found.st_size) != bytes) {
    return Status::error(
        Code::kInvalidArgument,
        "bus: the other side sent shared memory of %lld bytes, wanted the %llu that "
        "it has announced",
        static_cast<long long>(found.st_size), static_cast<unsigned long long>(bytes));
  }
  return SharedFile(std::move(fd), bytes);
}

Status SharedFile::seal_for_others(Access access) noexcept {
  const int writers = access == Access::kRead ? F_SEAL_FUTURE_WRITE : 0;
  if (::fcntl(fd_.get(), F_ADD_SEALS, writers | F_SEAL_SEAL) == 0) return {};
  return Status::from_errno(errno, "bus: sealing shared memory");
}

Result<FileMapping> FileMapping::map(const SharedFile& file, Access access, uint64_t twice_from) {
  const int protection = access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  const uint64_t again = file.bytes() - twice_from;
  // Both places at once, so that nothing else gets in between.
  const uint64_t total = file.bytes() + again;
  void* place =
      ::mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) {
    return Status::from_errno(errno, "bus: address space for %llu bytes",
                              static_cast<unsigned long long>(total));
  }
  FileMapping mapping;
  mapping.data_ = static_cast<std::byte*>(place);
  mapping.bytes_ = total;
  const int flags = MAP_SHARED | MAP_FIXED | MAP_POPULATE;
  const bool mapped =
      ::mmap(place, file.bytes(), protection, flags, file.fd(), 0) != MAP_FAILED &&
      (again == 0 || ::mmap(mapping.data_ + file.bytes(), again, protection, flags, file.fd(),
                            static_cast<off_t>(twice_from)) != MAP_FAILED);
  if (!mapped) {
    return Status::from_errno(errno, "bus: mapping %llu bytes of shared memory for %s",
                              static_cast<unsigned long long>(file.bytes()),
                              access == Access::kRead ? "reading" : "writing");
  }
  return mapping;
}

FileMapping::~FileMapping() {
  if (data_ != nullptr) (void)::munmap(data_, bytes_);
}

Result<std::shared_ptr<PublisherMemory>> PublisherMemory::map(const SharedFile& file,
                                                              const Geometry& geometry,
                                                              Access access) {
  auto mapping = FileMapping::map(file, access, geometry.payload_offset());
  if (!mapping.ok()) return mapping.status();
  return std::shared_ptr<PublisherMemory>(
      new PublisherMemory(std::move(mapping).value(), geometry));
}

void PublisherMemory::initialise() noexcept {
  PublisherPage& page = *new (mapping_.data()) PublisherPage{};
  page.magic = kMagic;
  page.version = kLayoutVersion;
  page.slots = geometry_.slots;
  page.capacity = geometry_.capacity;
  page.descriptors_offset = geometry_.descriptors_offset();
  page.payload_offset = geometry_.payload_offset();
}

Result<std::shared_ptr<CursorMemory>> CursorMemory::map(const SharedFile& file, Access access) {
  auto mapping = FileMapping::map(file, access, file.bytes());
  if (!mapping.ok()) return mapping.status();
  return std::shared_ptr<CursorMemory>(new CursorMemory(std::move(mapping).value()));
}

void CursorMemory::initialise() noexcept {
  CursorPage& page = *new (mapping_.data()) CursorPage{};
  page.magic = kMagic;
  page.version = kLayoutVersion;
}

}  // namespace lumen::bus
