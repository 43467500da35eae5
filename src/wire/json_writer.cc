// JsonWriter: commas by state, bytes by bounded copies. One thread; no memory of its own. Errors:
// overflowed().
#include <lumen/wire/json_writer.h>

#include "wire/json_escape.h"

#include <charconv>
#include <cmath>

namespace lumen::wire {

void JsonWriter::put_what_fits(std::string_view text) noexcept {
  at_ += text.copy(at_, room());
  overflow();
}

void JsonWriter::overflow() noexcept {
  overflowed_ = true;
  end_ = at_;
}

void JsonWriter::put_string(std::string_view text) noexcept {
  put('"');
  while (!text.empty()) {
    const size_t plain = plain_prefix(text);
    put(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    const EscapedCharacter character = escape_character(text);
    if (character.size > room()) return overflow();
    put(std::string_view(character.bytes, character.size));
    text.remove_prefix(character.consumed);
  }
  put('"');
}

JsonWriter& JsonWriter::string(std::string_view text) noexcept {
  before_value();
  put_string(text);
  return *this;
}

template <typename T>
void JsonWriter::put_digits(T value) noexcept {
  const auto [at, error] = std::to_chars(at_, end_, value);
  if (error != std::errc{}) return overflow();
  at_ = at;
}

template <typename T>
JsonWriter& JsonWriter::put_float(T value) noexcept {
  before_value();
  // Class indices, counts and padding: the integer conversion takes a third of the time.
  const int32_t whole = std::fabs(value) < T(1 << 23) ? static_cast<int32_t>(value) : 0;
  if (!std::isfinite(value)) {
    put_non_finite(value);
  } else if (whole != 0 && static_cast<T>(whole) == value) {
    put_digits(whole);
  } else {
    put_digits(value);
  }
  return *this;
}

void JsonWriter::put_non_finite(double value) noexcept {
  const std::string_view text = std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  if (non_finite_ == NonFinite::kNull) return put(std::string_view("null"));
  if (non_finite_ == NonFinite::kString) put('"');
  put(text);
  if (non_finite_ == NonFinite::kString) put('"');
}

JsonWriter& JsonWriter::integer(int64_t value) noexcept {
  before_value();
  put_digits(value);
  return *this;
}
JsonWriter& JsonWriter::unsigned_integer(uint64_t value) noexcept {
  before_value();
  put_digits(value);
  return *this;
}
JsonWriter& JsonWriter::number(double value) noexcept { return put_float(value); }
JsonWriter& JsonWriter::number(float value) noexcept { return put_float(value); }

JsonWriter& JsonWriter::boolean(bool value) noexcept {
  before_value();
  put(value ? std::string_view("true") : std::string_view("false"));
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) noexcept {
  before_value();
  put(json);
  return *this;
}

}  // namespace lumen::wire
