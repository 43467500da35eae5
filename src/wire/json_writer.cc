// JsonWriter: commas by state, bytes by bounded copies. One thread; no memory of its own.
// Says no: overflowed() once the buffer was too small; the text is cut there and of no use.
#include <lumen/wire/json_writer.h>

#include "wire/appender.h"

namespace lumen::wire {

void JsonWriter::put(char c) noexcept { put(std::string_view(&c, 1)); }

void JsonWriter::put(std::string_view text) noexcept {
  const size_t fits = text.copy(out_.data() + size_, out_.size() - size_);
  size_ += fits;
  overflowed_ |= fits != text.size();
}

void JsonWriter::before_value() noexcept {
  if (need_comma_) put(',');
  need_comma_ = true;
}

void JsonWriter::put_string(std::string_view text) noexcept {
  put('"');
  while (!text.empty()) {
    const size_t plain = plain_prefix(text);
    put(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    const EscapedCharacter character = escape_character(text);
    put(std::string_view(character.bytes, character.size));
    text.remove_prefix(character.consumed);
  }
  put('"');
}

JsonWriter& JsonWriter::begin_object() noexcept {
  before_value();
  put('{');
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end_object() noexcept {
  put('}');
  need_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::begin_array() noexcept {
  before_value();
  put('[');
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end_array() noexcept {
  put(']');
  need_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) noexcept {
  before_value();
  put_string(name);
  put(':');
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) noexcept {
  before_value();
  put_string(text);
  return *this;
}

template <typename T>
JsonWriter& JsonWriter::put_number(T value) noexcept {
  before_value();
  char text[kMaxNumberText<T>];
  Appender number(text);
  number.put_number(value);
  put(number.text());
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t value) noexcept { return put_number(value); }
JsonWriter& JsonWriter::unsigned_integer(uint64_t value) noexcept { return put_number(value); }
JsonWriter& JsonWriter::number(double value) noexcept { return put_number(value); }
JsonWriter& JsonWriter::number(float value) noexcept { return put_number(value); }

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
