// JSON string escaping, shared by all that writes JSON: valid UTF-8 out, for any bytes in.
// Threads: any. Memory: none. Errors: never; a byte that is not UTF-8 becomes U+FFFD.
#pragma once

#include "wire/ascii.h"

#include <lumen/wire/json_writer.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lumen::wire {

// The text of one character of the input: as it is, escaped, or replaced.
struct EscapedCharacter {
  char bytes[JsonWriter::kMaxEscapedBytes];
  uint8_t size;      // of bytes
  uint8_t consumed;  // of the input
};

// Bytes at the start of `text` that go out as they are and are ASCII: the whole of a usual name.
[[nodiscard]] inline size_t plain_prefix(std::string_view text) noexcept {
  size_t i = 0;
  while (text.size() - i >= 8) {
    const uint64_t word = load_word(text.data() + i);
    const uint64_t marks = bytes_below(word, 0x20) | bytes_equal(word, '"') |
                           bytes_equal(word, '\\') | (word & kHighBits);
    if (marks != 0) return i + first_marked(marks);
    i += 8;
  }
  while (i < text.size() && static_cast<uint8_t>(text[i]) >= 0x20 && text[i] != '"' &&
         text[i] != '\\' && static_cast<uint8_t>(text[i]) < 0x80) {
    ++i;
  }
  return i;
}

// The character at the start of `text`, which is not empty.
[[nodiscard]] EscapedCharacter escape_character(std::string_view text) noexcept;

}  // namespace lumen::wire
