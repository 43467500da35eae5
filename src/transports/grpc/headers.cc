// See the header.
#include "transports/grpc/headers.h"

#include <lumen/base/limits.h>
#include <lumen/wire/status_map.h>

#include <algorithm>
#include <charconv>

namespace lumen::grpc {

bool is_grpc_type(std::string_view content_type) noexcept {
  constexpr std::string_view kType = "application/grpc";
  if (!content_type.starts_with(kType)) return false;
  const std::string_view rest = content_type.substr(kType.size());
  return rest.empty() || rest[0] == '+' || rest[0] == ';';
}

std::optional<uint64_t> parse_grpc_timeout(std::string_view text) noexcept {
  constexpr size_t kMostDigits = 8;
  if (text.size() < 2 || text.size() > kMostDigits + 1) return std::nullopt;
  uint64_t value = 0;
  const char* const end = text.data() + text.size() - 1;
  if (std::from_chars(text.data(), end, value).ptr != end) return std::nullopt;
  switch (text.back()) {
    case 'H': value *= uint64_t{3600} * 1'000'000; break;
    case 'M': value *= uint64_t{60} * 1'000'000; break;
    case 'S': value *= 1'000'000; break;
    case 'm': value *= 1'000; break;
    case 'u': break;
    case 'n': value /= 1'000; break;
    default: return std::nullopt;
  }
  // 0 would mean no deadline, and its client has waited for long enough.
  return std::clamp<uint64_t>(value, 1, limits::kMaxTimeoutUs);
}

std::string_view write_status(Code code, std::span<char> room) noexcept {
  const auto end = std::to_chars(room.data(), room.data() + room.size(), wire::grpc_status(code));
  return {room.data(), static_cast<size_t>(end.ptr - room.data())};
}

std::string_view percent_encode(std::string_view text, std::span<char> room) noexcept {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  size_t used = 0;
  for (const char one : text) {
    const auto byte = static_cast<uint8_t>(one);
    const bool is_plain = byte >= 0x20 && byte <= 0x7e && byte != '%';
    if (used + (is_plain ? 1 : 3) > room.size()) break;
    if (is_plain) {
      room[used++] = one;
    } else {
      room[used++] = '%';
      room[used++] = kDigits[byte >> 4];
      room[used++] = kDigits[byte & 15];
    }
  }
  return {room.data(), used};
}

}  // namespace lumen::grpc
