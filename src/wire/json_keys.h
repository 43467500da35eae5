// JsonKeys: the keys of the objects that are open at this moment, so that one that comes twice is
// seen, however deep. Two parsers that pick different ones of two equal keys are a way to smuggle.
// Threads: one. Memory: allocates at construction only. Errors: an enum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

namespace lumen::wire {

class JsonKeys {
 public:
  // Of one object, since looking through them is quadratic; and of all open objects together.
  static constexpr size_t kMaxPerObject = 256;
  static constexpr size_t kMaxOpen = 1024;

  enum class Added : uint8_t { kYes, kTwice, kFull };

  JsonKeys()
      : hashes_(std::make_unique<uint64_t[]>(kMaxOpen)),
        keys_(std::make_unique<std::string_view[]>(kMaxOpen)) {}

  [[nodiscard]] size_t size() const noexcept { return size_; }
  void drop_to(size_t size) noexcept { size_ = size; }

  // Adds `key` to the object whose keys begin at `first`.
  [[nodiscard]] Added add(size_t first, std::string_view key) noexcept {
    const uint64_t hash = hash_of(key);
    for (size_t i = first; i < size_; ++i) {
      if (hashes_[i] == hash && keys_[i] == key) return Added::kTwice;
    }
    if (size_ == kMaxOpen || size_ - first == kMaxPerObject) return Added::kFull;
    hashes_[size_] = hash;
    keys_[size_++] = key;
    return Added::kYes;
  }

 private:
  // First and last bytes and the length tell usual keys apart; equal hashes are compared. Loads of
  // fixed size: a memcpy of `key.size()` bytes is a call, and an infer head has a dozen keys.
  static uint64_t hash_of(std::string_view key) noexcept {
    const char* const at = key.data();
    const size_t n = key.size();
    uint64_t head = 0;
    uint64_t tail = 0;
    if (n >= 8) {
      std::memcpy(&head, at, 8);
      std::memcpy(&tail, at + n - 8, 8);
    } else if (n >= 4) {
      std::memcpy(&head, at, 4);
      std::memcpy(&tail, at + n - 4, 4);
    } else if (n > 0) {
      head = static_cast<uint8_t>(at[0]);
      tail = static_cast<uint64_t>(static_cast<uint8_t>(at[n / 2])) << 8 |
             static_cast<uint8_t>(at[n - 1]);
    }
    return head ^ (tail * 0x9e3779b97f4a7c15) ^ (n << 56);
  }

  std::unique_ptr<uint64_t[]> hashes_;
  std::unique_ptr<std::string_view[]> keys_;
  size_t size_ = 0;
};

}  // namespace lumen::wire
