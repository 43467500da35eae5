// The parts that the wire tests share: memory with a cap, padded JSON, and inputs without a byte to
// spare.
// Threads: one test. Memory: the heap. Errors: through GoogleTest.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/wire/oip.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::wire::test {

// Each block on its own, so that ASan sees a byte too far.
class HeapMemory final : public Allocator {
 public:
  explicit HeapMemory(size_t cap_bytes = size_t{256} << 20) : left_(cap_bytes) {}
  void* allocate(size_t bytes, size_t alignment) noexcept override {
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    void* block = nullptr;
    if (posix_memalign(&block, std::max(alignment, sizeof(void*)), bytes) != 0) return nullptr;
    blocks_.emplace_back(block);
    return block;
  }

 private:
  struct Free {
    void operator()(void* block) const { std::free(block); }
  };
  size_t left_;
  std::vector<std::unique_ptr<void, Free>> blocks_;
};

// A copy of `text` that ends where its heap block ends.
class ExactCopy {
 public:
  explicit ExactCopy(std::string_view text) : bytes_(new char[text.size()]), size_(text.size()) {
    std::memcpy(bytes_.get(), text.data(), text.size());
  }
  [[nodiscard]] std::string_view view() const { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t size_;
};

// JSON with kPadding bytes of '"' behind it: content that a reader must not take for its own.
class PaddedJson {
 public:
  explicit PaddedJson(std::string_view json)
      : bytes_(new char[json.size() + JsonParser::kPadding]), size_(json.size()) {
    if (!json.empty()) std::memcpy(bytes_.get(), json.data(), json.size());
    std::memset(bytes_.get() + json.size(), '"', JsonParser::kPadding);
  }
  [[nodiscard]] std::string_view view() const { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t size_;
};

// Not operator+: g++ 12 warns of an overlap that is not there (its bug 105651).
inline std::string concat(std::initializer_list<std::string_view> parts) {
  std::string out;
  for (const std::string_view part : parts) out.append(part);
  return out;
}

// One parsed request with all that its views point into.
struct ParsedRequest {
  explicit ParsedRequest(std::string_view json, size_t cap_bytes = size_t{256} << 20)
      : text(json), memory(cap_bytes), result(parse_infer_head(parser, text.view(), memory)) {}

  PaddedJson text;
  JsonParser parser;
  HeapMemory memory;
  Result<InferHead> result;
};

template <typename T>
std::vector<T> values(const TensorView& tensor) {
  std::vector<T> out(tensor.byte_size / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), tensor.data, tensor.byte_size);
  return out;
}

inline std::vector<std::string> strings(const TensorView& tensor) {
  std::vector<std::string> out;
  for (size_t used = 0; used < tensor.byte_size;) {
    uint32_t length = 0;
    std::memcpy(&length, tensor.data + used, 4);
    out.emplace_back(reinterpret_cast<const char*>(tensor.data + used + 4), length);
    used += 4 + length;
  }
  return out;
}

}  // namespace lumen::wire::test
