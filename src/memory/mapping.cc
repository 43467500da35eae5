// mmap and madvise behind Mapping. One owner; system calls at creation and destruction only.
#include <lumen/memory/mapping.h>

#include <sys/mman.h>

#include <cerrno>

namespace lumen {
namespace {
constexpr size_t kPage = 4096;
constexpr size_t round_up_to_page(size_t n) { return (n + kPage - 1) & ~(kPage - 1); }
}  // namespace

Result<Mapping> Mapping::create(size_t bytes, const MappingOptions& options) {
  const size_t size = round_up_to_page(bytes == 0 ? 1 : bytes);
  // NORESERVE: a region is sized for the largest request and mostly never touched.
  const int flags =
      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (options.prefault ? MAP_POPULATE : 0);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) {
    return Status::from_errno(errno, "mapping %zu bytes of memory", size);
  }
  if (options.huge_pages) (void)::madvise(memory, size, MADV_HUGEPAGE);
  Mapping mapping;
  mapping.data_ = static_cast<std::byte*>(memory);
  mapping.size_ = size;
  return mapping;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void Mapping::release_pages_from(size_t offset) noexcept {
  const size_t begin = round_up_to_page(offset);
  if (begin < size_) (void)::madvise(data_ + begin, size_ - begin, MADV_DONTNEED);
}

}  // namespace lumen
