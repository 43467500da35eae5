// ApiKeys: the keys that clients of TCP send (Authorization: Bearer KEY), read from a file with a
// line "ROLE KEY" for each.
// Threads: a table never changes; of ApiKeysInUse: replace() on the control plane, now() by any
// thread. Memory: the heap, but for role_of() and now(). Errors: a Status that names the file and
// the line, never a key.
#pragma once

#include <lumen/base/result.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace lumen::transports {

enum class Role : uint8_t {
  kNone,
  kInfer,    // requests, and documents about models
  kControl,  // also changes of models and settings
};

class ApiKeys {
 public:
  // All are compared with that of each request, so they are few.
  static constexpr size_t kMostKeys = 64;
  static constexpr size_t kLeastKeyBytes = 16;  // a shorter one can be guessed
  static constexpr size_t kMostKeyBytes = 128;
  static constexpr size_t kMostFileBytes = 64 * 1024;

  // Other users than the owner and the group must not be able to read or write the file.
  [[nodiscard]] static Result<ApiKeys> read(const std::filesystem::path& file);
  // `name`: of the text, for errors.
  [[nodiscard]] static Result<ApiKeys> parse(std::string_view text, std::string_view name);

  // `authorization`: a header's value, any bytes of a client; kNone: no key, or not one of these.
  // The time tells nothing of the keys but their number.
  [[nodiscard]] Role role_of(std::string_view authorization) const noexcept;

 private:
  struct Key {
    std::array<char, kMostKeyBytes> bytes{};  // zeros behind its end
    Role role = Role::kNone;
  };
  std::vector<Key> keys_;
};

// The table that counts now, for I/O threads.
class ApiKeysInUse {
 public:
  // nullptr: no key is asked for. The result is used within the turn.
  [[nodiscard]] const ApiKeys* now() const noexcept {
    // sync[api_keys.current]: acquire; the table is whole
    return current_.load(std::memory_order_acquire);
  }
  // `wait_for_turns`: returns once each I/O thread has begun another turn.
  void replace(ApiKeys next, const std::function<void()>& wait_for_turns);

 private:
  std::unique_ptr<const ApiKeys> owned_;
  std::atomic<const ApiKeys*> current_{nullptr};
};

}  // namespace lumen::transports
