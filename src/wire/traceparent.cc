// Reader of the header traceparent. Threads: any; pure. Memory: none. Errors: nullopt.
#include <lumen/wire/traceparent.h>

#include <algorithm>
#include <cstddef>
#include <span>

namespace lumen::wire {
namespace {

// Where the fields begin, and the length of version 00.
constexpr size_t kTraceId = 3;
constexpr size_t kParentId = 36;
constexpr size_t kFlags = 53;
constexpr size_t kBytes = 55;

// Lower case alone (HEXDIGLC): two spellings of one id would be two traces. -1: none.
constexpr int lower_hex(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool read_hex(const char* text, std::span<uint8_t> out) noexcept {
  for (uint8_t& byte : out) {
    const int high = lower_hex(*text++);
    const int low = lower_hex(*text++);
    if (high < 0 || low < 0) return false;
    byte = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

bool is_zero(std::span<const uint8_t> bytes) noexcept {
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

}  // namespace

std::optional<Traceparent> parse_traceparent(std::string_view value) noexcept {
  if (value.size() < kBytes) return std::nullopt;
  const char* const text = value.data();
  for (const size_t dash : {kTraceId - 1, kParentId - 1, kFlags - 1}) {
    if (text[dash] != '-') return std::nullopt;
  }
  uint8_t version = 0;
  Traceparent parsed{.is_present = 1};
  if (!read_hex(text, {&version, 1}) || !read_hex(text + kTraceId, parsed.trace_id) ||
      !read_hex(text + kParentId, parsed.parent_id) ||
      !read_hex(text + kFlags, {&parsed.flags, 1})) {
    return std::nullopt;
  }
  const bool goes_on = value.size() > kBytes;
  if (version == 0xff || (goes_on && (version == 0 || text[kBytes] != '-'))) return std::nullopt;
  if (is_zero(parsed.trace_id) || is_zero(parsed.parent_id)) return std::nullopt;
  return parsed;
}

}  // namespace lumen::wire
