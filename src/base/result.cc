// Formatting of Status messages. Any thread; never allocates: a message is made on the stack.
#include <lumen/base/result.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace lumen {
namespace {

// A message as it is made: text and how much of it there is.
struct Text {
  std::array<char, Status::kMaxMessage> bytes;
  size_t size = 0;

  [[gnu::format(printf, 2, 0)]] void add(const char* format, va_list args) noexcept {
    const size_t room = bytes.size() - size;
    const int wanted = std::vsnprintf(bytes.data() + size, room, format, args);
    size += static_cast<size_t>(std::clamp<int>(wanted, 0, static_cast<int>(room) - 1));
  }
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) noexcept {
    va_list args;
    va_start(args, format);
    add(format, args);
    va_end(args);
  }
  [[nodiscard]] std::string_view view() const noexcept { return {bytes.data(), size}; }
};

}  // namespace

Status::Status(Code code, std::string_view message) noexcept : code_(code) {
  if (message.size() > kShortMessage) text_ = ErrorText::claim(message);
  if (text_ != nullptr) return;
  size_ = static_cast<uint8_t>(std::min(message.size(), kShortMessage));
  std::memcpy(short_.data(), message.data(), size_);
  short_[size_] = '\0';
}

Status Status::verror(Code code, const char* format, va_list args) noexcept {
  Text text;
  text.add(format, args);
  return {code, text.view()};
}

Status Status::error(Code code, const char* format, ...) noexcept {
  va_list args;
  va_start(args, format);
  Status status = verror(code, format, args);
  va_end(args);
  return status;
}

Status Status::at(std::string_view where) const noexcept {
  if (ok()) return {};
  const std::string_view said = message();
  return error(code_, "%.*s: %.*s", static_cast<int>(where.size()), where.data(),
               static_cast<int>(said.size()), said.data());
}

Status Status::from_errno(int error_number, const char* format, ...) noexcept {
  Text text;
  va_list args;
  va_start(args, format);
  text.add(format, args);
  va_end(args);
  char reason[128];
  // GNU strerror_r: may return a static string instead of filling the buffer; both are thread-safe.
  text.add(": %s (errno %d)", strerror_r(error_number, reason, sizeof(reason)), error_number);
  return {Code::kInternal, text.view()};
}

}  // namespace lumen
