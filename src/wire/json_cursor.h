// JsonCursor: a strict reader of one JSON text (RFC 8259), forward only, value by value. Why not
// simdjson's parsers: they hold 5.7 (on-demand) or 13 (DOM) times the document for good, have no
// float32 conversion (a double in between rounds twice), and 20 ns against 12 for a 17-digit number
// of a tensor, measured. simdjson still checks UTF-8, at 6.7 GB/s, and is the tests' judge.
// Threads: one. Memory: only for strings with escapes, from the Allocator given.
// Errors: false or nullopt, and status() has the reason; the first failure stays.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/limits.h>
#include <lumen/base/result.h>

#include "wire/json_keys.h"

#include <cstdarg>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lumen::wire {

class JsonCursor {
 public:
  // The text between two quotes, not unescaped and its escapes not checked yet.
  struct RawString {
    std::string_view text;
    bool has_escapes;
  };

  // kPadding bytes after `json` are readable; `keys` and `memory` outlive the cursor.
  JsonCursor(std::string_view json, JsonKeys& keys, Allocator& memory) noexcept
      : begin_(json.data()),
        at_(json.data()),
        end_(json.data() + json.size()),
        keys_(&keys),
        memory_(&memory) {}

  [[nodiscard]] const char* at() const noexcept { return at_; }
  [[nodiscard]] const char* end() const noexcept { return end_; }
  [[nodiscard]] size_t bytes_left() const noexcept { return static_cast<size_t>(end_ - at_); }
  void jump_to(const char* at) noexcept { at_ = at; }
  [[nodiscard]] Allocator& memory() const noexcept { return *memory_; }
  [[nodiscard]] const Status& status() const noexcept { return status_; }

  void skip_blanks() noexcept {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  // The next byte that is not blank, or 0 at the end; a NUL in the text fails wherever it is met.
  [[nodiscard]] char peek() noexcept {
    skip_blanks();
    return at_ < end_ ? *at_ : '\0';
  }
  [[nodiscard]] bool take(char c) noexcept {
    if (peek() != c || at_ == end_) return false;
    ++at_;
    return true;
  }
  [[nodiscard]] bool at_end() noexcept {
    skip_blanks();
    return at_ == end_;
  }

  // Calls `member(key)` with the cursor at each value; it reads the value and returns true.
  // Refuses a key that comes twice. `what` names the object in the reason.
  template <typename Member>
  [[nodiscard]] bool read_object(const char* what, Member member) noexcept;
  // Calls `element()` with the cursor at each element.
  template <typename Element>
  [[nodiscard]] bool read_array(const char* what, Element element) noexcept;

  // Unescaped; a view into the text where it has no escapes.
  [[nodiscard]] std::optional<std::string_view> read_string(const char* what) noexcept;
  [[nodiscard]] std::optional<RawString> scan_string(const char* what) noexcept;
  // Unescapes to `out`, which has room for string.text.size() bytes; nullptr only checks. Returns
  // the bytes written.
  [[nodiscard]] std::optional<size_t> unescape(RawString string, char* out) noexcept;
  [[nodiscard]] std::optional<bool> read_bool(const char* what) noexcept;
  // An integer as JSON writes it, without point or exponent.
  [[nodiscard]] std::optional<uint64_t> read_unsigned(const char* what) noexcept;
  // nullopt, with the cursor where it was: another value, or an integer that does not fit.
  [[nodiscard]] std::optional<int64_t> try_integer() noexcept;

  // Reads over a value whose content does not matter; its grammar does.
  [[nodiscard]] bool skip_value() noexcept;
  // The same of a tensor's data, which may have NaN and Infinity bare, as Python writes them.
  [[nodiscard]] bool skip_data() noexcept;
  // Reads over null, if that is the value.
  [[nodiscard]] bool take_null() noexcept { return peek() == 'n' && take_word("null"); }
  // Of a number that JSON has no form for: null, NaN, Infinity and -Infinity, the last three in
  // quotes, too; null is NaN. nullopt, with the cursor where it was: another value.
  [[nodiscard]] std::optional<double> try_non_finite() noexcept;

  // The subject that is being read: every reason begins with "input 0: ", or "input 'x': " once it
  // has a name.
  void begin_subject(const char* kind, size_t index) noexcept { subject_ = {kind, index, {}}; }
  void name_subject(std::string_view name) noexcept { subject_.name = name; }
  void end_subject() noexcept { subject_ = {}; }

  // Fails with `format`; the reason of an earlier failure stays.
  [[gnu::format(printf, 2, 3)]] bool refuse(const char* format, ...) noexcept;
  [[gnu::format(printf, 3, 4)]] bool refuse_as(Code code, const char* format, ...) noexcept;
  // Fails with "byte N: expected <what>, got <c>".
  bool refuse_here(const char* expected) noexcept;
  // Fails with "<what> is <the value here>; wanted <wanted>"; if it is no JSON, with that.
  bool refuse_value(const char* what, const char* wanted) noexcept;

 private:
  struct Subject {
    const char* kind = nullptr;  // nullptr: none
    size_t index = 0;
    std::string_view name;
  };

  bool enter(const char* what) noexcept;
  [[nodiscard]] std::optional<uint64_t> try_unsigned() noexcept;
  void refuse_with(Code code, const char* format, va_list args) noexcept;
  std::optional<std::string_view> read_key(size_t first_key) noexcept;
  bool skip_number() noexcept;
  bool take_word(std::string_view word) noexcept;

  const char* begin_;
  const char* at_;
  const char* end_;
  JsonKeys* keys_;
  Allocator* memory_;
  size_t depth_ = 0;
  bool is_in_data_ = false;  // NaN and Infinity are values
  Subject subject_;
  Status status_;
};

template <typename Member>
bool JsonCursor::read_object(const char* what, Member member) noexcept {
  if (!take('{')) return refuse_here(what);
  if (!enter(what)) return false;
  const size_t first_key = keys_->size();
  if (!take('}')) {
    do {
      const std::optional<std::string_view> key = read_key(first_key);
      if (!key || !member(*key)) return false;
    } while (take(','));
    if (!take('}')) return refuse_here("',' or '}'");
  }
  keys_->drop_to(first_key);
  --depth_;
  return true;
}

template <typename Element>
bool JsonCursor::read_array(const char* what, Element element) noexcept {
  if (!take('[')) return refuse_here(what);
  if (!enter(what)) return false;
  if (!take(']')) {
    do {
      skip_blanks();
      if (!element()) return false;
    } while (take(','));
    if (!take(']')) return refuse_here("',' or ']'");
  }
  --depth_;
  return true;
}

}  // namespace lumen::wire
