// Arena: a region of memory with O(1) bump allocation and O(1) reset, with a hard cap.
// Threads: one at a time; it travels with its request from thread to thread.
// Memory: one Mapping at creation (virtual, cheap until touched); nothing afterwards.
// Says no: nullptr when the cap is reached.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/memory/mapping.h>

#include <algorithm>
#include <cstdint>

namespace lumen {

class Arena final : public Allocator {
 public:
  struct Mark {
    size_t used;
  };

  [[nodiscard]] static Result<Arena> create(size_t capacity_bytes,
                                            const MappingOptions& options = {}) {
    Result<Mapping> mapping = Mapping::create(capacity_bytes, options);
    if (!mapping.ok()) return mapping.status();
    return Arena(std::move(*mapping));
  }
  Arena() noexcept = default;

  [[nodiscard]] void* allocate(size_t bytes, size_t alignment) noexcept override {
    const size_t begin = (used_ + alignment - 1) & ~(alignment - 1);  // base is page-aligned
    if (begin < used_ || bytes > mapping_.size() - std::min(begin, mapping_.size())) return nullptr;
    used_ = begin + bytes;
    if (used_ > peak_) peak_ = used_;
    return mapping_.data() + begin;
  }
  [[nodiscard]] Mark mark() const noexcept { return {used_}; }
  void rewind(Mark mark) noexcept { used_ = mark.used; }
  void reset() noexcept { used_ = 0; }
  // After reset(): gives pages above `keep_bytes` back if they were touched since the last trim.
  void trim(size_t keep_bytes) noexcept {
    if (peak_ > keep_bytes) mapping_.release_pages_from(keep_bytes);
    peak_ = used_;
  }

  [[nodiscard]] size_t used_bytes() const noexcept { return used_; }
  [[nodiscard]] size_t peak_bytes() const noexcept { return peak_; }
  [[nodiscard]] size_t capacity_bytes() const noexcept { return mapping_.size(); }
  [[nodiscard]] std::span<std::byte> region() const noexcept { return mapping_.bytes(); }
  [[nodiscard]] bool owns(const void* address) const noexcept {
    const auto* p = static_cast<const std::byte*>(address);
    return p >= mapping_.data() && p < mapping_.data() + mapping_.size();
  }

 private:
  explicit Arena(Mapping mapping) noexcept : mapping_(std::move(mapping)) {}

  Mapping mapping_;
  size_t used_ = 0;
  size_t peak_ = 0;
};

}  // namespace lumen
