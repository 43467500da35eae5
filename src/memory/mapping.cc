// mmap, madvise and mbind behind Mapping. One owner; system calls at creation and destruction only.
// Memory: the mapping itself. Errors: a Status with errno's reason.
#include <lumen/memory/mapping.h>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; Debian 12's glibc headers have it, older ones do not
#endif

namespace lumen {
namespace {

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) & ~(to - 1); }

// mbind through syscall(): libnuma would be a dependency for one call. MPOL_PREFERRED (1) and not
// MPOL_BIND, so that a full node costs speed and not an allocation failure.
bool prefer_node(void* memory, size_t bytes, int node) {
  constexpr int kMpolPreferred = 1;
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  unsigned long mask[1024 / kBits] = {};
  if (node < 0 || node >= 1024) return false;
  mask[static_cast<size_t>(node) / kBits] = 1ul << (static_cast<size_t>(node) % kBits);
  // The kernel reads maxnode - 1 bits, hence the + 1.
  return ::syscall(SYS_mbind, memory, bytes, kMpolPreferred, mask, 1024ul + 1, 0u) == 0;
}

void touch(std::byte* memory, size_t bytes) {
  if (::madvise(memory, bytes, MADV_POPULATE_WRITE) == 0) return;
  for (size_t i = 0; i < bytes; i += kPageBytes) {
    // relaxed: no other thread has it yet; atomic so that the compiler keeps the store
    std::atomic_ref(memory[i]).store(std::byte{0}, std::memory_order_relaxed);
  }
}

}  // namespace

Result<Mapping> Mapping::of_file(int fd, size_t bytes) {
  const size_t size = round_up(bytes, kPageBytes);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return Status::from_errno(errno, "mapping %zu bytes of a file", size);
  Mapping mapping;
  mapping.data_ = static_cast<std::byte*>(memory);
  mapping.size_ = size;
  return mapping;
}

Result<Mapping> Mapping::create(size_t bytes, const MappingOptions& options) {
  const size_t alignment = options.huge_pages ? kHugePageBytes : kPageBytes;
  if (bytes > SIZE_MAX / 2) {
    return Status::error(Code::kTooLarge,
                         "mapping %zu bytes of memory: more than half of the "
                         "address space; ask for less",
                         bytes);
  }
  const size_t size = round_up(bytes == 0 ? 1 : bytes, kPageBytes);
  // The kernel aligns to 4 KiB only: for huge pages map too much and cut both ends off.
  const size_t mapped = size + (alignment - kPageBytes);
  // NORESERVE: a region is sized for the largest request and mostly never touched. MAP_POPULATE is
  // not used: it would fill the pages before the advice and the node below could count.
  void* memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return Status::from_errno(errno, "mapping %zu bytes of memory", mapped);
  }
  auto* begin = static_cast<std::byte*>(memory);
  const size_t head =
      round_up(reinterpret_cast<uintptr_t>(begin), alignment) - reinterpret_cast<uintptr_t>(begin);
  if (head != 0) ::munmap(begin, head);
  if (const size_t tail = mapped - head - size; tail != 0) ::munmap(begin + head + size, tail);

  Mapping mapping;
  mapping.data_ = begin + head;
  mapping.size_ = size;
  if (options.huge_pages) {
    mapping.huge_pages_advised_ = ::madvise(mapping.data_, size, MADV_HUGEPAGE) == 0;
  }
  if (options.numa_node >= 0) {
    mapping.numa_bound_ = prefer_node(mapping.data_, size, options.numa_node);
  }
  if (options.prefault) touch(mapping.data_, size);
  return mapping;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void Mapping::release_pages_from(size_t offset) noexcept {
  const size_t begin = round_up(offset, kPageBytes);
  if (begin < size_) (void)::madvise(data_ + begin, size_ - begin, MADV_DONTNEED);
}

}  // namespace lumen
