// Escaping of one character. Any thread; no memory.
#include "wire/json_escape.h"

#include <lumen/base/utf8.h>

namespace lumen::wire {
namespace {

char short_escape(char c) noexcept {
  switch (c) {
    case '"': return '"';
    case '\\': return '\\';
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
  }
}

}  // namespace

EscapedCharacter escape_character(std::string_view text) noexcept {
  const char c = text.front();
  if (const char letter = short_escape(c); letter != 0) return {{'\\', letter}, 2, 1};
  const uint8_t code = static_cast<uint8_t>(c);
  if (code < 0x20) {
    constexpr char kHex[] = "0123456789abcdef";
    return {{'\\', 'u', '0', '0', kHex[code >> 4], kHex[code & 15]}, 6, 1};
  }
  if (code < 0x80) return {{c}, 1, 1};
  const size_t length = utf8_length(text);
  if (length == 0) return {{'\xef', '\xbf', '\xbd'}, 3, 1};
  EscapedCharacter character{};
  text.copy(character.bytes, length);
  character.size = character.consumed = static_cast<uint8_t>(length);
  return character;
}

}  // namespace lumen::wire
