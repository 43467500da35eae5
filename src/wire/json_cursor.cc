// The grammar of JSON: strings with their escapes, numbers, nesting. One thread; see the header for
// memory and errors.
#include "wire/json_cursor.h"

#include "wire/ascii.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>

namespace lumen::wire {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// Four hexadecimal digits at `at`, or -1. Reads into the padding at most.
int32_t read_hex4(const char* at) noexcept {
  int32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const int digit = hex_value(at[i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

struct Utf8 {
  char bytes[4];
  size_t size;
};

Utf8 encode_utf8(uint32_t code) noexcept {
  const auto low = [](uint32_t c) { return static_cast<char>(0x80 | (c & 0x3f)); };
  if (code < 0x80) return {{static_cast<char>(code)}, 1};
  if (code < 0x800) return {{static_cast<char>(0xc0 | (code >> 6)), low(code)}, 2};
  if (code < 0x10000) {
    return {{static_cast<char>(0xe0 | (code >> 12)), low(code >> 6), low(code)}, 3};
  }
  return {{static_cast<char>(0xf0 | (code >> 18)), low(code >> 12), low(code >> 6), low(code)}, 4};
}

struct Escape {
  Utf8 text{};
  size_t consumed = 0;  // of the raw text, with the backslash; 0: not an escape
};

// `at` is at a backslash; a string's closing quote or the padding stops every read.
Escape read_escape(const char* at) noexcept {
  switch (at[1]) {
    case '"': return {{{'"'}, 1}, 2};
    case '\\': return {{{'\\'}, 1}, 2};
    case '/': return {{{'/'}, 1}, 2};
    case 'b': return {{{'\b'}, 1}, 2};
    case 'f': return {{{'\f'}, 1}, 2};
    case 'n': return {{{'\n'}, 1}, 2};
    case 'r': return {{{'\r'}, 1}, 2};
    case 't': return {{{'\t'}, 1}, 2};
    case 'u': break;
    default: return {};
  }
  const int32_t first = read_hex4(at + 2);
  if (first < 0 || (first >= 0xdc00 && first <= 0xdfff)) return {};
  if (first < 0xd800 || first > 0xdbff) return {encode_utf8(static_cast<uint32_t>(first)), 6};
  if (at[6] != '\\' || at[7] != 'u') return {};
  const int32_t second = read_hex4(at + 8);
  if (second < 0xdc00 || second > 0xdfff) return {};
  const int32_t code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
  return {encode_utf8(static_cast<uint32_t>(code)), 12};
}

}  // namespace

void JsonCursor::refuse_with(Code code, const char* format, va_list args) noexcept {
  if (!status_.ok()) return;
  char text[Status::kMaxMessage];
  int used = 0;
  if (subject_.kind != nullptr && subject_.name.empty()) {
    used = std::snprintf(text, sizeof(text), "%s %zu: ", subject_.kind, subject_.index);
  } else if (subject_.kind != nullptr) {
    used = std::snprintf(text, sizeof(text), "%s '%.*s': ", subject_.kind,
                         static_cast<int>(subject_.name.size()), subject_.name.data());
  }
  const auto begin = static_cast<size_t>(used);
  std::vsnprintf(text + begin, sizeof(text) - begin, format, args);
  status_ = Status::error(code, "%s", text);
}

bool JsonCursor::refuse(const char* format, ...) noexcept {
  va_list args;
  va_start(args, format);
  refuse_with(Code::kInvalidArgument, format, args);
  va_end(args);
  return false;
}

bool JsonCursor::refuse_as(Code code, const char* format, ...) noexcept {
  va_list args;
  va_start(args, format);
  refuse_with(code, format, args);
  va_end(args);
  return false;
}

bool JsonCursor::refuse_value(const char* what, const char* wanted) noexcept {
  // Of a long value its beginning is enough to find it.
  constexpr size_t kMaxShown = 40;
  skip_blanks();
  const char* const value = at_;
  if (!skip_value()) return false;
  const size_t size = static_cast<size_t>(at_ - value);
  return refuse("%s is %.*s%s; wanted %s", what, static_cast<int>(std::min(size, kMaxShown)), value,
                size > kMaxShown ? "..." : "", wanted);
}

bool JsonCursor::refuse_here(const char* expected) noexcept {
  const size_t byte = static_cast<size_t>(at_ - begin_);
  if (at_ >= end_) {
    return refuse("the JSON ends at byte %zu, where %s is wanted; is it cut off?", byte, expected);
  }
  const uint8_t c = static_cast<uint8_t>(*at_);
  if (c < 0x20 || c >= 0x7f) {
    return refuse("the JSON is malformed at byte %zu: got byte 0x%02x, wanted %s", byte, c,
                  expected);
  }
  return refuse("the JSON is malformed at byte %zu: got '%c', wanted %s", byte, c, expected);
}

bool JsonCursor::enter(const char* what) noexcept {
  if (++depth_ <= limits::kMaxJsonDepth) return true;
  return refuse("the JSON is nested deeper than %zu levels at byte %zu (%s)", limits::kMaxJsonDepth,
                static_cast<size_t>(at_ - begin_), what);
}

std::optional<std::string_view> JsonCursor::read_key(size_t first_key) noexcept {
  const std::optional<std::string_view> key = read_string("a key in quotes");
  if (!key) return std::nullopt;
  if (!take(':')) {
    refuse_here("':' after a key");
    return std::nullopt;
  }
  const JsonKeys::Added added = keys_->add(first_key, *key);
  if (added == JsonKeys::Added::kTwice) {
    refuse("the JSON has the key '%.*s' twice in one object", static_cast<int>(key->size()),
           key->data());
    return std::nullopt;
  }
  if (added == JsonKeys::Added::kFull) {
    refuse(
        "the JSON has an object with more than %zu keys, or more than %zu in all that enclose "
        "each other",
        JsonKeys::kMaxPerObject, JsonKeys::kMaxOpen);
    return std::nullopt;
  }
  skip_blanks();
  return key;
}

std::optional<JsonCursor::RawString> JsonCursor::scan_string(const char* what) noexcept {
  if (peek() != '"') {
    refuse_here(what);
    return std::nullopt;
  }
  const char* const first = ++at_;
  bool has_escapes = false;
  // Eight bytes at a time; bytes read beyond the end are padding and only end the loop.
  while (at_ < end_) {
    const uint64_t word = load_word(at_);
    const uint64_t marks =
        bytes_below(word, 0x20) | bytes_equal(word, '"') | bytes_equal(word, '\\');
    if (marks == 0) {
      at_ += 8;
      continue;
    }
    at_ += first_marked(marks);
    if (at_ >= end_) break;
    if (*at_ == '"') {
      const std::string_view text(first, static_cast<size_t>(at_ - first));
      ++at_;
      return RawString{text, has_escapes};
    }
    if (*at_ != '\\') {
      refuse_here("no control character in a string (write it as \\uXXXX)");
      return std::nullopt;
    }
    has_escapes = true;
    at_ += 2;  // over the escaped byte, which may be a quote; unescape() checks it
  }
  at_ = end_;
  refuse_here("the closing quote of a string");
  return std::nullopt;
}

std::optional<size_t> JsonCursor::unescape(RawString string, char* out) noexcept {
  const char* in = string.text.data();
  const char* const end = in + string.text.size();
  if (!string.has_escapes) {
    if (out != nullptr) std::memcpy(out, in, string.text.size());
    return string.text.size();
  }
  size_t size = 0;
  while (in < end) {
    const void* found = std::memchr(in, '\\', static_cast<size_t>(end - in));
    const char* const stop = found == nullptr ? end : static_cast<const char*>(found);
    const size_t plain = static_cast<size_t>(stop - in);
    if (out != nullptr) std::memcpy(out + size, in, plain);
    size += plain;
    in = stop;
    if (in == end) break;
    const Escape escape = read_escape(in);
    if (escape.consumed == 0) {
      at_ = in;
      refuse_here("a valid escape (surrogates come in pairs)");
      return std::nullopt;
    }
    if (out != nullptr) std::memcpy(out + size, escape.text.bytes, escape.text.size);
    size += escape.text.size;
    in += escape.consumed;
  }
  return size;
}

std::optional<std::string_view> JsonCursor::read_string(const char* what) noexcept {
  const std::optional<RawString> raw = scan_string(what);
  if (!raw) return std::nullopt;
  if (!raw->has_escapes) return raw->text;
  char* const text = static_cast<char*>(memory_->allocate(raw->text.size(), 1));
  if (text == nullptr) {
    refuse_as(Code::kTooLarge, "the request's memory has no room for a string of %zu bytes",
              raw->text.size());
    return std::nullopt;
  }
  const std::optional<size_t> size = unescape(*raw, text);
  if (!size) return std::nullopt;
  return std::string_view(text, *size);
}

std::optional<bool> JsonCursor::read_bool(const char* what) noexcept {
  skip_blanks();
  for (const bool value : {true, false}) {
    if (!take_word(value ? std::string_view("true") : std::string_view("false"))) continue;
    return value;
  }
  refuse_here(what);
  return std::nullopt;
}

// nullopt, with the cursor where it was: the caller says the wanted kind.
std::optional<uint64_t> JsonCursor::try_unsigned() noexcept {
  const char* const first = at_;
  uint64_t value = 0;
  bool fits = true;
  for (; at_ < end_ && is_digit(*at_); ++at_) {
    fits &= !__builtin_mul_overflow(value, 10U, &value) &&
            !__builtin_add_overflow(value, static_cast<uint64_t>(*at_ - '0'), &value);
  }
  const bool ends = at_ == end_ || (*at_ != '.' && *at_ != 'e' && *at_ != 'E');
  const bool leading_zero = at_ - first > 1 && *first == '0';
  if (at_ > first && fits && ends && !leading_zero) return value;
  at_ = first;
  return std::nullopt;
}

std::optional<uint64_t> JsonCursor::read_unsigned(const char* what) noexcept {
  skip_blanks();
  const std::optional<uint64_t> value = try_unsigned();
  if (!value) refuse_here(what);
  return value;
}

std::optional<int64_t> JsonCursor::try_integer() noexcept {
  const bool negative = peek() == '-';
  const char* const first = at_;
  if (negative) ++at_;
  const std::optional<uint64_t> magnitude = try_unsigned();
  constexpr uint64_t kMax = INT64_MAX;
  if (magnitude && *magnitude <= kMax + (negative ? 1 : 0)) {
    return static_cast<int64_t>(negative ? 0 - *magnitude : *magnitude);
  }
  at_ = first;
  return std::nullopt;
}

bool JsonCursor::take_word(std::string_view word) noexcept {
  if (bytes_left() < word.size() || std::string_view(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

bool JsonCursor::skip_number() noexcept {
  const auto digits = [this] {
    const char* const first = at_;
    while (at_ < end_ && is_digit(*at_)) ++at_;
    return at_ - first;
  };
  if (*at_ == '-') ++at_;
  const bool leading_zero = at_ < end_ && *at_ == '0';
  const auto whole = digits();
  if (whole == 0) return refuse_here("a digit");
  if (leading_zero && whole > 1) return refuse_here("no leading zero");
  if (at_ < end_ && *at_ == '.') {
    ++at_;
    if (digits() == 0) return refuse_here("a digit after the point");
  }
  if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
    ++at_;
    if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
    if (digits() == 0) return refuse_here("a digit of the exponent");
  }
  return true;
}

// Recursive, at most kMaxJsonDepth deep: some 20 KiB of stack.
std::optional<double> JsonCursor::try_non_finite() noexcept {
  struct Word {
    std::string_view text;
    double value;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr std::array<Word, 7> kWords = {{{"null", kNan},
                                           {"NaN", kNan},
                                           {"Infinity", kInfinity},
                                           {"-Infinity", -kInfinity},
                                           {"\"NaN\"", kNan},
                                           {"\"Infinity\"", kInfinity},
                                           {"\"-Infinity\"", -kInfinity}}};
  for (const auto& [text, value] : kWords) {
    if (take_word(text)) return value;
  }
  return std::nullopt;
}

bool JsonCursor::skip_data() noexcept {
  is_in_data_ = true;
  const bool is_read = skip_value();
  is_in_data_ = false;
  return is_read;
}

bool JsonCursor::skip_value() noexcept {
  if (is_in_data_ && peek() != '"' && try_non_finite()) return true;
  switch (peek()) {
    case '{': return read_object("an object", [this](std::string_view) { return skip_value(); });
    case '[': return read_array("an array", [this] { return skip_value(); });
    case '"': {
      const std::optional<RawString> string = scan_string("a string");
      return string && unescape(*string, nullptr);
    }
    case 't': return take_word("true") || refuse_here("a value");
    case 'f': return take_word("false") || refuse_here("a value");
    case 'n': return take_word("null") || refuse_here("a value");
    default: break;
  }
  if (at_ < end_ && (*at_ == '-' || is_digit(*at_))) return skip_number();
  return refuse_here("a value");
}

}  // namespace lumen::wire
