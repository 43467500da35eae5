// The parts that the fuzz targets share: inputs whose block ends where they end, so that ASan sees
// an overrun.
// Threads: one. Memory: the heap. Errors: CHECK, which the fuzzer reports with the input.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/check.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace lumen::fuzz {

// A copy with `padding` readable bytes of '"' behind it.
class Copy {
 public:
  explicit Copy(std::string_view text, size_t padding = 0)
      : bytes_(new char[text.size() + padding]), size_(text.size()) {
    if (!text.empty()) std::memcpy(bytes_.get(), text.data(), text.size());
    if (padding > 0) std::memset(bytes_.get() + text.size(), '"', padding);
  }
  [[nodiscard]] std::string_view view() const { return {bytes_.get(), size_}; }
  [[nodiscard]] bool holds(std::string_view part) const {
    return part.data() >= bytes_.get() && part.data() + part.size() <= bytes_.get() + size_;
  }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t size_;
};

// One heap block an allocation, up to a cap.
class Memory final : public Allocator {
 public:
  explicit Memory(size_t cap_bytes) : left_(cap_bytes) {}
  ~Memory() {
    for (void* block : blocks_) std::free(block);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* allocate(size_t bytes, size_t alignment) noexcept override {
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    void* block = nullptr;
    LUMEN_CHECK(posix_memalign(&block, alignment < 8 ? 8 : alignment, bytes) == 0);
    blocks_.push_back(block);
    return block;
  }

 private:
  size_t left_;
  std::vector<void*> blocks_;
};

}  // namespace lumen::fuzz
