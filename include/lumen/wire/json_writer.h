// JsonWriter: writes JSON into a fixed buffer; commas are put by itself. For fixed response shapes.
// Threads: one. Memory: none. Says no: overflowed() once the buffer is full; what is there is cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::wire {

class JsonWriter {
 public:
  explicit JsonWriter(std::span<char> out) noexcept : out_(out) {}

  JsonWriter& begin_object() noexcept;
  JsonWriter& end_object() noexcept;
  JsonWriter& begin_array() noexcept;
  JsonWriter& end_array() noexcept;
  JsonWriter& key(std::string_view name) noexcept;
  JsonWriter& string(std::string_view text) noexcept;  // escaped; invalid UTF-8 becomes U+FFFD
  JsonWriter& integer(int64_t value) noexcept;
  JsonWriter& unsigned_integer(uint64_t value) noexcept;
  JsonWriter& boolean(bool value) noexcept;
  JsonWriter& number(double value) noexcept;  // shortest round trip; NaN and Inf become null
  JsonWriter& number(float value) noexcept;
  JsonWriter& raw(std::string_view json) noexcept;  // a value that is JSON already

  [[nodiscard]] bool overflowed() const noexcept { return overflowed_; }
  [[nodiscard]] std::string_view text() const noexcept { return {out_.data(), size_}; }

 private:
  void before_value() noexcept;
  void put_string(std::string_view text) noexcept;
  template <typename T>
  JsonWriter& put_number(T value) noexcept;
  void put(char c) noexcept;
  void put(std::string_view text) noexcept;

  std::span<char> out_;
  size_t size_ = 0;
  bool need_comma_ = false;
  bool overflowed_ = false;
};

}  // namespace lumen::wire
