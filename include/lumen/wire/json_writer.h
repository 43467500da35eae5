// JsonWriter: writes JSON into a fixed buffer and puts the commas. For documents and infer replies.
// Threads: one. Memory: none. Errors: overflowed() once the buffer is full; what is there is cut between
// two characters, and nothing follows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::wire {

class JsonWriter {
 public:
  // The longest texts of a number: "-1.17549435e-38", "-2.2250738585072014e-308" and 20 digits.
  template <typename T>
  static constexpr size_t kMaxNumberBytes = sizeof(T) == 8 ? 24 : 16;
  // The longest that one byte of a string becomes: \u00XX.
  static constexpr size_t kMaxEscapedBytes = 6;

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
  // The shortest text that reads back as the same, a float as a float; NaN and Inf become null.
  JsonWriter& number(double value) noexcept;
  JsonWriter& number(float value) noexcept;
  JsonWriter& raw(std::string_view json) noexcept;  // a value that is JSON already

  [[nodiscard]] bool overflowed() const noexcept { return overflowed_; }
  [[nodiscard]] std::string_view text() const noexcept { return {out_.data(), size_}; }

 private:
  void before_value() noexcept;
  void put_string(std::string_view text) noexcept;
  template <typename T>
  void put_digits(T value) noexcept;
  template <typename T>
  JsonWriter& put_float(T value) noexcept;
  void put(char c) noexcept;
  void put(std::string_view text) noexcept;

  std::span<char> out_;
  size_t size_ = 0;
  bool need_comma_ = false;
  bool overflowed_ = false;
};

}  // namespace lumen::wire
