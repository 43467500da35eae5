// Mapping: owns one anonymous region of virtual memory. Pages cost nothing until touched.
// Threads: one owner. Memory: mmap at creation, munmap at destruction, nothing between.
// Says no: Result with errno's reason.
#pragma once

#include <lumen/base/result.h>

#include <cstddef>
#include <span>
#include <utility>

namespace lumen {

struct MappingOptions {
  bool huge_pages = false;  // advise transparent huge pages; a refusal is not an error
  bool prefault = false;    // touch every page now, so that no request pays for a page fault
};

class Mapping {
 public:
  // `bytes` is rounded up to whole pages. The memory is zeroed by the kernel on first touch.
  [[nodiscard]] static Result<Mapping> create(size_t bytes, const MappingOptions& options = {});
  Mapping() noexcept = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mapping();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
  // Gives the pages from `offset` on back to the kernel; they read as zero afterwards.
  void release_pages_from(size_t offset) noexcept;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lumen
