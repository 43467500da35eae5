// Mapping: owns one region of virtual memory, anonymous or of a file. Pages cost nothing until
// touched.
// Threads: one owner. Memory: mmap at creation, munmap at destruction, nothing between.
// Errors: Result with errno's reason; a wish that is not granted (huge pages, NUMA) is reported,
// never an error, because a container without CAP_SYS_NICE or a machine with one node must still
// serve.
#pragma once

#include <lumen/base/result.h>

#include <cstddef>
#include <span>
#include <utility>

namespace lumen {

inline constexpr size_t kPageBytes = 4096;                 // x86-64
inline constexpr size_t kHugePageBytes = 2 * 1024 * 1024;  // x86-64, PMD-mapped

struct MappingOptions {
  bool huge_pages = false;  // align to 2 MiB and advise transparent huge pages
  bool prefault = false;    // touch every page now, so that no request pays for a page fault
  int numa_node = -1;       // prefer this node's memory; -1: wherever the first touch happens
};

class Mapping {
 public:
  // `bytes` is rounded up to whole pages. The memory is zeroed by the kernel on first touch.
  [[nodiscard]] static Result<Mapping> create(size_t bytes, const MappingOptions& options = {});
  // The first `bytes` of a file, shared with all processes that map it. The descriptor may be
  // closed afterwards.
  [[nodiscard]] static Result<Mapping> of_file(int fd, size_t bytes);
  Mapping() noexcept = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        huge_pages_advised_(other.huge_pages_advised_),
        numa_bound_(other.numa_bound_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(huge_pages_advised_, other.huge_pages_advised_);
    std::swap(numa_bound_, other.numa_bound_);
    return *this;
  }
  ~Mapping();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  // Whether the kernel took the advice; it may still not find a free huge page.
  [[nodiscard]] bool huge_pages_advised() const noexcept { return huge_pages_advised_; }
  // Whether the kernel took the node; false on a machine or kernel without NUMA.
  [[nodiscard]] bool numa_bound() const noexcept { return numa_bound_; }
  // Gives the pages from `offset` on back to the kernel; they read as zero afterwards.
  void release_pages_from(size_t offset) noexcept;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool huge_pages_advised_ = false;
  bool numa_bound_ = false;
};

}  // namespace lumen
