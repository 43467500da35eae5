// JsonWriter: writes JSON into a fixed buffer and puts the commas. For documents and infer replies.
// Threads: one. Memory: none. Errors: overflowed() once the buffer is full; its text is then cut
// between two characters, and nothing follows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::wire {

// Of NaN and infinity, for which JSON has no form: null; NaN, Infinity and -Infinity as they are,
// which Python's json reads; or these words in quotes.
enum class NonFinite : uint8_t { kNull, kBare, kString };

class JsonWriter {
 public:
  // The longest texts of a number: "-1.17549435e-38", "-2.2250738585072014e-308" and 20 digits.
  template <typename T>
  static constexpr size_t kMaxNumberBytes = sizeof(T) == 8 ? 24 : 16;
  // The longest that one byte of a string becomes: \u00XX.
  static constexpr size_t kMaxEscapedBytes = 6;

  explicit JsonWriter(std::span<char> out) noexcept
      : begin_(out.data()), at_(begin_), end_(begin_ + out.size()) {}

  JsonWriter& begin_object() noexcept { return begin('{'); }
  JsonWriter& end_object() noexcept { return end('}'); }
  JsonWriter& begin_array() noexcept { return begin('['); }
  JsonWriter& end_array() noexcept { return end(']'); }
  // Written as it is: a name of ours, in which nothing is to be escaped.
  JsonWriter& key(std::string_view name) noexcept {
    before_value();
    put('"');
    put(name);
    put("\":");
    need_comma_ = false;
    return *this;
  }
  JsonWriter& string(std::string_view text) noexcept;  // escaped; invalid UTF-8 becomes U+FFFD
  JsonWriter& integer(int64_t value) noexcept;
  JsonWriter& unsigned_integer(uint64_t value) noexcept;
  JsonWriter& boolean(bool value) noexcept;
  // Until it is called: null.
  void write_non_finite_as(NonFinite form) noexcept { non_finite_ = form; }
  // The shortest text that reads back as the same, a float as a float.
  JsonWriter& number(double value) noexcept;
  JsonWriter& number(float value) noexcept;
  JsonWriter& raw(std::string_view json) noexcept;  // a value that is JSON already

  [[nodiscard]] bool overflowed() const noexcept { return overflowed_; }
  [[nodiscard]] std::string_view text() const noexcept {
    return {begin_, static_cast<size_t>(at_ - begin_)};
  }

 private:
  // Inline, the parts of a reply: as calls they took 5 % of all that the server does for a small
  // model.
  void put(char c) noexcept {
    if (at_ == end_) [[unlikely]]
      return overflow();
    *at_++ = c;
  }
  void put(std::string_view text) noexcept {
    if (text.size() > room()) [[unlikely]]
      return put_what_fits(text);
    at_ += text.copy(at_, text.size());  // not memcpy: an empty view may have no address
  }
  void before_value() noexcept {
    if (need_comma_) put(',');
    need_comma_ = true;
  }
  JsonWriter& begin(char bracket) noexcept {
    before_value();
    put(bracket);
    need_comma_ = false;
    return *this;
  }
  JsonWriter& end(char bracket) noexcept {
    put(bracket);
    need_comma_ = true;
    return *this;
  }
  [[nodiscard]] size_t room() const noexcept { return static_cast<size_t>(end_ - at_); }
  void put_what_fits(std::string_view text) noexcept;
  void overflow() noexcept;
  void put_string(std::string_view text) noexcept;
  template <typename T>
  void put_digits(T value) noexcept;
  void put_non_finite(double value) noexcept;
  template <typename T>
  JsonWriter& put_float(T value) noexcept;

  char* begin_;
  char* at_;
  char* end_;  // where the text ends once it has overflowed, so that nothing follows
  NonFinite non_finite_ = NonFinite::kNull;
  bool need_comma_ = false;
  bool overflowed_ = false;
};

}  // namespace lumen::wire
