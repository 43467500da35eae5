// Escaping of one character and the UTF-8 decoding that it needs. Any thread; no memory.
#include "wire/json_escape.h"

namespace lumen::wire {
namespace {

// Length of the well-formed UTF-8 sequence at the start (Unicode 15, table 3-7), or 0.
size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto follows = [&](size_t i, uint8_t low, uint8_t high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const uint8_t lead = byte(0);
  if (lead >= 0xc2 && lead <= 0xdf) return follows(1, 0x80, 0xbf) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const uint8_t low = lead == 0xe0 ? 0xa0 : 0x80;
    const uint8_t high = lead == 0xed ? 0x9f : 0xbf;  // no surrogates
    return follows(1, low, high) && follows(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const uint8_t low = lead == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xf4 ? 0x8f : 0xbf;
    return follows(1, low, high) && follows(2, 0x80, 0xbf) && follows(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

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
